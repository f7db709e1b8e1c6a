//go:build unix

package natsbus

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// dialed is a polling connection and its other side.
func dialed(t *testing.T) (p *poller, near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	p = &poller{}
	if near, err = p.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return p, near, far
}

type taken struct {
	text string
	err  error
}

// reads reads in the background, as a NATS client does, and sends on what it reads.
func reads(conn net.Conn) <-chan taken {
	got := make(chan taken, 100)
	go func() {
		buffer := make([]byte, 64)
		for {
			n, err := conn.Read(buffer)
			got <- taken{string(buffer[:n]), err}
			if err != nil {
				return
			}
		}
	}()
	return got
}

func expectRead(t *testing.T, got <-chan taken, text string, err error) {
	t.Helper()
	select {
	case read := <-got:
		if read.text != text || !errors.Is(read.err, err) {
			t.Fatalf("read %q, error %v, want %q, %v", read.text, read.err, text, err)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("%q was never read", text)
	}
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func TestAnswersAreReadWithPollingAndWithout(t *testing.T) {
	p, near, far := dialed(t)
	got, asked := reads(near), reads(far)
	for range 20 {
		end := p.begin(t.Context())
		send(t, near, "question")
		expectRead(t, asked, "question", nil)
		send(t, far, "answer")
		expectRead(t, got, "answer", nil)
		if p.remaining() > 0 {
			t.Fatal("the first data did not end the polling")
		}
		end()
		send(t, near, "order")
		expectRead(t, asked, "order", nil)
		send(t, far, "outcome")
		expectRead(t, got, "outcome", nil)
	}
}

func TestAnAnswerThatComesLateIsReadWithoutPolling(t *testing.T) {
	p, near, far := dialed(t)
	got := reads(near)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	defer p.begin(ctx)()
	send(t, near, "question")
	time.Sleep(20 * time.Millisecond)
	send(t, far, "answer")
	expectRead(t, got, "answer", nil)
}

func TestPollingLeavesAReadDeadlineInForce(t *testing.T) {
	p, near, _ := dialed(t)
	deadline := time.Now().Add(50 * time.Millisecond)
	if err := near.SetDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	got := reads(near)
	time.Sleep(5 * time.Millisecond) // the reader waits
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	defer p.begin(ctx)()
	send(t, near, "question")
	expectRead(t, got, "", os.ErrDeadlineExceeded)
	if time.Now().Before(deadline) {
		t.Error("the read ended before its deadline")
	}
}

func TestPollingEndsWithTheConnection(t *testing.T) {
	for name, close := range map[string]func(near, far net.Conn) error{
		"closed here":  func(near, _ net.Conn) error { return near.Close() },
		"closed there": func(_, far net.Conn) error { return far.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p, near, far := dialed(t)
			got := reads(near)
			defer p.begin(t.Context())()
			send(t, near, "question")
			_, _ = far.Read(make([]byte, 8)) // so that closing resets nothing
			if err := close(near, far); err != nil {
				t.Fatal(err)
			}
			select {
			case read := <-got:
				if read.err == nil {
					t.Fatalf("read %q", read.text)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("still reading")
			}
		})
	}
}

// TestARequestThatEndsLeavesTheOthersPolling: a prefetch that is not used and PostFilter's own request are out together.
func TestARequestThatEndsLeavesTheOthersPolling(t *testing.T) {
	p := &poller{}
	first, second := p.begin(t.Context()), p.begin(t.Context())

	first()
	if p.remaining() <= 0 {
		t.Error("the end of one ended the polling of the other")
	}
	p.arrived()
	if p.remaining() > 0 {
		t.Error("its answer did not end the polling of the last one")
	}
	second()

	third, fourth := p.begin(t.Context()), p.begin(t.Context())
	p.arrived()
	if p.remaining() <= 0 {
		t.Error("the answer of one of two ended the polling of both")
	}
	third()
	fourth()
	if p.remaining() > 0 {
		t.Error("it polls for no request")
	}
}
