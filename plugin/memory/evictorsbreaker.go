package memory

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/telemetry"
)

const (
	// maxShutNamespaces bounds the namespaces for which refused orders are counted; those of further ones are not.
	maxShutNamespaces = 1000
	// shutForgotten is how long after its last refusal a namespace is forgotten where there are too many: the evictors'
	// breaker is open that long for one.
	shutForgotten = 10 * time.Minute
)

// NamespaceBreakers hold nominations back for preemptors of single namespaces, whose orders evictors refuse while they carry
// out those of others. Bounded; safe for concurrent use.
type NamespaceBreakers struct {
	clock    clock.PassiveClock
	notAfter time.Duration

	mu sync.Mutex
	by map[string]*OrderBreaker
}

func newNamespaceBreakers(clock clock.PassiveClock, notAfter time.Duration) *NamespaceBreakers {
	return &NamespaceBreakers{clock: clock, notAfter: notAfter, by: map[string]*OrderBreaker{}}
}

// of is the breaker of a namespace, nil where no order was refused for it.
func (n *NamespaceBreakers) of(namespace string) *OrderBreaker {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.by[namespace]
}

// isOpen reports why no order may be begun for a namespace now, and when one may; empty where one may.
func (n *NamespaceBreakers) isOpen(namespace string) (why Futility, until time.Time) {
	if b := n.of(namespace); b != nil {
		return b.isOpen()
	}
	return "", time.Time{}
}

// begin notes that an order is begun, which may be the probe of its namespace.
func (n *NamespaceBreakers) begin(namespace, orderID string) {
	if b := n.of(namespace); b != nil {
		b.begin(orderID)
	}
}

// Refused notes that evictors refused an order for the namespace of its preemptor.
func (n *NamespaceBreakers) Refused(namespace, orderID string) {
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
		b.Futile(orderID, RefusedForNamespace)
	}
}

// shrink forgets namespaces whose last refusal is long ago. The lock is held. O(namespaces).
func (n *NamespaceBreakers) shrink() {
	for namespace, b := range n.by {
		if n.clock.Since(b.refusedLast()) >= shutForgotten {
			delete(n.by, namespace)
		}
	}
}

// CarriedOut notes that an order of a namespace was carried out. It reports whether that closes the breaker.
func (n *NamespaceBreakers) CarriedOut(namespace string) (closed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.by[namespace]
	if b == nil {
		return false
	}
	delete(n.by, namespace)
	state, _ := b.State()
	return state != telemetry.Closed
}

// Undecided notes an order whose end says nothing of the evictors' breaker. O(namespaces).
func (n *NamespaceBreakers) Undecided(orderID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.by {
		b.Undecided(orderID)
	}
}
