// Package memory is what earlier attempts of preemptors, and the orders that came of them, have left behind: who is tried again and when,
// and whether orders are carried out at all. On which nodes orders failed, and for which victims, is the planner's to remember. It calls nothing of the
// scheduler: callers tell it what happened, and ask.
package memory

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/wire"
)

// Memory is what earlier attempts of preemptors, and the orders that came of them, have left behind. Safe for concurrent use.
type Memory struct {
	clock      clock.PassiveClock
	Retries    *Retries
	Reverted   *Reverted          // nominations
	Delays     *Delays            // of PriorityClasses
	Orders     *OrderBreaker      // of all orders
	Namespaces *NamespaceBreakers // of single namespaces
}

// New makes one that is empty. find returns a pod as the informer has it, nil where it is gone; notAfter is that of orders.
func New(clock clock.PassiveClock, notAfter time.Duration, find func(wire.PodRef) *v1.Pod) *Memory {
	return &Memory{
		clock: clock, Retries: NewRetries(clock, find), Reverted: newReverted(),
		Delays: newDelays(), Orders: newOrderBreaker(clock, notAfter), Namespaces: newNamespaceBreakers(clock, notAfter),
	}
}

// Forget drops what is known of a pod as a preemptor, or of a pod group: it is bound or gone.
func (m *Memory) Forget(uid types.UID) {
	m.Retries.forget(uid)
	m.Reverted.Forget(uid)
	m.Delays.forget(uid)
}

// OrdersHeldBack reports why no order may be begun for a preemptor's namespace now, and when one may; empty where one may.
func (m *Memory) OrdersHeldBack(namespace string) (why Futility, until time.Time) {
	if why, until = m.Orders.isOpen(); why != "" {
		return why, until
	}
	return m.Namespaces.isOpen(namespace)
}

// EvictorsRefuse reports why nothing is evicted for a preemptor's namespace, without a plan neither: the evictors' breaker
// is open, as far as orders that they refused tell; empty where it is not. One for a namespace closes by itself.
func (m *Memory) EvictorsRefuse(namespace string) Futility {
	if _, why := m.Orders.State(); why == RefusedForAll {
		return why
	}
	if b := m.Namespaces.of(namespace); b != nil && m.clock.Since(b.refusedLast()) < shutForgotten {
		_, why := b.State()
		return why
	}
	return ""
}

// OrderBegins notes that an order is begun.
func (m *Memory) OrderBegins(namespace, orderID string) {
	m.Orders.begin(orderID)
	m.Namespaces.begin(namespace, orderID)
}

// OrderUndecided notes an order whose end says nothing of the evictors.
func (m *Memory) OrderUndecided(orderID string) {
	m.Orders.Undecided(orderID)
	m.Namespaces.Undecided(orderID)
}
