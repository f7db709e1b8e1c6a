// Package natsbus is the plugin's connection to NATS: plan requests, orders published to a stream, what the streams
// hold, and a counter that stands in for a Lease. It knows no message of the contract. The packages that use it say
// what they need of it in interfaces of their own.
package natsbus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/tracing"
	"makeway.dev/makeway/plugin/wire"
)

// Errors of a Bus. With any other error it is not known what became of the message.
var (
	// ErrNotSent: the message never left, or no stream takes it. It is certain not to be stored.
	ErrNotSent = errors.New("not sent")
	// ErrNoResponders: no process answers requests on the subject.
	ErrNoResponders = errors.New("no responders")
	// ErrNoStream: there is no stream of this name.
	ErrNoStream = errors.New("no such stream")

	errNotConnected = fmt.Errorf("%w: not connected to NATS", ErrNotSent)
)

// Record is one stored message.
type Record struct {
	Subject string
	// Stream is when the stream that holds it was made.
	Stream   time.Time
	Sequence uint64
	Data     []byte
}

// Ignore logs and counts a message that is ignored for an error, whose Label is the metric's where it has one.
func (r Record) Ignore(ctx context.Context, err error) {
	reason := "other"
	var labelled interface{ Label() string }
	if errors.As(err, &labelled) {
		reason = labelled.Label()
	}
	messagesIgnored.WithLabelValues(reason).Inc()
	klog.FromContext(ctx).Error(err, "message_ignored", "subject", r.Subject, "sequence", r.Sequence)
}

// Options are how a Bus connects.
type Options struct {
	URL             string // several servers are separated by commas
	Name            string // of the connections, as the server lists them
	CredentialsFile string // a JWT and its seed; none where it is empty
	NkeySeedFile    string // the seed of an nkey, in place of credentials; none where it is empty
	Username        string // logs in with the password of PasswordFile; empty: as the URL says
	PasswordFile    string // read at each connection, so that a changed password counts
	TLS             TLSFiles
	// Inbox begins the subjects on which it is answered; empty: the scheduler's.
	Inbox string
}

// TLSFiles names files in PEM. The zero value asks for TLS only where the server does.
type TLSFiles struct {
	CAFile   string `json:"caFile,omitempty"`   // the authorities of the servers' certificates; empty: the system's
	CertFile string `json:"certFile,omitempty"` // a client certificate, which goes with keyFile; empty: none
	KeyFile  string `json:"keyFile,omitempty"`  // the key of that certificate
}

// Bus sends to and reads from a NATS server. It connects in the background, so that a scheduler starts and schedules
// without one, and reconnects forever. Requests, which scheduling cycles wait for, have a connection of their own, on
// which nothing else comes: see poller.
type Bus struct {
	conn     atomic.Pointer[connected] // nil while it is not connected
	requests atomic.Pointer[nats.Conn] // as above
	poller   poller
	denials  denials
}

type connected struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	lost chan struct{} // closed when this connection does not stand any more
}

// Times of a NATS connection.
const (
	connectTimeout    = 2 * time.Second
	reconnectWait     = 250 * time.Millisecond
	pingInterval      = 5 * time.Second
	callTimeout       = 2 * time.Second
	heartbeat         = 2 * time.Second
	retryDelay        = time.Second
	failuresInterval  = 2 * time.Second // between two looks at why a connection is not made
	watchdogInterval  = 3 * time.Second
	inactiveThreshold = 30 * time.Second // after which the server forgets a follower's consumer
)

// Connect returns at once. Until the first connections are made, every call returns ErrNotSent. They are closed when
// the context ends.
func Connect(ctx context.Context, options Options) *Bus {
	bus := &Bus{poller: poller{dialer: net.Dialer{Timeout: connectTimeout}}, denials: denials{clock: clock.RealClock{}}}
	keepConnected(ctx, options, options.Name, bus.denials.note, func(nc *nats.Conn) {
		var now *connected
		if nc != nil {
			js, _ := jetstream.New(nc) // only options can be wrong
			now = &connected{nc: nc, js: js, lost: make(chan struct{})}
		}
		if before := bus.conn.Swap(now); before != nil {
			close(before.lost)
		}
	})
	keepConnected(ctx, options, options.Name+" requests", bus.denials.note, bus.requests.Store, nats.SetCustomDialer(&bus.poller))
	return bus
}

// Denied is what NATS denied this process's login within the last minute; empty where it denied nothing.
func (b *Bus) Denied() string { return b.denials.lately() }

// Request asks and waits for one answer, until the context ends. ErrNoResponders and ErrNotSent come at once.
func (b *Bus) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	defer b.poller.begin(ctx)()
	return exchange(ctx, b.requests.Load(), messageOf(ctx, subject, data))
}

// Ask is Request for what no scheduling cycle waits for.
func (b *Bus) Ask(ctx context.Context, subject string, data []byte) ([]byte, error) {
	c := b.conn.Load()
	if c == nil {
		return nil, errNotConnected
	}
	return exchange(ctx, c.nc, messageOf(ctx, subject, data))
}

// exchange asks on a connection, nil where there is none, and returns the answer. The
// client may wait, whatever the context says: for its lock while it reconnects, or for a
// full socket. So it is called in a goroutine, which may outlast the exchange. These are few: where the connection does not
// stand none is started, and each one that outlasts its exchange is a failure, after a few of which the breaker keeps
// further ones seconds apart.
func exchange(ctx context.Context, nc *nats.Conn, question *nats.Msg) ([]byte, error) {
	if nc == nil {
		return nil, errNotConnected
	}
	var reply *nats.Msg
	var err error
	answered := make(chan struct{}) // closed once these are set
	goroutines.GoRecovered(ctx, "post_filter", func(ctx context.Context) {
		reply, err = nc.RequestMsgWithContext(ctx, question)
		close(answered)
	})
	select {
	case <-answered:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, ErrNoResponders
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrMaxPayload):
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	case err != nil:
		return nil, err
	}
	return reply.Data, nil
}

// messageOf is a message as it is sent for the context's span.
func messageOf(ctx context.Context, subject string, data []byte) *nats.Msg {
	return &nats.Msg{Subject: subject, Data: data, Header: tracing.Headers(ctx)}
}

// Serve answers questions on a subject until the context ends, but for one that asks to be answered elsewhere than in an inbox of
// makeway's. Of all who serve a subject in one group, each question reaches one; in none, it reaches all.
func (b *Bus) Serve(ctx context.Context, subject, group string, answer func(question []byte) ([]byte, error)) {
	var subscribed *nats.Subscription
	defer func() {
		if subscribed.IsValid() {
			_ = subscribed.Unsubscribe() // run anew, it would answer twice
		}
	}()
	for ctx.Err() == nil {
		// The client subscribes again by itself when it reconnects, but not on a connection made in place of a closed one.
		if c := b.conn.Load(); c != nil && !subscribed.IsValid() {
			var err error
			subscribed, err = c.nc.QueueSubscribe(subject, group, func(question *nats.Msg) {
				defer goroutines.RecoverPanic(ctx, "status", nil)
				if !wire.Answerable(question.Reply) {
					repliesRefused.Inc()
					klog.FromContext(ctx).Info("reply_refused", "subject", subject, "reply", question.Reply)
					return
				}
				data, err := answer(question.Data)
				if err == nil {
					err = question.Respond(data)
				}
				if err != nil {
					klog.FromContext(ctx).V(2).Info("status_not_answered", "reason", err.Error())
				}
			})
			if err != nil {
				klog.FromContext(ctx).Error(err, "status_not_served")
			}
		}
		goroutines.Sleep(ctx, retryDelay)
	}
}
