package plugin

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/orders"
)

// NATS may lose what it has acknowledged: its disk is wiped, or a server loses power before it has
// written. An outcome that was not followed would leave its preemptor waiting until notAfter. So the
// scheduler looks up the outcome of each order that has had none for a while.
const (
	// reconcileAtOnce bounds a round; the oldest orders come first.
	reconcileAtOnce = 100
)

// runReconcile looks unanswered orders up until the context ends. Every replica does.
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
		outcome, ended, err := e.store.LookUp(ctx, order.OrderID)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("order_not_looked_up", "order_id", order.OrderID, "reason", err.Error())
			return
		}
		if ended {
			e.takeOutcome(e.life, outcome)
		}
	}
}
