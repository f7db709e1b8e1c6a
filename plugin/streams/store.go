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

// StoredOrderLives reports whether a pod's last order in the stream, which this process may not have read yet, may still make room for it.
// In doubt it does. One that has failed the evictor has rolled back, and one that has succeeded is known once it is read.
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
	return s.Clock.Now().Before(order.NotAfter.Add(orders.GateSlack))
}
