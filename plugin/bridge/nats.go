package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/wire"
)

// Errors of a Bus. Anything else it returns says that nobody knows what became of the message.
var (
	// errNotSent: the message never left, or no stream takes it. It is certain not to be stored.
	errNotSent = errors.New("not sent")
	// errConflict: the subject's last sequence is another than expected.
	errConflict = errors.New("another message came first")
	// errNoResponders: nobody answers requests on the subject.
	errNoResponders = errors.New("no responders")
	// errNoStream: there is no stream of this name.
	errNoStream = errors.New("no such stream")
)

// Bus is what preempting needs of NATS: one question, and one durable write. Everything that a unit
// test has to fake to see a whole preemption goes through these two methods and those of Records.
type Bus interface {
	// Request asks and waits for one answer, until the context ends. errNoResponders and errNotSent come at once.
	Request(ctx context.Context, subject string, data []byte) ([]byte, error)
	// Publish stores a message where its subject's last sequence is the expected one (0: none), and
	// gives its sequence. A repetition with the same id is stored once.
	Publish(ctx context.Context, subject, id string, expectedLast uint64, data []byte) (uint64, error)
}

// Records is the reading side: what the streams hold, and the counter that stands in for a Lease.
type Records interface {
	// Last is a subject's last message; found is false where there is none.
	Last(ctx context.Context, stream, subject string) (record record, found bool, err error)
	// Follow calls take for each message of a stream stored since a time, in order, and never returns
	// before the context ends.
	Follow(ctx context.Context, stream, subjects string, since time.Time, take func(record))
	// NextEpoch counts a key of a bucket up and gives the new number.
	NextEpoch(ctx context.Context, bucket, key string) (int64, error)
}

// record is one stored message. stream is when the stream that holds it was made, where it is told by Follow.
type record struct {
	subject  string
	stream   time.Time
	sequence uint64
	data     []byte
}

// natsBus is a Bus and Records on a NATS server. It connects in the background, so that a scheduler
// starts and schedules without one, and reconnects for ever. Requests, which scheduling cycles wait for, have a
// connection of their own, on which nothing else comes: see attention.
type natsBus struct {
	conn      atomic.Pointer[connected] // nil while it does not stand
	requests  atomic.Pointer[nats.Conn] // as above
	attention attention
}

type connected struct {
	nc *nats.Conn
	js jetstream.JetStream
}

// Times of a NATS connection.
const (
	natsConnectTimeout = 2 * time.Second
	natsReconnectWait  = 250 * time.Millisecond
	natsPingInterval   = 5 * time.Second
	natsCallTimeout    = 2 * time.Second
	natsHeartbeat      = 2 * time.Second
	natsRetryDelay     = time.Second
	natsWatchdog       = 10 * time.Second
	natsInactive       = 30 * time.Second // after which the server forgets a follower's consumer
)

// connectNATS returns at once. Until the first connections stand, every call gives errNotSent. They are
// closed when the context ends.
func connectNATS(ctx context.Context, args *MakeWayArgs, identity string) *natsBus {
	bus := &natsBus{attention: attention{dialer: net.Dialer{Timeout: natsConnectTimeout}}}
	name := "makeway-scheduler " + identity
	keepConnected(ctx, args, name, func(nc *nats.Conn) {
		if nc == nil {
			bus.conn.Store(nil)
			return
		}
		js, _ := jetstream.New(nc) // only options can be wrong
		bus.conn.Store(&connected{nc: nc, js: js})
	})
	keepConnected(ctx, args, name+" requests", bus.requests.Store, nats.SetCustomDialer(&bus.attention))
	return bus
}

// options make the client verify and show certificates; none where no file is named. It reads the files at each
// connection, so that renewed ones count.
func (f TLSFiles) options() []nats.Option {
	if f == (TLSFiles{}) {
		return nil
	}
	options := []nats.Option{nats.Secure()}
	if f.CAFile != "" {
		options = append(options, nats.RootCAs(f.CAFile))
	}
	if f.CertFile != "" {
		options = append(options, nats.ClientCert(f.CertFile, f.KeyFile))
	}
	return options
}

// keepConnected keeps one connection in the background, and tells of it whenever it stands, and nil when it does not any
// more. The client reconnects by itself; where it closes the connection for good, for an error of the server that it does
// not know, another one is made. stands must not wait: what the client itself knows of its state can be read only under a
// lock that it keeps for seconds while it reconnects.
func keepConnected(ctx context.Context, args *MakeWayArgs, name string, stands func(*nats.Conn), more ...nats.Option) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "connection", name)
	options := append([]nats.Option{
		nats.Name(name),
		nats.CustomInboxPrefix(wire.Inbox),
		nats.Timeout(natsConnectTimeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(natsReconnectWait),
		// The dialer looks the host up itself, and tries all its addresses, within its time-out; the client's own look-up
		// has none.
		nats.SkipHostLookup(),
		// Credentials that are refused twice may be renewed later.
		nats.IgnoreAuthErrorAbort(),
		// Without a buffer a publish fails at once while disconnected. With one it would be replayed
		// late, after the plugin has given the order up.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(natsPingInterval),
		nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			logger.Error(err, "nats_error")
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			stands(nil)
			logger.Info("nats_disconnected", "reason", errorText(err))
		}),
		nats.ConnectHandler(func(nc *nats.Conn) {
			stands(nc)
			logger.Info("nats_connected", "server", nc.ConnectedUrlRedacted())
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			stands(nc)
			logger.Info("nats_reconnected", "server", nc.ConnectedUrlRedacted())
		}),
	}, more...)
	if args.CredentialsFile != "" {
		options = append(options, nats.UserCredentials(args.CredentialsFile))
	}
	options = append(options, args.TLS.options()...)
	// The first attempt blocks until a server answers or the time-out is over: not in the scheduler's start.
	goroutines.KeepRunning(ctx, "follow", func(ctx context.Context) {
		for ctx.Err() == nil {
			if err := connectOnce(ctx, args.NATSURL, stands, options); err != nil {
				logger.Error(err, "nats_connect_failed")
			}
			goroutines.Sleep(ctx, natsRetryDelay)
		}
	})
}

// connectOnce makes a connection, and returns when it is closed for good, or the context has ended.
func connectOnce(ctx context.Context, url string, stands func(*nats.Conn), options []nats.Option) error {
	open, closed := context.WithCancel(ctx)
	defer closed()
	nc, err := nats.Connect(url, slices.Concat(options, []nats.Option{nats.ClosedHandler(func(*nats.Conn) {
		stands(nil)
		closed()
	})})...)
	if err != nil {
		return err
	}
	defer nc.Close()
	<-open.Done()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the connection was closed: %s", errorText(nc.LastError()))
}

// Request implements Bus. The client may wait, whatever the context says: for its lock while it reconnects, or for a
// full socket. So it is called in a goroutine, which may outlast the request. These are few: where the connection does not
// stand none is started, and each one that outlasts its request is a failure, after a few of which the breaker keeps
// further ones seconds apart.
func (b *natsBus) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	nc := b.requests.Load()
	if nc == nil {
		return nil, fmt.Errorf("%w: not connected to NATS", errNotSent)
	}
	defer b.attention.pay(ctx)()
	var reply *nats.Msg
	var err error
	answered := make(chan struct{}) // closed once these are set
	goroutines.GoRecovered(ctx, "post_filter", func(ctx context.Context) {
		reply, err = nc.RequestWithContext(ctx, subject, data)
		close(answered)
	})
	select {
	case <-answered:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, errNoResponders
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrMaxPayload):
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	case err != nil:
		return nil, err
	}
	return reply.Data, nil
}

// Publish implements Bus.
func (b *natsBus) Publish(ctx context.Context, subject, id string, expectedLast uint64, data []byte) (uint64, error) {
	c := b.conn.Load()
	if c == nil {
		return 0, fmt.Errorf("%w: not connected to NATS", errNotSent)
	}
	ack, err := c.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data},
		jetstream.WithMsgID(id), jetstream.WithExpectLastSequencePerSubject(expectedLast), jetstream.WithRetryAttempts(0))
	var api *jetstream.APIError
	switch {
	case err == nil:
		return ack.Sequence, nil
	case errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
		return 0, fmt.Errorf("%w: %w", errConflict, err)
	case errors.As(err, &api), errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders),
		errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrMaxPayload):
		return 0, fmt.Errorf("%w: %w", errNotSent, err)
	}
	return 0, err
}

// Last implements Records.
func (b *natsBus) Last(ctx context.Context, stream, subject string) (record, bool, error) {
	c := b.conn.Load()
	if c == nil {
		return record{}, false, fmt.Errorf("%w: not connected to NATS", errNotSent)
	}
	handle, err := c.js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return record{}, false, fmt.Errorf("%w: %s", errNoStream, stream)
	}
	if err != nil {
		return record{}, false, fmt.Errorf("stream %s: %w", stream, err)
	}
	message, err := handle.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return record{}, false, nil
	}
	if err != nil {
		return record{}, false, fmt.Errorf("last message of %s: %w", subject, err)
	}
	return record{subject: message.Subject, sequence: message.Sequence, data: message.Data}, true, nil
}

// NextEpoch implements Records.
func (b *natsBus) NextEpoch(ctx context.Context, bucket, key string) (int64, error) {
	c := b.conn.Load()
	if c == nil {
		return 0, fmt.Errorf("%w: not connected to NATS", errNotSent)
	}
	kv, err := c.js.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = c.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: bucket, Description: "Fencing epochs of schedulers without leader election",
			Storage: jetstream.FileStorage, MaxValueSize: 32,
		})
	}
	if err != nil {
		return 0, fmt.Errorf("bucket %s: %w", bucket, err)
	}
	for {
		entry, err := kv.Get(ctx, key)
		var epoch int64
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			epoch = 1
			_, err = kv.Create(ctx, key, []byte("1"))
		case err == nil:
			last, parseErr := strconv.ParseInt(string(entry.Value()), 10, 64)
			if parseErr != nil {
				return 0, fmt.Errorf("key %s of bucket %s: %w", key, bucket, parseErr)
			}
			epoch = last + 1
			_, err = kv.Update(ctx, key, strconv.AppendInt(nil, epoch, 10), entry.Revision())
		}
		if err == nil {
			return epoch, nil
		}
		var api *jetstream.APIError
		conflict := errors.Is(err, jetstream.ErrKeyExists) ||
			(errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence)
		if !conflict || ctx.Err() != nil {
			return 0, fmt.Errorf("key %s of bucket %s: %w", key, bucket, err)
		}
	}
}

// Follow implements Records. An ordered consumer resets itself after gaps and lost heartbeats, but a
// change of the stream's leader can stall one for good (nats-server#2063). So the consumer is built
// anew, from the sequence after the last one taken, whenever it reports an error or the stream is ahead
// of it for a while; and from the start where the stream was made anew.
func (b *natsBus) Follow(ctx context.Context, stream, subjects string, since time.Time, take func(record)) {
	logger := klog.FromContext(ctx)
	var last atomic.Uint64
	var created time.Time // of the stream that last counts in
	for ctx.Err() == nil {
		c := b.conn.Load()
		if c == nil {
			goroutines.Sleep(ctx, natsReconnectWait)
			continue
		}
		if err := b.followOnce(ctx, c.js, stream, subjects, since, &created, &last, take); err != nil && ctx.Err() == nil {
			logger.V(2).Info("nats_follow_restarted", "stream", stream, "sequence", last.Load(), "reason", err.Error())
			goroutines.Sleep(ctx, natsRetryDelay)
		}
	}
}

// followOnce follows with one consumer until the context ends or the consumer is no good any more.
func (b *natsBus) followOnce(ctx context.Context, js jetstream.JetStream, stream, subjects string, since time.Time, created *time.Time, last *atomic.Uint64, take func(record)) error {
	setup, cancel := context.WithTimeout(ctx, natsCallTimeout)
	defer cancel()
	handle, err := js.Stream(setup, stream)
	if err != nil {
		return err
	}
	if info := handle.CachedInfo(); info.State.LastSeq < last.Load() || !info.Created.Equal(*created) {
		*created = info.Created
		last.Store(0)
	}
	config := jetstream.OrderedConsumerConfig{FilterSubjects: []string{subjects}, InactiveThreshold: natsInactive}
	if seen := last.Load(); seen > 0 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, seen+1
	} else {
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	}
	consumer, err := handle.OrderedConsumer(setup, config)
	if err != nil {
		return err
	}
	madeAt := *created
	broken := make(chan error, 1)
	consuming, err := consumer.Consume(func(message jetstream.Msg) {
		defer goroutines.RecoverPanic(ctx, "follow", nil)
		meta, err := message.Metadata()
		if err != nil || meta.Sequence.Stream <= last.Load() {
			return
		}
		last.Store(meta.Sequence.Stream)
		take(record{subject: message.Subject(), stream: madeAt, sequence: meta.Sequence.Stream, data: message.Data()})
	}, jetstream.PullHeartbeat(natsHeartbeat), jetstream.PullExpiry(4*natsHeartbeat), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		select {
		case broken <- err:
		default:
		}
	}))
	if err != nil {
		return err
	}
	// A callback of a stopped consumer may still run: what it takes a second time does no harm.
	defer consuming.Stop()

	watchdog := time.NewTicker(natsWatchdog)
	defer watchdog.Stop()
	stalledAt := uint64(0) // one more than where the follower stood when it was last found behind
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-broken:
			return err
		case <-watchdog.C:
			if stalledAt, err = b.look(ctx, handle, *created, consumer, last.Load(), stalledAt); err != nil {
				return err
			}
		}
	}
}

// look is the watchdog: it finds a stream made anew, a consumer that is gone, and one that has messages
// to deliver and has not delivered any since the last look.
func (b *natsBus) look(ctx context.Context, stream jetstream.Stream, created time.Time, consumer jetstream.Consumer, seen, stalledAt uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, natsCallTimeout)
	defer cancel()
	streamInfo, err := stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	if !streamInfo.Created.Equal(created) {
		return 0, errors.New("the stream was made anew")
	}
	if streamInfo.State.LastSeq < seen {
		return 0, fmt.Errorf("the stream ends at %d, before %d", streamInfo.State.LastSeq, seen)
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		return 0, err
	}
	if info.NumPending == 0 {
		return 0, nil
	}
	if stalledAt == seen+1 {
		return 0, fmt.Errorf("stalled at %d with %d messages to come", seen, info.NumPending)
	}
	return seen + 1, nil
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// subjectsOf are the names under the checked prefix of the arguments.
func subjectsOf(args *MakeWayArgs) wire.Subjects {
	subjects, err := wire.NewSubjects(args.SubjectPrefix)
	if err != nil {
		panic(err) // check has refused it
	}
	return subjects
}
