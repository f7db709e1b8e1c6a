// Package streams is what a scheduler reads and writes in NATS' streams: eviction orders, stored as one writer of many, and their outcomes;
// the signatures by which messages count; and the fence that tells which scheduler may write.
package streams

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/failpoints"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// OrderLivesError says that the stream holds an order for the same preemptor that another process wrote.
type OrderLivesError struct{ Stored natsbus.Record }

func (*OrderLivesError) Error() string { return "the stream holds another order for this pod" }

// Store is the orders of this cluster in NATS: what is live there, what has ended, and one writer of many. Safe for concurrent use.
type Store struct {
	Bus        Bus
	Records    Records
	Subjects   wire.Subjects
	Signatures *Signatures
	InFlight   *orders.InFlight
	Clock      clock.PassiveClock
}

// Publish stores the order, as the one live order of its preemptor. Where it cannot be known whether it
// is stored, it is repeated with the same id and expected sequence, and then read back until that is
// known or the order's time is over.
func (s *Store) Publish(ctx context.Context, order *wire.EvictionOrder) (uint64, error) {
	subject := s.SubjectOf(order)
	order.NameOnce()
	data, err := wire.WrapOrder(order, order.Writer, func(envelope *wire.Envelope) error { return s.Signatures.Sign(envelope, subject) })
	if err != nil {
		return 0, Unstored(err)
	}
	expected, err := s.expectedSequence(ctx, subject)
	if err != nil {
		return 0, err
	}
	if err := s.InFlight.Publishing(order.OrderID, data); err != nil {
		return 0, err
	}
	ambiguous := false
	for range orders.PublishAttempts {
		attempt, cancel := context.WithTimeout(ctx, orders.PublishTimeout)
		sequence, err := s.Bus.Publish(attempt, subject, order.OrderID, expected, data)
		cancel()
		switch {
		case err == nil:
			failpoints.At(failpoints.AfterPublish)
			return sequence, nil
		case errors.Is(err, natsbus.ErrNotSent) && !ambiguous:
			return 0, Unstored(err)
		case errors.Is(err, natsbus.ErrConflict):
			// Another writer was first, or an earlier attempt of this one has arrived.
			return s.readBack(ctx, order, subject)
		case errors.Is(err, natsbus.ErrNotSent):
			// An earlier attempt may still be agreed on among the servers: only time tells.
			goroutines.Sleep(ctx, orders.ReadBackDelay)
		}
		ambiguous = true
		klog.FromContext(ctx).Info("order_publish_ambiguous", "order_id", order.OrderID, "reason", err.Error())
	}
	return s.readBack(ctx, order, subject)
}

// expectedSequence is the sequence of the subject's last order, 0 where there is none. It refuses to
// supersede an order that is alive.
func (s *Store) expectedSequence(ctx context.Context, subject string) (uint64, error) {
	call, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	last, found, err := s.Records.Last(call, s.Subjects.OrdersStream, subject)
	if err != nil {
		return 0, Unstored(err)
	}
	if !found {
		return 0, nil
	}
	previous, err := s.Signatures.UnwrapOrder(last.Data, subject)
	if err != nil {
		// No evictor can carry out what it cannot read, nor does what is not signed.
		return last.Sequence, nil
	}
	if s.SubjectOf(previous) != subject {
		// Evictors put an order on another's subject aside, without an outcome.
		return last.Sequence, nil
	}
	if !s.Clock.Now().Before(previous.NotAfter.Add(orders.GateSlack)) || s.InFlight.Outcome(previous.OrderID) != nil {
		return last.Sequence, nil
	}
	_, done, err := s.lastOutcome(call, previous.OrderID)
	if err != nil && done {
		return last.Sequence, nil // of a version that this process does not know
	}
	if err != nil {
		return 0, Unstored(err)
	}
	if !done {
		return 0, &OrderLivesError{Stored: last}
	}
	return last.Sequence, nil
}

// readBack finds out whether the order is stored. It asks until it gets an answer, or until the order's
// time is over, when it does not matter any more.
func (s *Store) readBack(ctx context.Context, order *wire.EvictionOrder, subject string) (uint64, error) {
	for {
		call, cancel := context.WithTimeout(ctx, CallTimeout)
		last, found, err := s.Records.Last(call, s.Subjects.OrdersStream, subject)
		cancel()
		if err == nil {
			if !found {
				return 0, Unstored(errors.New("it is not in the stream"))
			}
			stored, err := s.Signatures.UnwrapOrder(last.Data, subject)
			switch {
			case err == nil && stored.OrderID == order.OrderID:
				return last.Sequence, nil
			case unverified(err):
				return 0, Unstored(err)
			}
			return 0, &OrderLivesError{Stored: last}
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if !s.Clock.Now().Before(order.NotAfter.Add(orders.GateSlack)) {
			return 0, Unstored(fmt.Errorf("it cannot be known whether it was stored: %w", err))
		}
		goroutines.Sleep(ctx, orders.ReadBackDelay)
	}
}

// SubjectOf is where an order belongs: one live one a preemptor. It is empty for one that names none.
func (s *Store) SubjectOf(order *wire.EvictionOrder) string {
	uid := order.PreemptorUID()
	switch {
	case uid == "" || order.Kind == wire.KindQuota:
		return ""
	case order.Kind == wire.KindGroup:
		return s.Subjects.GroupOrder(uid)
	}
	return s.Subjects.PodOrder(uid)
}

// NotStoredError is the reason why an order is not in the stream, where that says something of the stream.
type NotStoredError struct{ error }

func (e *NotStoredError) Unwrap() error { return e.error }

func Unstored(err error) error { return &NotStoredError{fmt.Errorf("store the order: %w", err)} }

// StoredOrderLives reports whether a pod's last order in the stream, which this process may not have read yet, makes room
// or keeps it. In doubt it does.
func (s *Store) StoredOrderLives(ctx context.Context, uid types.UID) bool {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	subject := s.Subjects.PodOrder(string(uid))
	stored, found, err := s.Records.Last(ctx, s.Subjects.OrdersStream, subject)
	if err != nil || !found {
		return err != nil
	}
	order, err := s.Signatures.UnwrapOrder(stored.Data, subject)
	if err != nil {
		return !unverified(err)
	}
	outcome, found, err := s.lastOutcome(ctx, order.OrderID)
	switch {
	case err != nil:
		return true
	case !found:
		return s.Clock.Now().Before(order.NotAfter.Add(orders.GateSlack))
	}
	now := s.Clock.Now()
	return outcome.Result == wire.ResultSucceeded && now.Before(orders.LeavingUntil(outcome, orders.Earlier(outcome.FinishedAt.Time, now)))
}

// lastOutcome is an order's outcome. One whose signature does not hold is none; one that cannot be read is found, and an
// error.
func (s *Store) lastOutcome(ctx context.Context, orderID string) (outcome *wire.Outcome, found bool, err error) {
	subject := s.Subjects.Outcome(orderID)
	stored, found, err := s.Records.Last(ctx, s.Subjects.OutcomesStream, subject)
	if err != nil || !found {
		return nil, false, err
	}
	outcome, err = s.Signatures.UnwrapOutcome(stored.Data, subject)
	if unverified(err) {
		return nil, false, nil
	}
	return outcome, true, err
}

// LookUp finds out what became of an order: where it has ended, the outcome is returned; where it is
// lost, it is published again as it was. Its id, victims and notAfter are the same, so that an evictor
// that still has it in hand does nothing twice.
func (s *Store) LookUp(ctx context.Context, order orders.Unanswered) (outcome natsbus.Record, ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	outcome, ended, err = s.Records.Last(ctx, s.Subjects.OutcomesStream, s.Subjects.Outcome(order.OrderID))
	if err != nil {
		return outcome, false, fmt.Errorf("its outcome: %w", err)
	}
	if ended {
		return outcome, true, nil
	}
	subject := s.Subjects.GroupOrder(order.PreemptorUID)
	if !order.Group {
		return outcome, false, nil // the planner stores it again
	}
	if _, stored, err := s.Records.Last(ctx, s.Subjects.OrdersStream, subject); err != nil || stored {
		return outcome, false, err
	}
	sequence, err := s.Bus.Publish(order.Span.In(ctx), subject, order.OrderID, 0, order.Message)
	if errors.Is(err, natsbus.ErrConflict) {
		return outcome, false, nil // another replica was first
	}
	if err != nil {
		return outcome, false, fmt.Errorf("publish again: %w", err)
	}
	ordersRepublished.Inc()
	klog.FromContext(ctx).Info("order_published_again", "pod_uid", order.PreemptorUID, "order_id", order.OrderID, "sequence", sequence,
		"reason", "the stream had lost it")
	return outcome, false, nil
}
