package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// Times of a commit.
const (
	// commitTimeout is how long one question waits for its answer before it is asked again.
	commitTimeout = 2 * time.Second
	// commitAgain is between two questions where the first came to nothing at once.
	commitAgain = 250 * time.Millisecond
)

// mostSubjects bounds of how many preemptors it is kept how far their orders were read. A commit that names too early a message is refused,
// and that tells which is the last.
const mostSubjects = 1 << 16

// ErrUnanswered says that no planner has answered a commit in time: what has become of the order is not known here.
var ErrUnanswered = errors.New("no planner has answered in time")

// ErrTooLarge says that NATS carries no commit of this size.
var ErrTooLarge = errors.New("the commit is too large")

// Committer has the planner store orders. What is stored is the answer, whether a planner says it or it is read from the stream. Safe for
// concurrent use.
type Committer struct {
	Bus   Bus
	Clock clock.PassiveClock

	mu     sync.Mutex
	asking map[string]func(*wire.CommitReply) // by order: what takes its answer
	last   *lru.Cache                         // by subject, the sequence of its last message as far as it was read
}

// NewCommitter makes one that has asked nothing.
func NewCommitter(bus Bus, clock clock.PassiveClock) *Committer {
	return &Committer{Bus: bus, Clock: clock, asking: map[string]func(*wire.CommitReply){}, last: lru.New(mostSubjects)}
}

// Read notes a message of a subject, which the next order there is stored behind.
func (c *Committer) Read(subject string, sequence uint64) { c.last.Add(subject, sequence) }

// After is the sequence of the last message of a subject as far as it was read, 0 for none.
func (c *Committer) After(subject string) uint64 {
	last, _ := c.last.Get(subject)
	sequence, _ := last.(uint64)
	return sequence
}

// Heard takes in that an order, or a void of it, is in the stream.
func (c *Committer) Heard(order *wire.EvictionOrder) {
	reply := &wire.CommitReply{OrderID: order.OrderID, Order: order}
	if order.Void != nil {
		reply.Order, reply.Void = nil, order.Void
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if take := c.asking[order.OrderID]; take != nil {
		take(reply)
	}
}

// Ask has the order of a commit stored, and returns what is stored. It asks again with the same id until
// that is known, or until the order can be stored no more: then the error is ErrUnanswered. An error that wraps natsbus.ErrNotSent or
// ErrNoResponders says that no question was delivered.
func (c *Committer) Ask(ctx context.Context, question string, commit *wire.CommitRequest) (*wire.CommitReply, error) {
	asking, answered := context.WithCancel(ctx)
	defer answered()
	var heard atomic.Pointer[wire.CommitReply]
	c.mu.Lock()
	c.asking[commit.OrderID] = func(reply *wire.CommitReply) {
		heard.Store(reply)
		answered()
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.asking, commit.OrderID)
	}()
	data, err := wire.Encode(commit)
	if err != nil {
		return nil, Unstored(err)
	}
	if len(data) > wire.MaxBytes {
		return nil, fmt.Errorf("%w: it takes %d bytes, NATS carries at most %d", ErrTooLarge, len(data), wire.MaxBytes)
	}
	now := c.Clock.Now()
	until := now.Add(commit.StoreBy.Sub(wire.Steady(now)) + orders.AnsweredWithin)
	for delivered := false; heard.Load() == nil; delivered = true {
		left := until.Sub(c.Clock.Now())
		if left <= 0 {
			return nil, Unstored(ErrUnanswered)
		}
		reply, err := c.once(asking, question, commit.OrderID, data, min(left, commitTimeout))
		switch {
		case err == nil:
			return reply, nil
		case heard.Load() != nil: // which has ended the waiting
			continue
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !delivered && (errors.Is(err, natsbus.ErrNotSent) || errors.Is(err, natsbus.ErrNoResponders)):
			return nil, Unstored(err)
		}
		klog.FromContext(ctx).Info("commit_not_answered", "order_id", commit.OrderID, "reason", err.Error())
		goroutines.Sleep(asking, min(left, commitAgain))
	}
	return heard.Load(), nil
}

// once asks one time.
func (c *Committer) once(ctx context.Context, question, orderID string, data []byte, timeout time.Duration) (*wire.CommitReply, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	raw, err := c.Bus.Ask(ctx, question, data)
	if err != nil {
		return nil, err
	}
	reply, err := wire.DecodeVersioned[wire.CommitReply](raw)
	switch {
	case err != nil:
		return nil, err
	case reply.OrderID != orderID:
		return nil, fmt.Errorf("an answer to %q", reply.OrderID)
	case (reply.Order == nil) == (reply.Void == nil):
		return nil, errors.New("an answer with neither an order nor a void of it, or with both")
	}
	return reply, nil
}
