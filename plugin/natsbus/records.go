package natsbus

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
)

// Last returns a subject's last message; found is false where there is none.
func (b *Bus) Last(ctx context.Context, stream, subject string) (message Record, found bool, err error) {
	c := b.conn.Load()
	if c == nil {
		return Record{}, false, errNotConnected
	}
	handle, err := c.js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return Record{}, false, fmt.Errorf("%w: %s", ErrNoStream, stream)
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("stream %s: %w", stream, err)
	}
	last, err := handle.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("last message of %s: %w", subject, err)
	}
	return Record{Subject: last.Subject, Stream: handle.CachedInfo().Created, Sequence: last.Sequence, Data: last.Data}, true, nil
}

// NextEpoch writes a key of a bucket anew and returns the sequence of that in the bucket: a number that is higher than any before, and no
// other caller's. The Python side of the same is `makeway.bus.streams.epochs`.
func (b *Bus) NextEpoch(ctx context.Context, bucket, key string) (int64, error) {
	c := b.conn.Load()
	if c == nil {
		return 0, errNotConnected
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
	epoch, err := kv.Put(ctx, key, nil)
	if err != nil {
		return 0, fmt.Errorf("key %s of bucket %s: %w", key, bucket, err)
	}
	return int64(epoch), nil
}

// errLost ends a consumer whose connection was lost. The client would reset it by itself, by a request as soon as it is
// connected again; where JetStream's servers are just choosing a leader, none answers, and it asks again 11 s later.
var errLost = errors.New("the connection was lost")

// Follow calls take for each message of a stream stored since a time, in order, and never returns before the context
// ends. An ordered consumer resets itself after gaps and lost heartbeats, but a change of the stream's leader can stall
// one for good (nats-server#2063). So the consumer is built anew, from the sequence after the last one taken, whenever it
// reports an error or the stream is ahead of it for a while; and from the start where the stream was made anew.
func (b *Bus) Follow(ctx context.Context, stream, subjects string, since time.Time, take func(Record)) {
	logger := klog.FromContext(ctx)
	var last atomic.Uint64
	var created time.Time // of the stream that last counts in
	for ctx.Err() == nil {
		c := b.conn.Load()
		if c == nil {
			goroutines.Sleep(ctx, reconnectWait)
			continue
		}
		err := b.followOnce(ctx, c, stream, subjects, since, &created, &last, take)
		if err == nil || ctx.Err() != nil {
			continue
		}
		logger.V(2).Info("nats_follow_restarted", "stream", stream, "sequence", last.Load(), "reason", err.Error())
		if !errors.Is(err, errLost) {
			goroutines.Sleep(ctx, retryDelay)
		}
	}
}

// followOnce follows with one consumer until the context ends or the consumer is no good any more.
func (b *Bus) followOnce(ctx context.Context, c *connected, stream, subjects string, since time.Time, created *time.Time, last *atomic.Uint64, take func(Record)) error {
	setup, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	handle, err := c.js.Stream(setup, stream)
	if err != nil {
		return err
	}
	if info := handle.CachedInfo(); info.State.LastSeq < last.Load() || !info.Created.Equal(*created) {
		*created = info.Created
		last.Store(0)
	}
	config := jetstream.OrderedConsumerConfig{FilterSubjects: []string{subjects}, InactiveThreshold: inactiveThreshold}
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
	var stopped atomic.Bool
	consuming, err := consumer.Consume(func(message jetstream.Msg) {
		defer goroutines.RecoverPanic(ctx, "follow", nil)
		if stopped.Load() {
			return
		}
		meta, err := message.Metadata()
		if err != nil || meta.Sequence.Stream <= last.Load() {
			return
		}
		last.Store(meta.Sequence.Stream)
		take(Record{Subject: message.Subject(), Stream: madeAt, Sequence: meta.Sequence.Stream, Data: message.Data()})
	}, jetstream.PullHeartbeat(heartbeat), jetstream.PullExpiry(4*heartbeat), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		select {
		case broken <- err:
		default:
		}
	}))
	if err != nil {
		return err
	}
	// A callback of a stopped consumer may still run: what it takes a second time does no harm. Stopping waits for a
	// consumer that is just being reset.
	defer goroutines.GoRecovered(ctx, "follow", func(context.Context) { consuming.Stop() })
	defer stopped.Store(true)

	watchdog := time.NewTicker(watchdogInterval)
	defer watchdog.Stop()
	stalledAt := uint64(0) // one more than where the follower stood when it was last found behind
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.lost:
			return errLost
		case err := <-broken:
			return err
		case <-watchdog.C:
			if stalledAt, err = b.poll(ctx, handle, *created, consumer, last.Load(), stalledAt); err != nil {
				return err
			}
		}
	}
}

// poll is the watchdog: it finds a stream made anew, a consumer that is gone, and one that has messages
// to deliver and has not delivered any since the last poll.
func (b *Bus) poll(ctx context.Context, stream jetstream.Stream, created time.Time, consumer jetstream.Consumer, seen, stalledAt uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	streamInfo, err := stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	if !streamInfo.Created.Equal(created) || streamInfo.State.LastSeq < seen {
		return 0, fmt.Errorf("the stream was made anew, or ends at %d, before %d", streamInfo.State.LastSeq, seen)
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
