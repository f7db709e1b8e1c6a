package preempt

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

const (
	// maxShutNamespaces bounds the namespaces for which refused orders are counted; those of further ones are not.
	maxShutNamespaces = 1000
	// shutForgotten is how long after its last refusal a namespace is forgotten where there are too many: the evictors'
	// breaker is open that long for one.
	shutForgotten = 10 * time.Minute
)

// namespaceBreakers hold nominations back for preemptors of single namespaces, whose orders evictors refuse while they carry
// out those of others. Bounded; safe for concurrent use.
type namespaceBreakers struct {
	clock    clock.PassiveClock
	notAfter time.Duration

	mu sync.Mutex
	by map[string]*orderBreaker
}

func newNamespaceBreakers(clock clock.PassiveClock, notAfter time.Duration) *namespaceBreakers {
	return &namespaceBreakers{clock: clock, notAfter: notAfter, by: map[string]*orderBreaker{}}
}

// of is the breaker of a namespace, nil where no order was refused for it.
func (n *namespaceBreakers) of(namespace string) *orderBreaker {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.by[namespace]
}

// isOpen reports why no order may be begun for a namespace now, and when one may; empty where one may.
func (n *namespaceBreakers) isOpen(namespace string) (why futility, until time.Time) {
	if b := n.of(namespace); b != nil {
		return b.isOpen()
	}
	return "", time.Time{}
}

// begin notes that an order is begun, which may be the probe of its namespace.
func (n *namespaceBreakers) begin(namespace, orderID string) {
	if b := n.of(namespace); b != nil {
		b.begin(orderID)
	}
}

// refused notes that evictors refused an order for the namespace of its preemptor.
func (n *namespaceBreakers) refused(namespace, orderID string) {
	n.mu.Lock()
	b := n.by[namespace]
	if b == nil && len(n.by) >= maxShutNamespaces {
		n.shrink()
	}
	if b == nil && len(n.by) < maxShutNamespaces {
		b = newOrderBreaker(n.clock, n.notAfter)
		n.by[namespace] = b
	}
	n.mu.Unlock()
	if b != nil {
		b.futile(orderID, refusedForNamespace)
	}
}

// shrink forgets namespaces whose last refusal is long ago. The lock is held. O(namespaces).
func (n *namespaceBreakers) shrink() {
	for namespace, b := range n.by {
		if n.clock.Since(b.refusedLast()) >= shutForgotten {
			delete(n.by, namespace)
		}
	}
}

// carriedOut notes that an order of a namespace was carried out. It reports whether that closes the breaker.
func (n *namespaceBreakers) carriedOut(namespace string) (closed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.by[namespace]
	if b == nil {
		return false
	}
	delete(n.by, namespace)
	state, _ := b.state()
	return state != ask.Closed
}

// undecided notes an order whose end says nothing of the evictors' breaker. O(namespaces).
func (n *namespaceBreakers) undecided(orderID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.by {
		b.undecided(orderID)
	}
}

// ordersHeldBack reports why no order may be begun for a preemptor's namespace now, and when one may; empty where one may.
func (e *engine) ordersHeldBack(namespace string) (why futility, until time.Time) {
	if why, until = e.orders.isOpen(); why != "" {
		return why, until
	}
	return e.perNamespace.isOpen(namespace)
}

// evictorsRefuse reports why nothing is evicted for a preemptor's namespace, without a plan neither: the evictors' breaker
// is open, as far as orders that they refused tell; empty where it is not. One for a namespace closes by itself.
func (e *engine) evictorsRefuse(namespace string) futility {
	if _, why := e.orders.state(); why == refusedForAll {
		return why
	}
	if b := e.perNamespace.of(namespace); b != nil && e.clock.Since(b.refusedLast()) < shutForgotten {
		_, why := b.state()
		return why
	}
	return ""
}

// orderBegins notes that an order is begun.
func (e *engine) orderBegins(namespace, orderID string) {
	e.orders.begin(orderID)
	e.perNamespace.begin(namespace, orderID)
}

// orderUndecided notes an order whose end says nothing of the evictors.
func (e *engine) orderUndecided(orderID string) {
	e.orders.undecided(orderID)
	e.perNamespace.undecided(orderID)
}

// refusedByBreaker takes in that an order of this process came to nothing, and reports whether the evictors' breaker is
// why: that says nothing of the pod or of its node. The namespace is the order's own, not the outcome's.
func (e *engine) refusedByBreaker(ctx context.Context, failed orders.Activation, outcome *wire.Outcome) bool {
	switch {
	case failed.Own && outcome.Reason == reasonBreakerOpen:
		e.perNamespace.undecided(outcome.OrderID)
		e.futile(ctx, outcome.OrderID, refusedForAll)
	case failed.Own && outcome.Reason == reasonBreakerOpenNamespace:
		futileTotal.WithLabelValues(string(refusedForNamespace)).Inc()
		e.orders.undecided(outcome.OrderID)
		e.perNamespace.refused(failed.Pod.Namespace, outcome.OrderID)
	default:
		e.orderUndecided(outcome.OrderID)
		return false
	}
	return true
}

// tellsOfBreaker takes in what a fresh outcome, of whichever order, says of the evictors' breaker. Only what an evictor
// decides after it has looked at its breaker counts: a pod's author can have an order cancelled or fail at any time, and
// must not keep pods of others waiting.
func (e *engine) tellsOfBreaker(ctx context.Context, outcome *wire.Outcome) {
	carriedOut := outcome.Result == wire.ResultSucceeded
	closed := (carriedOut || outcome.Reason == reasonBreakerOpenNamespace) && e.orders.carriedOut()
	if carriedOut {
		if preemptor, _, known := e.inflight.NominationsOf(outcome.OrderID); known && e.perNamespace.carriedOut(preemptor.Namespace) {
			closed = true
		}
	}
	if closed {
		e.ordersCarried(ctx)
	}
}
