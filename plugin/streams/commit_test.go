package streams

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// silent is a NATS that takes every question, of which none is answered. Each moves the clock on.
type silent struct {
	Bus
	clock *clocktesting.FakeClock
	asked atomic.Int64
}

func (s *silent) Ask(_ context.Context, _ string, _ []byte) ([]byte, error) {
	s.clock.Step(3 * time.Second)
	if s.asked.Add(1) > 1 {
		return nil, natsbus.ErrNoResponders
	}
	return nil, errors.New("lost")
}

func TestACommitThatNobodyAnswersEndsByTheClockAlone(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	bus := &silent{clock: clock}
	c := NewCommitter(bus, clock)
	commit := &wire.CommitRequest{OrderID: "ord-1", StoreBy: wire.At(clock.Now().Add(orders.StoredWithin(1)))}

	_, err := c.Ask(context.Background(), "question", commit)

	var unstored *NotStoredError
	if !errors.Is(err, ErrUnanswered) || !errors.As(err, &unstored) {
		t.Errorf("error %v", err)
	}
	if bus.asked.Load() != 3 {
		t.Errorf("asked %d times", bus.asked.Load())
	}
}

func TestACommitWhoseOrderCanBeStoredNoMoreIsNotAsked(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	bus := &silent{clock: clock}
	commit := &wire.CommitRequest{OrderID: "ord-1", StoreBy: wire.At(clock.Now().Add(-orders.AnsweredWithin))}

	_, err := NewCommitter(bus, clock).Ask(context.Background(), "question", commit)

	if !errors.Is(err, ErrUnanswered) || bus.asked.Load() != 0 {
		t.Errorf("error %v, asked %d times", err, bus.asked.Load())
	}
}

func TestACommitThatNoMessageCarriesIsNotAskedAndSaysNothingOfTheStream(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	bus := &silent{clock: clock}
	commit := &wire.CommitRequest{OrderID: "ord-1", StoreBy: wire.At(clock.Now()), Offer: strings.Repeat("x", wire.MaxBytes)}

	_, err := NewCommitter(bus, clock).Ask(context.Background(), "question", commit)

	var unstored *NotStoredError
	if !errors.Is(err, ErrTooLarge) || errors.As(err, &unstored) || bus.asked.Load() != 0 {
		t.Errorf("error %v, asked %d times", err, bus.asked.Load())
	}
}

func TestACommitNamesTheMessageThatWasReadLast(t *testing.T) {
	c := NewCommitter(nil, clocktesting.NewFakeClock(time.Unix(1000, 0)))
	c.Read("a", 7)
	c.Read("a", 9)

	if c.After("a") != 9 || c.After("b") != 0 {
		t.Errorf("%d and %d", c.After("a"), c.After("b"))
	}
}
