package preempt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
)

// NATS may lose what it has acknowledged: its disk is wiped, or a server loses power before it has
// written. An order that was lost has no evictor, and its preemptor would wait until notAfter. So the
// scheduler looks up each order that has had no outcome for a while. It does not matter how the order
// was lost, nor whether it was noticed.
const (
	// reconcileAtOnce bounds a round; the oldest orders come first.
	reconcileAtOnce = 100
)

// runReconcile looks unanswered orders up until the context ends. Every replica does: publishing is
// compare-and-set, so that an order is stored once whoever finds it missing.
func (e *engine) runReconcile(ctx context.Context) {
	for ctx.Err() == nil {
		goroutines.Sleep(ctx, orders.ReconcileEvery)
		e.lookForMembers(ctx, e.clock.Now())
		e.reconcile(ctx, e.clock.Now())
	}
}

// reconcile is one round. It ends at the first call that fails: NATS is not back yet.
func (e *engine) reconcile(ctx context.Context, now time.Time) {
	orders := e.inflight.Unanswered(now.Add(-orders.UnansweredAfter), now)
	for _, order := range orders[:min(len(orders), reconcileAtOnce)] {
		if err := e.readOutcome(ctx, order); err != nil {
			klog.FromContext(ctx).V(2).Info("order_not_looked_up", "order_id", order.OrderID, "reason", err.Error())
			return
		}
	}
}

// readOutcome finds out what became of an order: where it has ended, the outcome is applied; where it is
// lost, it is published again as it was. Its id, victims and notAfter are the same, so that an evictor
// that still has it in hand does nothing twice.
func (e *engine) readOutcome(ctx context.Context, order orders.Unanswered) error {
	ctx, cancel := context.WithTimeout(ctx, natsCallTimeout)
	defer cancel()
	outcome, ended, err := e.records.Last(ctx, e.subjects.OutcomesStream, e.subjects.Outcome(order.OrderID))
	if err != nil {
		return fmt.Errorf("its outcome: %w", err)
	}
	if ended {
		e.takeOutcome(e.life, outcome)
		return nil
	}
	subject := e.subjects.PodOrder(order.PreemptorUID)
	if order.Group {
		subject = e.subjects.GroupOrder(order.PreemptorUID)
	}
	if _, stored, err := e.records.Last(ctx, e.subjects.OrdersStream, subject); err != nil || stored {
		return err
	}
	sequence, err := e.bus.Publish(order.Span.In(ctx), subject, order.OrderID, 0, order.Message)
	if errors.Is(err, natsbus.ErrConflict) {
		return nil // another replica was first
	}
	if err != nil {
		return fmt.Errorf("publish again: %w", err)
	}
	ordersRepublished.Inc()
	klog.FromContext(ctx).Info("order_published_again", "pod_uid", order.PreemptorUID, "order_id", order.OrderID, "sequence", sequence,
		"reason", "the stream had lost it")
	return nil
}
