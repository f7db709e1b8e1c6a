package orders

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

// Outcome is the remembered outcome of an order, or nil.
func (f *InFlight) Outcome(orderID string) *wire.Outcome {
	found, _ := f.outcomes.Get(orderID)
	outcome, _ := found.(*wire.Outcome)
	return outcome
}

// HasOrder reports whether an order is known.
func (f *InFlight) HasOrder(orderID string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.byOrder[orderID] != nil
}

// Known is a copy of what is known of the order for a pod, for its group, or for a PodGroup; nil where there is none. O(members and victims).
func (f *InFlight) Known(uid types.UID) *Order {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.of(uid).copied()
}

// ByID is a copy of what is known of an order; nil where it is not known. O(members and victims).
func (f *InFlight) ByID(orderID string) *Order {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.byOrder[orderID].copied()
}

// Has reports whether a pod, or its group, has an order, or had one that is not forgotten yet.
func (f *InFlight) Has(pod types.UID) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.of(pod) != nil
}

// of is the order for a pod or for its group, or for a PodGroup; nil where there is none. O(1).
func (f *InFlight) of(uid types.UID) *Order {
	if e := f.byPod[uid]; e != nil {
		return e
	}
	return f.byMember[uid]
}

// Remover is the order that removes a pod, itself or by counting on another order: the one that a plan names. Where the name is no
// order's, the plan counts on another plan, which may have become an order since: then any that removes the pod. Empty: none removes it.
// O(victims), where the name is no order's O(orders · victims).
func (f *InFlight) Remover(orderID string, victim types.UID) string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if e := f.byOrder[orderID]; e != nil {
		if e.removes(victim) {
			return orderID
		}
		return ""
	}
	eldest := ""
	for _, e := range f.byPod {
		if (e.Phase == Leaving || e.Phase.live()) && e.removes(victim) && (eldest == "" || e.OrderID < eldest) {
			eldest = e.OrderID
		}
	}
	return eldest
}

// Left are the pods that succeeded orders have removed, each with its order, which the scheduler's cache may have still. The planner
// may see a pod terminating, or gone, a moment before the scheduler does. O(orders · pods that have not left the cache).
func (f *InFlight) Left() map[types.UID]string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	left := map[types.UID]string{}
	for _, e := range f.byPod {
		if e.Phase != Leaving {
			continue
		}
		for uid := range e.Remaining {
			orderID, awaited := e.Awaited[uid]
			if terminating := awaited && orderID == ""; !terminating && (left[uid] == "" || e.OrderID < left[uid]) {
				left[uid] = e.OrderID
			}
		}
	}
	return left
}

// Gate reports whether PreEnqueue has to hold a pod for its order or, also where it came after the order was made, for its group's: for
// which, and where pods have to leave; that it does so is noted. O(1).
func (f *InFlight) Gate(uid types.UID, group types.NamespacedName, now time.Time) (orderID, where string, closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.byPod[uid]
	if e == nil {
		e = f.byGroup[group]
	}
	if e == nil || !e.Gated || !now.Before(e.OpensAt) {
		return "", "", false
	}
	e.held = true
	if e.isGroup() {
		return e.OrderID, fmt.Sprintf("%d nodes", e.nodes), true
	}
	return e.OrderID, "node " + e.Node, true
}

// Nominated are the places that preemptors with an order hold, whether or not the API shows it yet.
func (f *InFlight) Nominated() []wire.Placement {
	f.mu.RLock()
	defer f.mu.RUnlock()
	places := make([]wire.Placement, 0, len(f.byPod))
	for _, e := range f.byPod {
		if e.Phase.Reverts() || e.Phase == orphaned {
			continue
		}
		places = append(places, e.Places()...)
	}
	return places
}
