package bridge

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// mostAttention bounds how long one wait for an answer is attentive, and so what closing the connection meanwhile
// may take. It is half of planTimeout's default.
const mostAttention = 50 * time.Millisecond

// attention makes the connections that it dials wait for the next data, while it is paid, in a system call of their own
// instead of Go's network poller.
//
// The scheduling cycle waits for the planner's answer, and in a busy process Go looks for readable connections late: a
// processor asks the poller only when it has nothing else to run, or when nobody has asked for 10 ms, and
// what it finds goes to the end of the queue. A thread in poll(2) is woken by the kernel at once, and mostly still has its
// processor, so that whoever waits for the data runs next. Meanwhile the runtime may give the processor to others as with any
// system call. It costs no CPU time, and one thread while a request is out.
//
// A connection has to be for requests alone: the first data that comes, whatever it is, ends the attention.
type attention struct {
	dialer net.Dialer
	until  atomic.Int64 // Unix nanoseconds; 0: none is paid
}

// pay begins the attention for one request, which the context bounds; what it gives ends it.
func (a *attention) pay(ctx context.Context) (cease func()) {
	until := time.Now().Add(mostAttention)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		until = deadline
	}
	a.until.Store(until.UnixNano())
	return a.cease
}

func (a *attention) cease() { a.until.Store(0) }

// left is how long it is still paid; nothing, or less, where it is not.
func (a *attention) left() time.Duration {
	until := a.until.Load()
	if until == 0 {
		return 0
	}
	return time.Until(time.Unix(0, until))
}

// Dial implements nats.CustomDialer.
func (a *attention) Dial(network, address string) (net.Conn, error) {
	conn, err := a.dialer.Dial(network, address)
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
	return &attentiveConn{Conn: conn, raw: raw, attention: a}, nil
}

// attentiveConn is one connection. A reader sits in the network poller long before a request is
// written; so the write, made after attention is paid, calls it out of there: a read deadline in the past does that.
type attentiveConn struct {
	net.Conn
	raw       syscall.RawConn
	attention *attention

	mu       sync.Mutex
	deadline time.Time // for reading, as the user of the connection has set it
	called   bool      // the deadline in force is in the past to call the reader
}

// Write implements net.Conn.
func (c *attentiveConn) Write(data []byte) (int, error) {
	if c.attention.left() > 0 {
		c.call()
	}
	return c.Conn.Write(data)
}

// Read implements net.Conn.
func (c *attentiveConn) Read(into []byte) (int, error) {
	for {
		if left := c.attention.left(); left > 0 {
			// An error says that the connection is closed, which Read says too.
			_ = c.raw.Control(func(descriptor uintptr) { awaitReadable(descriptor, left) })
		}
		n, err := c.Conn.Read(into)
		if errors.Is(err, os.ErrDeadlineExceeded) && c.answered() {
			continue
		}
		// What follows is done by others, who would wait for the processor that another system call keeps.
		c.attention.cease()
		return n, err
	}
}

func (c *attentiveConn) call() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.called = c.Conn.SetReadDeadline(time.Unix(1, 0)) == nil
}

// answered says whether a read was ended by a call, and puts the deadline back.
func (c *attentiveConn) answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.called {
		return false
	}
	c.called = false
	return c.Conn.SetReadDeadline(c.deadline) == nil
}

// SetReadDeadline implements net.Conn.
func (c *attentiveConn) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline, c.called = at, false
	return c.Conn.SetReadDeadline(at)
}

// SetDeadline implements net.Conn.
func (c *attentiveConn) SetDeadline(at time.Time) error {
	if err := c.SetWriteDeadline(at); err != nil {
		return err
	}
	return c.SetReadDeadline(at)
}
