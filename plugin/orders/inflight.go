// Package orders is the life of eviction orders as a scheduler sees it: a table of phases and events (transitions.go), which decides and
// does nothing, and the orders in flight, which it moves on. It has no clock and no goroutine, and calls nothing of the scheduler:
// callers say what happened and when, and do what comes due.
package orders

import (
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"makeway.dev/makeway/plugin/wire"
)

// ErrPodGone says that a preemptor is deleted or bound, and needs no order.
var ErrPodGone = errors.New("the pod is gone or bound")

// InFlight knows which preemptors have an order in flight. PreEnqueue and queueing hints read it under
// the scheduling queue's lock, so its own lock is never held while calling into the scheduler. It has
// no goroutine and no clock: callers say what happened and when; due says what is to be done. changed
// is sent to, without blocking, when due may have something new.
type InFlight struct {
	Changed chan struct{}
	holds   QuotaReserver // told of every preemptor that begins or ends to have an order, under mu

	mu       sync.RWMutex
	byPod    map[types.UID]*Order            // by UID of the preemptor
	byMember map[types.UID]*Order            // of a pod group that is a preemptor
	byGroup  map[types.NamespacedName]*Order // the same by name
	byOrder  map[string]*Order
	outcomes *lru.Cache // by order, those not known (yet) too
}

// QuotaReserver lets preemptors with an order count in their queues. It must not call back.
type QuotaReserver interface {
	ReserveQuota(pod wire.PodRef)
	ReleaseQuota(uid types.UID)
}

// NewInFlight knows of no order yet; holds is called where a preemptor begins or ends to have an order.
func NewInFlight(holds QuotaReserver) *InFlight {
	return &InFlight{
		holds:    holds,
		Changed:  make(chan struct{}, 1),
		byPod:    map[types.UID]*Order{},
		byMember: map[types.UID]*Order{},
		byGroup:  map[types.NamespacedName]*Order{},
		byOrder:  map[string]*Order{},
		outcomes: lru.New(outcomeMemory),
	}
}

func (f *InFlight) Notify() {
	select {
	case f.Changed <- struct{}{}:
	default:
	}
}

// Begin marks a pod as preempting and closes its gate. It replaces what was remembered of an earlier
// order.
func (f *InFlight) Begin(e *Order) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.Own = true
	f.put(e)
	f.happens(e, onNominated)
}

// Stored notes the order that the stream has: some of its victims may be another order's, or leave by themselves. It is a no-op where the
// outcome came first.
func (f *InFlight) Stored(order *wire.EvictionOrder, opensAt time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.byOrder[order.OrderID]
	if !f.happens(e, onStored) {
		return
	}
	e.OpensAt, e.Awaited = opensAt, map[types.UID]string{}
	for _, a := range order.Awaited {
		e.Awaited[types.UID(a.UID)] = a.OrderID
	}
	e.Victims = slices.DeleteFunc(e.Victims, func(uid types.UID) bool {
		_, awaited := e.Awaited[uid]
		return awaited
	})
}

// Succeed notes that all victims of an order are deleted or leaving. until is when the last one should
// be gone. left says of a pod that the pod informer does not know it (any more). It returns how long the
// order took, where this process wrote it and the outcome is new.
func (f *InFlight) Succeed(orderID string, now, until time.Time, left func(types.UID) bool) (took time.Duration, own bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.byOrder[orderID]
	if !f.happens(e, onSucceeded) {
		return 0, false
	}
	if e.Phase == Leaving {
		e.OpensAt, e.heldUntil = until, now.Add(leavingHold)
		for uid, seen := range e.Remaining {
			if seen.IsZero() && left(uid) {
				e.Remaining[uid] = now
			}
		}
	}
	return now.Sub(e.CreatedAt), e.Own
}

// Fail notes that an order came to nothing. The pod is reverted when the API shows its nomination gone, or after a wait. It returns a copy of
// the order, nil where that is not known, or has failed already.
func (f *InFlight) Fail(orderID, reason string, now time.Time, wait time.Duration) *Order {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.byOrder[orderID]
	if e == nil {
		return nil
	}
	e.Span.Tell("reason", reason)
	if !f.happens(e, onFailed) || e.Phase != Reverting {
		return nil
	}
	e.revertFrom(reason, now.Add(wait))
	return e.copied()
}

// Stays notes that a victim which was to be preempted in memory is bound by now, and in no order: the preemptor does
// not wait for it, and its next cycle plans for it.
func (f *InFlight) Stays(orderID string, victim types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.byOrder[orderID]
	if e == nil {
		return
	}
	e.Victims = slices.DeleteFunc(e.Victims, func(uid types.UID) bool { return uid == victim })
	delete(e.Remaining, victim)
	f.Notify()
}

// Abandon forgets an order that was not stored and whose pod needs no room any more.
func (f *InFlight) Abandon(orderID string) { f.tell(orderID, onNotNeeded) }

// Supersede forgets an order in whose place the stream has another one.
func (f *InFlight) Supersede(orderID string) { f.tell(orderID, onSuperseded) }

// Finish forgets an order whose revert was carried out: its gate opens.
func (f *InFlight) Finish(orderID string) { f.tell(orderID, onReverted) }

// tell lets an event happen to an order.
func (f *InFlight) tell(orderID string, happened event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.happens(f.byOrder[orderID], happened)
}

// ActivationFailed lets a revert that was handed out, and came to nothing, be handed out again at a time.
func (f *InFlight) ActivationFailed(orderID string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.byOrder[orderID]; f.happens(e, onRevertFailed) {
		e.notBefore = at
	}
}

// Adopt takes over a live order that this process did not write: a restarted or new leader reads it
// from the stream. Its pod is refused a second order at once, but gated only after it has failed one
// cycle (see refuse), because a gated pod is not entered into the nominator.
func (f *InFlight) Adopt(e *Order, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byOrder[e.OrderID] != nil || !now.Before(e.OpensAt) {
		return false
	}
	uid := types.UID(e.Preemptor.UID)
	if existing := f.byPod[uid]; existing != nil && existing.Phase != Released && existing.CreatedAt.After(e.CreatedAt) {
		return false
	}
	f.put(e)
	f.happens(e, onAdopted)
	if e.isQuota() { // it makes room for no pod
		f.happens(e, onPreemptorGone)
	}
	return true
}

// Remember keeps the outcome of an order that is not known, since the two streams are read
// independently. Bounded: the oldest is forgotten.
func (f *InFlight) Remember(outcome *wire.Outcome) { f.outcomes.Add(outcome.OrderID, outcome) }

// Deleted notes that the pod informer reported a pod deleted. O(entries).
func (f *InFlight) Deleted(uid types.UID, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.byPod {
		if seen, waiting := e.Remaining[uid]; waiting && seen.IsZero() {
			e.Remaining[uid] = now
			f.Notify()
		}
	}
}

// NominatedTo notes where the API shows a preemptor nominated. Where that is not its order's node any
// more, a pod of higher priority has taken the place, and there is nothing left to wait for. Before the
// order has succeeded that is the evictor's to find out, which cancels the order. A group waits for nothing more once a member
// has lost its place, and is reverted once all have.
func (f *InFlight) NominatedTo(uid types.UID, node string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.of(uid)
	if e != nil && e.placeTaken(uid, node, now) && !e.nominationTaken {
		e.nominationTaken = true
		f.Notify()
	}
}

// NodeDeleted notes that a node was deleted. Pods that were leaving it may stay in the API for long, and
// their room is of no use. Before the order has succeeded, that is the evictor's to find out.
func (f *InFlight) NodeDeleted(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.byPod {
		if e.Phase == Leaving && e.on(node) && !e.nodeGone {
			e.nodeGone = true
			f.Notify()
		}
	}
}

// Forget drops a preemptor that is bound or gone, once its order can remove nothing any more.
func (f *InFlight) Forget(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.byPod[uid]; e != nil {
		f.happens(e, onPreemptorGone)
		return
	}
	if e := f.of(uid); e != nil && f.memberDone(e, uid) {
		f.happens(e, onPreemptorGone)
	}
}

// Cycled drops a preemptor that was activated and whose cycle has ended: it has a node, or it failed and nothing holds it
// again. Until then it keeps the place that its order made in its queue, however many pods the scheduler has
// before it.
func (f *InFlight) Cycled(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.happens(f.byPod[uid], onCycleEnded)
}

// Activated lets a preemptor keep its place for another while: it is activated once more.
func (f *InFlight) Activated(uid types.UID, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.of(uid); e != nil && e.Phase == Released {
		e.reservedUntil = now.Add(releasedLasts)
	}
}

// Refusal is why a pod or group with an order may not preempt now.
type Refusal int

const (
	NotRefused      Refusal = iota
	RefusedInFlight         // its order has no outcome, or came to nothing and is being taken back
	RefusedLeaving          // its victims are leaving
	RefusedBeside           // its victims have left, and those of pods that are nominated beside it have not
)

// Refuse reports whether a pod that failed a cycle may not preempt now, because it has an order. From then
// on the gate is closed. cycle says what its snapshot shows: a released preemptor that met a victim there came too early and is held
// again for a moment. One whose victims are leaving is held for longer, and for nothing where its node does not help any more. So is one
// that has its room beside pods whose orders are still making theirs, until they have it: another plan would evict more than is needed, and
// leave its room to them.
func (f *InFlight) Refuse(uid types.UID, now time.Time, cycle FailedCycle) (why Refusal, orderID, node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.byPod[uid]
	if e == nil {
		return NotRefused, "", ""
	}
	if e.Phase == Leaving && !now.Before(e.OpensAt) {
		return NotRefused, "", ""
	}
	happened := onCycleFailed
	tooEarly := e.Phase == Released && e.early < earlyRetries && e.meets(cycle.PodsOn)
	hasRoom := e.Phase == Released || (e.Phase == Leaving && len(e.Remaining) == 0)
	beside := hasRoom && !tooEarly && !cycle.Unresolvable(e.Node) && f.makeRoom(cycle.Beside)
	switch {
	case e.Phase == Leaving && e.nominationTaken:
		happened = onNominationGone
	case e.Phase == Leaving && cycle.Unresolvable(e.Node):
		happened = onNodeUnresolvable
	case e.Phase == Released && now.Before(e.OpensAt) && (tooEarly || beside):
		happened = onCycleTooEarly
	}
	f.happens(e, happened)
	switch {
	case happened == onCycleTooEarly && !beside:
		e.early, e.beside, e.notBefore = e.early+1, nil, now.Add(earlyRetryDelay<<e.early)
	case e.Phase == Leaving:
		if beside {
			e.early, e.beside = e.early+1, cycle.Beside
		}
		if now.Sub(e.heldUntil) >= longestLeavingHold {
			e.failedCycles = 0
		}
		e.heldUntil = now.Add(min(leavingHold<<min(e.failedCycles, 10), longestLeavingHold))
		e.failedCycles++
		f.Notify()
	}
	switch e.Phase {
	case absent:
		return NotRefused, "", ""
	case Leaving:
		if beside {
			return RefusedBeside, e.OrderID, e.Node
		}
		return RefusedLeaving, e.OrderID, e.Node
	}
	return RefusedInFlight, e.OrderID, e.Node
}

// makeRoom reports whether one of these preemptors has an order whose victims have not left, or whose nomination is being taken back.
func (f *InFlight) makeRoom(preemptors []types.UID) bool {
	return slices.ContainsFunc(preemptors, func(uid types.UID) bool {
		e := f.of(uid)
		return e != nil && (e.Phase.Reverts() || (e.Phase.live() || e.Phase == Leaving) && len(e.Remaining) > 0)
	})
}

// put makes an order known, in place of an earlier one of its pod.
func (f *InFlight) put(e *Order) {
	uid := types.UID(e.Preemptor.UID)
	if old := f.byPod[uid]; old != nil {
		f.happens(old, onReplaced)
	}
	if len(e.members) == 0 && !e.isQuota() {
		e.Enter(e.place())
	}
	f.byPod[uid] = e
	f.byOrder[e.OrderID] = e
	f.putMembers(e)
}

// happens moves an order on by the table, and reports whether the event changes anything; nil is an order that is not known, of which none
// does. It carries out the effects that
// concern what is known of orders; those that concern the scheduler are the caller's, outside the lock.
func (f *InFlight) happens(e *Order, happened event) bool {
	if e == nil {
		return false
	}
	to, effects, ok := step(e.Phase, happened)
	if !ok {
		return false
	}
	uid := types.UID(e.Preemptor.UID)
	for _, effect := range effects {
		switch effect {
		case holdPlace:
			for _, place := range e.Places() {
				f.holds.ReserveQuota(RefOfPlacement(place))
			}
		case releasePlace:
			for _, place := range e.Places() {
				f.holds.ReleaseQuota(types.UID(place.UID))
			}
		case closeGate:
			e.Gated = true
		case openGate:
			e.Gated = false
		}
	}
	if to == absent && e.Phase != absent {
		delete(f.byOrder, e.OrderID)
		delete(f.byPod, uid)
		f.dropMembers(e)
	}
	e.wasStored = e.wasStored || to == Committed || to == Leaving
	if to != e.Phase {
		e.Phase = to
		e.endSpan(happened)
		f.Notify()
	}
	return true
}
