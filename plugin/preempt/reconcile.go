package preempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/tracing"
)

// NATS may lose what it has acknowledged: its disk is wiped, or a server loses power before it has
// written. An order that was lost has no evictor, and its preemptor would wait until notAfter. So the
// scheduler looks up each order that has had no outcome for a while. It does not matter how the order
// was lost, nor whether it was noticed.
const (
	// unansweredAfter is how long an order may have no outcome before it is looked up. Most take well
	// under a second.
	unansweredAfter = 3 * time.Second
	// reconcileEvery is the time between two rounds.
	reconcileEvery = 2 * time.Second
	// reconcileAtOnce bounds a round; the oldest orders come first.
	reconcileAtOnce = 100
)

// unanswered is an order in the stream whose outcome has not been read.
type unanswered struct {
	orderID      string
	preemptorUID string
	group        bool // the preemptor is a PodGroup
	createdAt    time.Time
	message      []byte // as it was stored
	span         tracing.Span
}

// unanswered returns committed orders that were made before a time and whose end is not due yet, oldest first.
func (f *inflight) unanswered(before, now time.Time) []unanswered {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var orders []unanswered
	for uid, e := range f.byPod {
		// The last of gateSlack is left out: an evictor begins nothing after notAfter.
		if !e.phase.stored() || !e.createdAt.Before(before) || !now.Before(e.opensAt.Add(-gateSlack)) {
			continue
		}
		orders = append(orders, unanswered{orderID: e.orderID, preemptorUID: string(uid), group: e.isGroup(), createdAt: e.createdAt, message: e.message, span: e.span})
	}
	slices.SortFunc(orders, func(a, b unanswered) int {
		if order := a.createdAt.Compare(b.createdAt); order != 0 {
			return order
		}
		return strings.Compare(a.orderID, b.orderID)
	})
	return orders
}

// runReconcile looks unanswered orders up until the context ends. Every replica does: publishing is
// compare-and-set, so that an order is stored once whoever finds it missing.
func (e *engine) runReconcile(ctx context.Context) {
	for ctx.Err() == nil {
		goroutines.Sleep(ctx, reconcileEvery)
		e.lookForMembers(ctx)
		e.reconcile(ctx)
	}
}

// reconcile is one round. It ends at the first call that fails: NATS is not back yet.
func (e *engine) reconcile(ctx context.Context) {
	now := e.clock.Now()
	orders := e.inflight.unanswered(now.Add(-unansweredAfter), now)
	for _, order := range orders[:min(len(orders), reconcileAtOnce)] {
		if err := e.readOutcome(ctx, order); err != nil {
			klog.FromContext(ctx).V(2).Info("order_not_looked_up", "order_id", order.orderID, "reason", err.Error())
			return
		}
	}
}

// readOutcome finds out what became of an order: where it has ended, the outcome is applied; where it is
// lost, it is published again as it was. Its id, victims and notAfter are the same, so that an evictor
// that still has it in hand does nothing twice.
func (e *engine) readOutcome(ctx context.Context, order unanswered) error {
	ctx, cancel := context.WithTimeout(ctx, natsCallTimeout)
	defer cancel()
	outcome, ended, err := e.records.Last(ctx, e.subjects.OutcomesStream, e.subjects.Outcome(order.orderID))
	if err != nil {
		return fmt.Errorf("its outcome: %w", err)
	}
	if ended {
		e.takeOutcome(e.life, outcome)
		return nil
	}
	subject := e.subjects.PodOrder(order.preemptorUID)
	if order.group {
		subject = e.subjects.GroupOrder(order.preemptorUID)
	}
	if _, stored, err := e.records.Last(ctx, e.subjects.OrdersStream, subject); err != nil || stored {
		return err
	}
	sequence, err := e.bus.Publish(order.span.In(ctx), subject, order.orderID, 0, order.message)
	if errors.Is(err, natsbus.ErrConflict) {
		return nil // another replica was first
	}
	if err != nil {
		return fmt.Errorf("publish again: %w", err)
	}
	ordersRepublished.Inc()
	klog.FromContext(ctx).Info("order_published_again", "pod_uid", order.preemptorUID, "order_id", order.orderID, "sequence", sequence,
		"reason", "the stream had lost it")
	return nil
}

// publishing notes the message of an order that is about to be published, to be published again where
// the stream loses it. From then on it may be in the stream, whatever becomes of its pod. It returns
// errPodGone where the order has been forgotten, and errAwaitedOrderFailed where it has been given up: it must not be published
// any more.
func (f *inflight) publishing(orderID string, message []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.get(orderID)
	if e == nil {
		return errPodGone
	}
	if !f.happens(e, onStoring) {
		return errAwaitedOrderFailed
	}
	e.message = message
	return nil
}
