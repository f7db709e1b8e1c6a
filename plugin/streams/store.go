// Package streams is what a scheduler reads in NATS' streams, and asks the planner to store there: eviction orders and their outcomes; the
// signatures by which messages count; and the fence that tells which scheduler may write.
package streams

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// OrderLivesError says that the stream holds an order for the same preemptor that another process wrote.
type OrderLivesError struct{ Stored natsbus.Record }

func (*OrderLivesError) Error() string { return "the stream holds another order for this pod" }

// Store is the orders of this cluster in NATS: what is live there, and what has ended. Safe for concurrent use.
type Store struct {
	Records    Records
	Subjects   wire.Subjects
	Signatures *Signatures
	Clock      clock.PassiveClock
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
	subject := s.Subjects.Order(wire.KindPod, string(uid))
	stored, found, err := s.Records.Last(ctx, s.Subjects.OrdersStream(), subject)
	if err != nil || !found {
		return err != nil
	}
	order, err := s.Signatures.UnwrapOrder(stored.Data, subject)
	if err != nil {
		return !unverified(err)
	}
	stored, ended, err := s.LookUp(ctx, order.OrderID)
	if err != nil {
		return true
	}
	now, outcome := s.Clock.Now(), (*wire.Outcome)(nil)
	if ended {
		outcome, err = s.Signatures.UnwrapOutcome(stored.Data, s.Subjects.Outcome(order.OrderID))
	}
	switch {
	case !ended, unverified(err): // an outcome whose signature does not hold is none
		return now.Before(order.NotAfter.Add(orders.GateSlack))
	case err != nil:
		return true
	}
	return outcome.Result == wire.ResultSucceeded && now.Before(orders.LeavingUntil(outcome, orders.Earlier(outcome.FinishedAt.Time, now)))
}

// LookUp finds out whether an order has ended, and returns its outcome then. One that the stream has lost the planner stores again.
func (s *Store) LookUp(ctx context.Context, orderID string) (outcome natsbus.Record, ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	outcome, ended, err = s.Records.Last(ctx, s.Subjects.OutcomesStream(), s.Subjects.Outcome(orderID))
	if err != nil {
		return outcome, false, fmt.Errorf("its outcome: %w", err)
	}
	return outcome, ended, nil
}
