package plugin

import (
	"context"

	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// refusedByBreaker takes in that an order of this process came to nothing, for which the evictors' breaker may be why. The namespace
// is the order's own, not the outcome's.
func (e *engine) refusedByBreaker(ctx context.Context, failed orders.Activation, outcome *wire.Outcome) {
	switch {
	case failed.Own && outcome.Reason == reasonBreakerOpen:
		e.memory.Namespaces.Undecided(outcome.OrderID)
		e.futile(ctx, outcome.OrderID, memory.RefusedForAll)
	case failed.Own && outcome.Reason == reasonBreakerOpenNamespace:
		futileTotal.WithLabelValues(string(memory.RefusedForNamespace)).Inc()
		e.memory.Orders.Undecided(outcome.OrderID)
		e.memory.Namespaces.Refused(failed.Pod.Namespace, outcome.OrderID)
	default:
		e.memory.OrderUndecided(outcome.OrderID)
	}
}

// tellsOfBreaker takes in what a fresh outcome, of whichever order, says of the evictors' breaker. Only what an evictor
// decides after it has looked at its breaker counts: a pod's author can have an order cancelled or fail at any time, and
// must not keep pods of others waiting.
func (e *engine) tellsOfBreaker(ctx context.Context, outcome *wire.Outcome) {
	carriedOut := outcome.Result == wire.ResultSucceeded
	closed := (carriedOut || outcome.Reason == reasonBreakerOpenNamespace) && e.memory.Orders.CarriedOut()
	if carriedOut {
		if preemptor, _, known := e.inflight.NominationsOf(outcome.OrderID); known && e.memory.Namespaces.CarriedOut(preemptor.Namespace) {
			closed = true
		}
	}
	if closed {
		e.ordersCarried(ctx)
	}
}
