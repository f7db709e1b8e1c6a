package natsbus

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// maxPoll bounds how long one wait for an answer polls, and so what closing the connection meanwhile may take. It is
// half of planTimeout's default.
const maxPoll = 50 * time.Millisecond

// poller dials connections that wait for an answer, while a request is out, in a system call of their own instead of
// Go's network poller.
//
// The scheduling cycle waits for the planner's answer, and in a busy process Go looks for readable connections late: a
// processor asks the network poller only when it has nothing else to run, or when none has asked for 10 ms, and what it
// finds goes to the end of the queue. A thread in poll(2) is woken by the kernel at once, and mostly still has its
// processor, so that the goroutine that waits for the data runs next. Meanwhile the runtime may use the processor for
// others as with any system call. It costs no CPU time, and one thread while a request is out.
//
// A connection has to be for requests alone: where one is out, the first data that comes, whatever it is, ends the polling.
// Where several are out, nothing tells whose answer has come, and each polls until it ends.
type poller struct {
	dialer net.Dialer

	mu  sync.Mutex
	out map[*time.Time]struct{} // until when to poll, for each request that is out
}

// begin begins polling for one answer, which the context bounds; end ends it.
func (p *poller) begin(ctx context.Context) (end func()) {
	until := time.Now().Add(maxPoll)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		until = deadline
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == nil {
		p.out = map[*time.Time]struct{}{}
	}
	p.out[&until] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.out, &until)
	}
}

// arrived ends the polling where it was for one request.
func (p *poller) arrived() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.out) == 1 {
		clear(p.out)
	}
}

// remaining is for how long to poll; zero or less where no request is out.
func (p *poller) remaining() (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for until := range p.out {
		longest = max(longest, time.Until(*until))
	}
	return longest
}

// Dial implements nats.CustomDialer.
func (p *poller) Dial(network, address string) (net.Conn, error) {
	conn, err := p.dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	system, ok := conn.(syscall.Conn)
	if !ok {
		return conn, nil
	}
	raw, err := system.SyscallConn()
	if err != nil {
		return conn, nil // it works without, only later
	}
	return &pollingConn{Conn: conn, raw: raw, poller: p}, nil
}

// pollingConn is one connection. A reader waits in the network poller long before a request is written; so the write,
// made after polling has begun, interrupts it by a read deadline in the past.
type pollingConn struct {
	net.Conn
	raw    syscall.RawConn
	poller *poller

	mu          sync.Mutex
	deadline    time.Time // for reading, as the user of the connection has set it
	interrupted bool      // the deadline in force is in the past to interrupt the reader
}

// Write implements net.Conn.
func (c *pollingConn) Write(data []byte) (int, error) {
	if c.poller.remaining() > 0 {
		c.interrupt()
	}
	return c.Conn.Write(data)
}

// Read implements net.Conn.
func (c *pollingConn) Read(into []byte) (int, error) {
	for {
		if remaining := c.poller.remaining(); remaining > 0 {
			// An error says that the connection is closed, which Read says too.
			_ = c.raw.Control(func(descriptor uintptr) { awaitReadable(descriptor, remaining) })
		}
		n, err := c.Conn.Read(into)
		if errors.Is(err, os.ErrDeadlineExceeded) && c.resume() {
			continue
		}
		// What follows is done by others, who would wait for the processor that another system call keeps.
		c.poller.arrived()
		return n, err
	}
}

func (c *pollingConn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted = c.Conn.SetReadDeadline(time.Unix(1, 0)) == nil
}

// resume reports whether a read was interrupted by a write, and restores the deadline.
func (c *pollingConn) resume() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.interrupted {
		return false
	}
	c.interrupted = false
	return c.Conn.SetReadDeadline(c.deadline) == nil
}

// SetReadDeadline implements net.Conn.
func (c *pollingConn) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline, c.interrupted = at, false
	return c.Conn.SetReadDeadline(at)
}

// SetDeadline implements net.Conn.
func (c *pollingConn) SetDeadline(at time.Time) error {
	if err := c.SetWriteDeadline(at); err != nil {
		return err
	}
	return c.SetReadDeadline(at)
}
