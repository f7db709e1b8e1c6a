package natsbus

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2/ktesting"

	"makeway.dev/makeway/plugin/internal/telemetry"
)

// standIn speaks as much of NATS as a client needs to connect and to be answered, and misbehaves as a test wants.
type standIn struct {
	listener net.Listener
	tls      *tls.Config // asked for, where there is one

	mu       sync.Mutex
	silent   bool   // takes connections and says nothing
	deaf     bool   // reads nothing any more
	refusals int    // of so many further connections
	login    string // must stand in CONNECT
	conns    []net.Conn
	subjects map[string]int // subscribed to, so often
	ids      map[string]string
	heard    []string          // subjects that were published to
	answers  map[string]string // by how the subject of a request begins; empty: it is not answered
}

// newStandIn is a stand-in, and a bus that connects to it.
func newStandIn(t *testing.T) (*standIn, *Bus) {
	t.Helper()
	return newStandInWith(t, nil, Options{})
}

// newStandInWith is newStandIn with TLS at the server, and how the client logs in.
func newStandInWith(t *testing.T, config *tls.Config, options Options) (*standIn, *Bus) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &standIn{listener: listener, tls: config, subjects: map[string]int{}, ids: map[string]string{}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		s.drop("")
	})
	options.URL, options.Name = "nats://"+listener.Addr().String(), "test"
	return s, Connect(ctx, options)
}

func (s *standIn) serve(conn net.Conn) {
	s.mu.Lock()
	s.conns = append(s.conns, conn)
	silent, refused, config := s.silent, s.refusals > 0, s.tls
	s.refusals--
	s.mu.Unlock()
	if silent {
		return
	}
	_, _ = fmt.Fprintf(conn, `INFO {"server_id":"s","version":"2.15.0","proto":1,"max_payload":1048576,"nonce":"once","tls_required":%t}`+"\r\n", config != nil)
	if config != nil {
		conn = tls.Server(conn, config)
	}
	inbox := ""
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		switch words := strings.Fields(line); words[0] {
		case "CONNECT":
			s.mu.Lock()
			refused = refused || !strings.Contains(line, s.login)
			s.mu.Unlock()
			if refused {
				_, _ = io.WriteString(conn, "-ERR 'Authorization Violation'\r\n")
				_ = conn.Close()
				return
			}
		case "PING":
			_, _ = io.WriteString(conn, "PONG\r\n")
		case "SUB":
			inbox = words[len(words)-1]
			s.mu.Lock()
			s.subjects[words[1]]++
			s.ids[words[1]] = inbox
			s.mu.Unlock()
		case "PUB":
			var size int
			_, _ = fmt.Sscan(words[len(words)-1], &size)
			s.now(func() { s.heard = append(s.heard, words[1]) })
			if _, err := lines.Discard(size + 2); err != nil {
				return
			}
			if len(words) == 4 {
				answer, id := s.answer(words[1], words[2])
				if answer != "" {
					_, _ = fmt.Fprintf(conn, "MSG %s %s %d\r\n%s\r\n", words[2], cmp.Or(id, inbox), len(answer), answer)
				}
			}
		}
		for s.is(&s.deaf) {
			time.Sleep(time.Millisecond)
		}
	}
}

// answer is what a request is answered, and the subscription that gets it; "answer" where nothing else was said.
func (s *standIn) answer(subject, reply string) (string, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, id := "answer", ""
	for begin, said := range s.answers {
		if strings.HasPrefix(subject, begin) {
			answer = said
		}
	}
	for subscribed, one := range s.ids {
		if begin, many := strings.CutSuffix(subscribed, "*"); many && strings.HasPrefix(reply, begin) {
			id = one
		}
	}
	return answer, id
}

func (s *standIn) is(what *bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *what
}

func (s *standIn) now(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// drop ends all connections, after a last line where one is given: then it is the client who does.
func (s *standIn) drop(last string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = false
	for _, conn := range s.conns {
		if last == "" {
			_ = conn.Close()
			continue
		}
		_, _ = io.WriteString(conn, last+"\r\n")
	}
	s.conns = nil
}

// asks sends one request, which must not take much longer than it may.
func asks(t *testing.T, bus *Bus, data []byte) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := bus.Request(ctx, "plan", data)
	if took := time.Since(begun); took > time.Second {
		t.Fatalf("a request took %s", took)
	}
	return err
}

func answered(t *testing.T, bus *Bus) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for asks(t, bus, []byte("question")) != nil {
		if time.Now().After(deadline) {
			t.Fatal("never answered")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestARequestDoesNotWaitForAConnectionThatIsBeingMade(t *testing.T) {
	server, bus := newStandIn(t)
	answered(t, bus)

	server.now(func() { server.silent = true })
	server.drop("")

	for range 100 {
		if asks(t, bus, []byte("question")) == nil {
			t.Fatal("answered without a server")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := asks(t, bus, []byte("question")); !errors.Is(err, ErrNotSent) {
		t.Errorf("error %v, want that it is not sent", err)
	}
	server.now(func() { server.silent = false })
	answered(t, bus)
}

func TestARequestDoesNotWaitForAFullSocket(t *testing.T) {
	server, bus := newStandIn(t)
	answered(t, bus)

	server.now(func() { server.deaf = true })

	for range 30 {
		_ = asks(t, bus, make([]byte, 1<<20)) // the first ones find room
	}
}

func TestAConnectionThatIsClosedForGoodIsMadeAnew(t *testing.T) {
	for name, test := range map[string]struct {
		refusals int
		last     string
	}{
		"an error that the client does not know": {0, "-ERR 'Something New'"},
		"credentials that are refused twice":     {4, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server, bus := newStandIn(t)
			go bus.Serve(t.Context(), "status", "", func([]byte) ([]byte, error) { return nil, nil })
			subscribed := func() int {
				server.mu.Lock()
				defer server.mu.Unlock()
				return server.subjects["status"]
			}
			wait := func(times int) {
				t.Helper()
				for deadline := time.Now().Add(20 * time.Second); subscribed() < times; time.Sleep(10 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("subscribed %d times, want %d", subscribed(), times)
					}
				}
			}
			answered(t, bus)
			wait(1)

			server.now(func() { server.refusals = test.refusals })
			server.drop(test.last)

			wait(2)
			answered(t, bus)
		})
	}
}

func TestAQuestionIsAnsweredInAnInboxOfMakewaysAndNowhereElse(t *testing.T) {
	server, bus := newStandIn(t)
	telemetry.Register()
	before := counted(t, repliesRefused)
	go bus.Serve(t.Context(), "status", "", func([]byte) ([]byte, error) { return []byte("fine"), nil })
	answered(t, bus)
	wait := func(what func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			server.mu.Lock()
			found := what()
			server.mu.Unlock()
			if found {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("never seen")
			}
		}
	}
	wait(func() bool { return server.subjects["status"] == 1 })

	foreign := []string{"makeway.v1.control", "makeway.v1.orders.pod.u", "_INBOX.other.x", "_INBOX.makewayx.y"}
	own := []string{"_INBOX.makeway.cli.x", "_R_.a.b"}
	server.ask("status", append(foreign, own...))

	wait(func() bool { return slices.Contains(server.heard, own[0]) && slices.Contains(server.heard, own[1]) })
	server.mu.Lock()
	defer server.mu.Unlock()
	for _, subject := range foreign {
		if slices.Contains(server.heard, subject) {
			t.Errorf("answered on %s", subject)
		}
	}
	if refused := counted(t, repliesRefused) - before; refused != float64(len(foreign)) {
		t.Errorf("%v replies were refused, want %d", refused, len(foreign))
	}
}

// counted is what a metric has counted.
func counted(t *testing.T, metric metrics.CounterMetric) float64 {
	t.Helper()
	value, err := testutil.GetCounterMetricValue(metric)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// ask sends a message for each reply subject to whoever has subscribed.
func (s *standIn) ask(subject string, replies []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		for _, reply := range replies {
			_, _ = fmt.Fprintf(conn, "MSG %s %s %s 0\r\n\r\n", subject, s.ids[subject], reply)
		}
	}
}
