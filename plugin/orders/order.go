package orders

import (
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"makeway.dev/makeway/plugin/tracing"
	"makeway.dev/makeway/plugin/wire"
)

// endSpan ends the span of an order once it is known what becomes of it.
func (e *Order) endSpan(happened event) {
	if e.Phase.live() {
		return
	}
	var err error
	if happened == onFailed || happened == onExpired {
		err = errors.New("the order " + string(happened))
	}
	e.Span.End(err, "result", happened)
}

// Order is one preemptor with an order, a pod or a pod group. All fields are guarded by inflight.mu.
type Order struct {
	OrderID   string
	Preemptor wire.PodRef // of a group: the PodGroup; of a quota, which has none: its queue as the UID
	Node      string      // of a group: empty
	gang
	Removal
	Phase     Phase
	CreatedAt time.Time
	OpensAt   time.Time    // whatever happens, the gate opens then
	Own       bool         // this process nominated for the order
	Span      tracing.Span // of the preemption; zero of one that another process began
	hold
	ending
}

// Removal is what leaves for an order.
type Removal struct {
	Victims []types.UID // of this order
	// Awaited are pods that leave anyway and whose room is needed, with the order that removes each; empty for one that is being deleted.
	Awaited map[types.UID]string
	// Remaining are victims and awaited pods that have not left the scheduler's cache, with the time
	// at which the pod informer reported them deleted (zero where it has not).
	Remaining map[types.UID]time.Time
}

// hold is how a preemptor is held back.
type hold struct {
	Gated         bool        // PreEnqueue holds the pod
	held          bool        // it has, since the gate was closed: the queue has told the pod of nothing since
	notBefore     time.Time   // an activation that is put off until then
	beside        []types.UID // an activation that is put off until these have their room
	early         int         // how often a cycle came too early
	heldUntil     time.Time   // of a leaving one: the gate stays closed until then
	failedCycles  int         // of a leaving one, one after the other
	reservedUntil time.Time   // of a released one: when it loses its place in its queue
}

// ending is why an order comes to nothing, or has.
type ending struct {
	nominationTaken bool // the API shows the pod nominated elsewhere, or not at all
	nodeGone        bool // the node was deleted, so no kubelet there ends pods any more
	revertAt        time.Time
	reason          string // why it is reverted
	Unanswered      bool   // it is reverted since no evictor has ended it in time
	wasStored       bool   // the order has been in the stream
}

// Awaits notes a pod that leaves anyway and is waited for.
func (r *Removal) Awaits(uid types.UID, orderID string) {
	r.Awaited[uid], r.Remaining[uid] = orderID, time.Time{}
}

// removes reports whether a pod leaves for the order, or for another that it counts on.
func (r *Removal) removes(victim types.UID) bool {
	return r.Awaited[victim] != "" || slices.Contains(r.Victims, victim)
}

// copied is what callers may read without the lock; nil of none.
func (e *Order) copied() *Order {
	if e == nil {
		return nil
	}
	copied := *e
	copied.members, copied.Victims, copied.Remaining = slices.Clone(e.members), slices.Clone(e.Victims), maps.Clone(e.Remaining)
	return &copied
}

// Activation is something to do outside every lock: let the pods of an order that still wait be tried again, after deleting their nominations
// where revert is set.
type Activation struct {
	*Order
	Revert   bool
	Reason   string
	Waited   time.Duration // from the order's creation until its last victim had left; 0 where something else is why
	Unstored bool          // it is not in the stream, as far as is known, so that no evictor takes the nomination back
}

// revertFrom notes why an order is taken back, and when at the latest. The gate opens by itself a moment later, should
// the revert not be carried out.
func (e *Order) revertFrom(reason string, at time.Time) {
	e.reason, e.revertAt, e.OpensAt, e.nominationTaken = reason, at, at.Add(GateSlack), false
}

// FailedCycle is what a failed cycle's snapshot shows.
type FailedCycle struct {
	PodsOn       func(node string) sets.Set[types.UID] // the pods on the node, without a name on all
	Unresolvable func(node string) bool                // removing pods from the node does not help, or it is not there
	Beside       []types.UID                           // pods of no lower priority that are nominated where the preemptor is: a cycle counts them in
}

// meets reports whether a victim or an awaited pod is still on the node.
func (e *Order) meets(podsOn func(node string) sets.Set[types.UID]) bool {
	there := podsOn(e.Node)
	return there.HasAny(e.Victims...) || there.HasAny(slices.Collect(maps.Keys(e.Awaited))...)
}

// place is that of a pod that the order makes room for.
func (e *Order) place() wire.Placement {
	return wire.Placement{Namespace: e.Preemptor.Namespace, Name: e.Preemptor.Name, UID: e.Preemptor.UID, Node: e.Node}
}

// Enter has an order make room for pods on their nodes: a pod, or the members of a group.
func (e *Order) Enter(places ...wire.Placement) {
	for _, place := range places {
		place.NodeUID = "" // as requests name nominations
		e.members = append(e.members, member{Placement: place})
	}
}

// longestGrace bounds, in seconds, what is believed of a victim's grace period: a year.
const longestGrace = 365 * 24 * 60 * 60

// LeavingUntil is when the last victim should be gone: its grace period and a minute after `from`.
func LeavingUntil(outcome *wire.Outcome, from time.Time) time.Time {
	var grace int64
	if outcome != nil {
		for _, v := range outcome.Victims {
			grace = max(grace, min(v.GracePeriodSeconds, longestGrace))
		}
	}
	return from.Add(time.Duration(grace)*time.Second + wire.LeavingSlack)
}

func Earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// FromMessage is an order from the stream as the inflight state sees it.
func FromMessage(order *wire.EvictionOrder, opensAt time.Time) *Order {
	e := &Order{
		OrderID:   order.OrderID,
		Node:      order.Node,
		Removal:   Removal{Awaited: map[types.UID]string{}, Remaining: map[types.UID]time.Time{}},
		CreatedAt: order.CreatedAt.Time,
		OpensAt:   opensAt,
	}
	switch order.Kind {
	case wire.KindGroup:
		e.Preemptor = wire.PodRef{Namespace: order.Group.Namespace, Name: order.Group.Name, UID: order.Group.UID}
		e.Enter(order.Members...)
	case wire.KindQuota:
		e.Preemptor = wire.PodRef{UID: order.Queue}
	default:
		e.Preemptor = wire.PodRef{Namespace: order.Preemptor.Namespace, Name: order.Preemptor.Name, UID: order.Preemptor.UID}
		e.Enter(e.place())
	}
	for _, v := range order.Victims {
		e.Victims = append(e.Victims, types.UID(v.UID))
		e.Remaining[types.UID(v.UID)] = time.Time{}
	}
	for _, a := range order.Awaited {
		e.Awaits(types.UID(a.UID), a.OrderID)
	}
	return e
}
