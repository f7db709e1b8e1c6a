package preempt

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/tracing"
	"makeway.dev/makeway/plugin/wire"
)

// Times of an order's life, as the plugin sees it.
const (
	// nominationWait is how long the commit waits for the nomination to show in the API.
	nominationWait = 2 * time.Second
	// memberNominationWait is how much longer for each member of a group.
	memberNominationWait = 20 * time.Millisecond
	// gateSlack is how long after an order's notAfter the gate opens by itself: the evictor begins
	// nothing after notAfter, so nothing is in flight any more.
	gateSlack = 2 * time.Second
	// settle is how long after the pod informer's delete event a victim counts as gone from the scheduler's cache: its own
	// handler of that event runs beside the plugin's.
	settle = 5 * time.Millisecond
	// leavingHold is how long a pod that failed a cycle while its victims were leaving comes to no other one, unless the last of
	// them leaves. Where cycles follow one another it doubles, up to longestLeavingHold.
	leavingHold        = time.Second
	longestLeavingHold = 4 * time.Second
	// earlyRetries bounds how often such a cycle is repeated.
	earlyRetries = 5
	// earlyRetryDelay is the first delay of such a repetition; it doubles.
	earlyRetryDelay = 50 * time.Millisecond
	// releasedLasts is how long a preemptor that was activated keeps the place in its queue without coming to a cycle:
	// something else may hold it.
	releasedLasts = 5 * time.Minute
	// outcomeMemory bounds how many outcomes are remembered for orders that have not been read yet.
	outcomeMemory = 4096
)

// errAwaitedOrderFailed says that an order cannot succeed any more.
var errAwaitedOrderFailed = errors.New("an order that this one counted on failed")

// inFlightPreemption is one preemptor with an order, a pod or a pod group. All fields are guarded by inflight.mu.
type inFlightPreemption struct {
	orderID   string
	preemptor wire.PodRef // of a group: the PodGroup
	node      string      // of a group: empty
	members   []*member   // of a group
	nodes     int         // of its members, so many
	phase     phase
	gated     bool // PreEnqueue holds the pod
	held      bool // it has, since the gate was closed: the queue has told the pod of nothing since

	victims []types.UID          // of this order
	awaited map[types.UID]string // pods that other orders remove, with those orders' ids
	// terminating are pods that are being deleted anyway, and whose room is needed.
	terminating []types.UID
	// remaining are victims, but for those apart, and awaited pods that have not left the scheduler's cache, with the time
	// at which the pod informer reported them deleted (zero where it has not).
	remaining map[types.UID]time.Time

	createdAt       time.Time
	opensAt         time.Time // whatever happens, the gate opens then
	notBefore       time.Time // an activation that is put off until then
	heldUntil       time.Time // of a leaving one: after a failed cycle the gate stays closed until then
	failedCycles    int       // of a leaving one, one after the other
	reservedUntil   time.Time // of a released one: when it loses its place in its queue
	missingSince    time.Time // of a released gang: since when it has too few pods; zero where it has enough
	early           int       // how often a cycle came too early
	awaitedFailed   bool      // an order that this one counted on failed
	nominationTaken bool      // the API shows the pod nominated elsewhere, or not at all
	nodeGone        bool      // the node was deleted, so no kubelet there ends pods any more
	noting          bool      // it failed, and is not reverted before that is noted (see fail)
	revertAt        time.Time
	reason          string         // why it is reverted
	unanswered      bool           // it is reverted since no evictor has ended it in time
	own             bool           // this process wrote the order
	message         []byte         // the order as it is stored, or about to be
	live            wire.LiveOrder // the order as plan requests tell it
	span            tracing.Span   // of the preemption; zero of one that another process began
}

// awaits notes a pod that leaves anyway and is waited for: another order removes it, or it is terminating and has no orderID.
func (e *inFlightPreemption) awaits(uid types.UID, orderID string) {
	if orderID == "" {
		e.terminating = append(e.terminating, uid)
	} else {
		e.awaited[uid] = orderID
	}
	e.remaining[uid] = time.Time{}
}

// activation is something to do outside every lock: let a pod be tried again, after deleting its nomination
// where revert is set.
type activation struct {
	pod     wire.PodRef
	orderID string
	node    string
	members []wire.Placement // where pod is a PodGroup: the members that still wait
	revert  bool
	reason  string
	// waited is the time since the order's creation, where an outcome or the last victim's leaving ends it.
	waited      time.Duration
	own         bool // this process wrote the order
	unpublished bool // its publishing has not begun, so that no evictor knows of it
	unanswered  bool // this process stored the order, and no evictor has ended it in time
}

// inflight knows which preemptors have an order in flight. PreEnqueue and queueing hints read it under
// the scheduling queue's lock, so its own lock is never held while calling into the scheduler. It has
// no goroutine and no clock: callers say what happened and when; due says what is to be done. changed
// is sent to, without blocking, when due may have something new.
type inflight struct {
	changed chan struct{}
	holds   quotaReserver // told of every preemptor that begins or ends to have an order, under mu

	mu       sync.RWMutex
	byPod    map[types.UID]*inFlightPreemption // by UID of the preemptor
	byMember map[types.UID]types.UID           // of a pod group that is a preemptor
	byGroup  map[groupKey]types.UID            // the same by name
	byOrder  map[string]types.UID
	outcomes map[string]*wire.Outcome // of orders not known (yet)
	order    []string                 // the keys of outcomes, oldest first
}

// quotaReserver lets preemptors with an order count in their queues. It must not call back.
type quotaReserver interface {
	ReserveQuota(pod wire.PodRef)
	ReleaseQuota(uid types.UID)
}

// noQuota reserves nothing.
type noQuota struct{}

func (noQuota) ReserveQuota(wire.PodRef) {}
func (noQuota) ReleaseQuota(types.UID)   {}

func newInflight() *inflight {
	return &inflight{
		holds:    noQuota{},
		changed:  make(chan struct{}, 1),
		byPod:    map[types.UID]*inFlightPreemption{},
		byMember: map[types.UID]types.UID{},
		byGroup:  map[groupKey]types.UID{},
		byOrder:  map[string]types.UID{},
		outcomes: map[string]*wire.Outcome{},
	}
}

func (f *inflight) notify() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// begin marks a pod as preempting and closes its gate. It replaces what was remembered of an earlier
// order.
func (f *inflight) begin(e *inFlightPreemption) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.own = true
	f.put(e)
	f.happens(e, onNominated)
}

// commit notes that the order is in the stream. It is a no-op where the outcome came first.
func (f *inflight) commit(orderID string, opensAt time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.get(orderID); e != nil && f.happens(e, onStored) {
		e.opensAt = opensAt
	}
}

// succeed notes that all victims of an order are deleted or leaving. until is when the last one should
// be gone. left says of a pod that the pod informer does not know it (any more). It returns how long the
// order took, where this process wrote it and the outcome is new.
func (f *inflight) succeed(orderID string, now, until time.Time, left func(types.UID) bool) (took time.Duration, own bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.get(orderID)
	if e == nil || !f.happens(e, onSucceeded) {
		return 0, false
	}
	if e.phase == leaving {
		e.opensAt = until
		for uid, seen := range e.remaining {
			if seen.IsZero() && left(uid) {
				e.remaining[uid] = now
			}
		}
	}
	return now.Sub(e.createdAt), e.own
}

// fail notes that an order came to nothing, and those that counted on its victims fail with it. The pod is
// reverted when the API shows its nomination gone, or after a wait, but not before note has returned: its next plan has to
// know what note remembers. note is called without the lock. ok is false, and note is not called, where the order is not
// known, or has failed already.
func (f *inflight) fail(orderID, reason string, now time.Time, wait time.Duration, note func(failed activation)) (ok bool) {
	failed, ok := f.beginFailure(orderID, reason, now, wait)
	if !ok {
		return false
	}
	defer f.endFailure(orderID)
	note(failed)
	return true
}

func (f *inflight) beginFailure(orderID, reason string, now time.Time, wait time.Duration) (failed activation, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.orAbsent(orderID)
	before := e.phase
	e.span.Tell("reason", reason)
	f.happens(e, onFailed)
	if e.phase != reverting || before == reverting {
		return activation{}, false
	}
	e.revertFrom(reason, now.Add(wait))
	e.noting = true
	return activation{pod: e.preemptor, orderID: e.orderID, node: e.node, members: e.waiting(), revert: true, reason: reason, waited: now.Sub(e.createdAt), own: e.own}, true
}

func (f *inflight) endFailure(orderID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.get(orderID); e != nil {
		e.noting = false
		f.notify()
	}
}

// revertFrom notes why an order is taken back, and when at the latest. The gate opens by itself a moment later, should
// the revert not be carried out.
func (e *inFlightPreemption) revertFrom(reason string, at time.Time) {
	e.reason, e.revertAt, e.opensAt, e.nominationTaken = reason, at, at.Add(gateSlack), false
}

// stays notes that a victim which was to be preempted in memory is bound by now, and in no order: the preemptor does
// not wait for it, and its next cycle plans for it.
func (f *inflight) stays(orderID string, victim types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.get(orderID)
	if e == nil {
		return
	}
	is := func(uid types.UID) bool { return uid == victim }
	e.victims = slices.DeleteFunc(e.victims, is)
	e.live.Victims = slices.DeleteFunc(slices.Clone(e.live.Victims), func(uid string) bool { return uid == string(victim) })
	delete(e.remaining, victim)
	f.notify()
}

// abandon forgets an order that was not stored and whose pod needs no room any more; those that count on it fail.
func (f *inflight) abandon(orderID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.happens(f.orAbsent(orderID), onNotNeeded)
}

// supersede forgets an order in whose place the stream has another one.
func (f *inflight) supersede(orderID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.get(orderID); e != nil {
		f.happens(e, onSuperseded)
	}
}

// finish forgets an order whose revert was carried out: its gate opens.
func (f *inflight) finish(orderID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.get(orderID); e != nil {
		f.happens(e, onReverted)
	}
}

// activationFailed lets a revert that was handed out, and came to nothing, be handed out again at a time.
func (f *inflight) activationFailed(orderID string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.get(orderID); e != nil && f.happens(e, onRevertFailed) {
		e.notBefore = at
	}
}

// adopt takes over a live order that this process did not write: a restarted or new leader reads it
// from the stream. Its pod is refused a second order at once, but gated only after it has failed one
// cycle (see refuse), because a gated pod is not entered into the nominator.
func (f *inflight) adopt(e *inFlightPreemption, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.get(e.orderID) != nil || !now.Before(e.opensAt) {
		return false
	}
	uid := types.UID(e.preemptor.UID)
	if existing := f.byPod[uid]; existing != nil && existing.phase != released && existing.createdAt.After(e.createdAt) {
		return false
	}
	f.put(e)
	f.happens(e, onAdopted)
	return true
}

// remember keeps the outcome of an order that is not known, since the two streams are read
// independently. Bounded: the oldest is forgotten.
func (f *inflight) remember(outcome *wire.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.outcomes[outcome.OrderID]; !known {
		f.order = append(f.order, outcome.OrderID)
	}
	f.outcomes[outcome.OrderID] = outcome
	if len(f.order) > outcomeMemory {
		delete(f.outcomes, f.order[0])
		f.order = f.order[1:]
	}
}

// outcome is the remembered outcome of an order, or nil.
func (f *inflight) outcome(orderID string) *wire.Outcome {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.outcomes[orderID]
}

// hasOrder reports whether an order is known.
func (f *inflight) hasOrder(orderID string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.get(orderID) != nil
}

// has reports whether a pod, or its group, has an order, or had one that is not forgotten yet.
func (f *inflight) has(pod types.UID) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.of(pod) != nil
}

// of is the order for a pod or for its group, or for a PodGroup; nil where there is none. O(1).
func (f *inflight) of(uid types.UID) *inFlightPreemption {
	if e := f.byPod[uid]; e != nil {
		return e
	}
	return f.byPod[f.byMember[uid]]
}

// remover is the order that removes a pod, itself or by counting on another order: the one that a plan names, or where it names none,
// one that has succeeded. The planner may see a pod terminating a moment before the scheduler does. Empty: none removes it. O(victims),
// where none is named O(orders · victims).
func (f *inflight) remover(orderID string, victim types.UID) string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if orderID != "" {
		if e := f.get(orderID); e != nil && e.removes(victim) {
			return orderID
		}
		return ""
	}
	eldest := ""
	for _, e := range f.byPod {
		if e.phase == leaving && e.removes(victim) && (eldest == "" || e.orderID < eldest) {
			eldest = e.orderID
		}
	}
	return eldest
}

func (e *inFlightPreemption) removes(victim types.UID) bool {
	_, counted := e.awaited[victim]
	return counted || slices.Contains(e.victims, victim)
}

// nominationsOf is what an order makes room for, and the pods that are nominated for it, each with its node.
func (f *inflight) nominationsOf(orderID string) (preemptor wire.PodRef, places []wire.Placement, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	e := f.get(orderID)
	if e == nil {
		return wire.PodRef{}, nil, false
	}
	return e.preemptor, e.places(), true
}

// deleted notes that the pod informer reported a pod deleted. O(entries).
func (f *inflight) deleted(uid types.UID, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.byPod {
		if seen, waiting := e.remaining[uid]; waiting && seen.IsZero() {
			e.remaining[uid] = now
			f.notify()
		}
	}
}

// nominatedTo notes where the API shows a preemptor nominated. Where that is not its order's node any
// more, a pod of higher priority has taken the place, and there is nothing left to wait for. Before the
// order has succeeded that is the evictor's to find out, which cancels the order. A group waits for nothing more once a member
// has lost its place, and is reverted once all have.
func (f *inflight) nominatedTo(uid types.UID, node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.of(uid)
	if e == nil || (e.phase != leaving && !e.phase.reverts()) || e.nominationTaken {
		return
	}
	if e.placeTaken(uid, node) {
		e.nominationTaken = true
		f.notify()
	}
}

// nodeDeleted notes that a node was deleted. Pods that were leaving it may stay in the API for long, and
// their room is of no use. Before the order has succeeded, that is the evictor's to find out.
func (f *inflight) nodeDeleted(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.byPod {
		if e.phase == leaving && e.on(node) && !e.nodeGone {
			e.nodeGone = true
			f.notify()
		}
	}
}

// forget drops a preemptor that is bound or gone, once its order can remove nothing any more.
func (f *inflight) forget(uid types.UID) {
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

// cycled drops a preemptor that was activated and whose cycle has ended: it has a node, or it failed and nothing holds it
// again. Until then it keeps the place that its order made in its queue, however many pods the scheduler has
// before it.
func (f *inflight) cycled(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.byPod[uid]; e != nil {
		f.happens(e, onCycleEnded)
	}
}

// activated lets a preemptor keep its place for another while: it is activated once more.
func (f *inflight) activated(uid types.UID, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.of(uid); e != nil && e.phase == released {
		e.reservedUntil = now.Add(releasedLasts)
	}
}

// countsOnStored reports whether every order that this one counts on has been stored or has ended, and
// returns those that live in memory alone, which no evictor can wait for. An error says that this order
// is forgotten, or that one it counted on has failed.
func (f *inflight) countsOnStored(orderID string) (ready bool, memoryOnly map[string]bool, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	e := f.get(orderID)
	switch {
	case e == nil:
		return false, nil, errPodGone
	case e.awaitedFailed, !e.phase.unstored():
		return false, nil, errAwaitedOrderFailed
	}
	memoryOnly = map[string]bool{}
	for _, id := range e.awaited {
		if other := f.get(id); other != nil && other.phase.unstored() {
			return false, nil, nil
		}
		if outcome := f.outcomes[id]; outcome != nil && outcome.Evictor == "" {
			memoryOnly[id] = true
		}
	}
	return true, memoryOnly, nil
}

// failAwaiting marks the orders that count on one that has come to nothing.
func (f *inflight) failAwaiting(orderID string) {
	for _, e := range f.byPod {
		for _, id := range e.awaited {
			if id == orderID {
				e.awaitedFailed = true
			}
		}
	}
	f.notify()
}

// gate reports whether PreEnqueue has to hold a pod, and for which order on which node; that it does so is noted. O(1).
func (f *inflight) gate(uid types.UID, now time.Time) (orderID, node string, closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.byPod[uid]
	if e == nil || !e.gated || !now.Before(e.opensAt) {
		return "", "", false
	}
	e.held = true
	return e.orderID, e.node, true
}

// refuse reports whether a pod that failed a cycle may not preempt now, because it has an order. From then
// on the gate is closed. cycle says what its snapshot shows: a released preemptor that met a victim there came too early and is held
// again for a moment; one whose victims are leaving is held for longer, and for nothing where its node does not help any more.
func (f *inflight) refuse(uid types.UID, now time.Time, cycle failedCycle) (kind outcomeKind, orderID, node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.byPod[uid]
	if e == nil {
		return "", "", ""
	}
	if e.phase == leaving && !now.Before(e.opensAt) {
		return "", "", ""
	}
	happened := onCycleFailed
	switch {
	case e.phase == leaving && e.nominationTaken:
		happened = onNominationGone
	case e.phase == leaving && cycle.unresolvable(e.node):
		happened = onNodeUnresolvable
	case e.phase == released && e.early < earlyRetries && now.Before(e.opensAt) && e.meets(cycle.stillThere):
		happened = onCycleTooEarly
	}
	f.happens(e, happened)
	switch {
	case happened == onCycleTooEarly:
		e.notBefore = now.Add(earlyRetryDelay << e.early)
		e.early++
	case e.phase == leaving:
		if now.Sub(e.heldUntil) >= longestLeavingHold {
			e.failedCycles = 0
		}
		e.heldUntil = now.Add(min(leavingHold<<min(e.failedCycles, 10), longestLeavingHold))
		e.failedCycles++
		f.notify()
	}
	switch e.phase {
	case absent:
		return "", "", ""
	case leaving:
		return endLeaving, e.orderID, e.node
	}
	return endInFlight, e.orderID, e.node
}

// failedCycle is what a failed cycle's snapshot shows.
type failedCycle struct {
	stillThere   func(node string, uid types.UID) bool // the pod is on the node
	unresolvable func(node string) bool                // removing pods from the node does not help, or it is not there
}

// meets reports whether a victim or an awaited pod is still on the node.
func (e *inFlightPreemption) meets(stillThere func(node string, uid types.UID) bool) bool {
	met := slices.ContainsFunc(e.victims, func(v types.UID) bool { return stillThere(e.node, v) })
	for _, v := range e.terminating {
		met = met || stillThere(e.node, v)
	}
	for v := range e.awaited {
		met = met || stillThere(e.node, v)
	}
	return met
}

// due lets happen what the time and what is known bring about, and returns which pods to activate now and the time at which
// to ask again (zero: when something changes). O(entries × victims).
func (f *inflight) due(now time.Time) (activations []activation, next time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	again := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for _, e := range f.byPod {
		for happened := e.due(now, again); happened != nothing; happened = e.due(now, again) {
			before := e.phase
			_, asked, _ := step(before, happened)
			f.happens(e, happened)
			why := reasonOf(before, happened)
			if e.phase == reverting {
				e.revertFrom(why, now)
			}
			if e.phase == released {
				e.reservedUntil = now.Add(releasedLasts)
			}
			w := activation{pod: e.preemptor, orderID: e.orderID, node: e.node, members: e.waiting(), reason: why}
			if happened == onVictimsGone {
				w.waited = now.Sub(e.createdAt)
			}
			for _, effect := range asked {
				switch {
				case effect == activate, effect == activateHeld && e.held:
					e.held = false
					activations = append(activations, w)
				case effect == revert:
					w.revert, w.reason, w.unpublished, w.unanswered = true, e.reason, e.message == nil, e.unanswered
					activations = append(activations, w)
				}
			}
		}
	}
	slices.SortFunc(activations, func(a, b activation) int { return strings.Compare(a.orderID, b.orderID) })
	return activations, next
}

// due returns what is to happen now, and otherwise calls again with when to ask again.
func (e *inFlightPreemption) due(now time.Time, again func(time.Time)) event {
	late := func(at time.Time) event {
		if now.Before(at) {
			again(at)
			return nothing
		}
		return onExpired
	}
	switch {
	case e.phase.unstored(), e.phase.stored():
		return late(e.opensAt)
	case e.phase == leaving && e.awaitedFailed:
		return onAwaitedFailed
	case e.phase == leaving && e.nodeGone:
		return onNodeDeleted
	case e.phase == leaving && e.nominationTaken:
		return onNominationGone
	case e.phase == leaving && now.Before(e.opensAt) && e.gone(now, again):
		return onVictimsGone
	case e.phase == leaving && e.gated && now.Before(e.opensAt) && !e.leavesSoon():
		return e.holdEnds(now, again)
	case e.phase == leaving:
		return late(e.opensAt)
	case e.phase == released:
		return late(e.reservedUntil)
	case e.phase == reverting && e.noting:
		// endFailure tells.
	case e.phase == reverting && now.Before(e.notBefore):
		again(e.notBefore)
	case e.phase == reverting && e.nominationTaken:
		return onNominationGone
	case e.phase == reverting:
		return late(e.revertAt)
	}
	return nothing
}

// holdEnds returns that the gate of a leaving one opens now, and otherwise when to look again.
func (e *inFlightPreemption) holdEnds(now time.Time, again func(time.Time)) event {
	if !now.Before(e.heldUntil) {
		return onHoldEnded
	}
	again(earlier(e.heldUntil, e.opensAt))
	return nothing
}

// leavesSoon reports whether all that e waits for has been reported deleted: what opens the gate for good comes in a moment.
func (e *inFlightPreemption) leavesSoon() bool {
	for _, seen := range e.remaining {
		if seen.IsZero() {
			return false
		}
	}
	return true
}

// reasonOf returns why an order ended, or its pod is activated.
func reasonOf(before phase, happened event) string {
	switch happened {
	case onAwaitedFailed:
		return errAwaitedOrderFailed.Error()
	case onNodeDeleted:
		return "its node was deleted"
	case onNominationGone:
		return "its nomination was taken away"
	case onVictimsGone:
		return "the last victim has left"
	case onHoldEnded:
		return "victims are leaving, and other room may have come"
	}
	if before == leaving {
		return "victims are still there after their grace period and 60 s"
	}
	return "the order had no outcome in time"
}

// gone reports whether everything that e waits for has left the scheduler's cache, and otherwise when to
// look again.
func (e *inFlightPreemption) gone(now time.Time, again func(time.Time)) bool {
	for uid, seen := range e.remaining {
		if seen.IsZero() {
			continue
		}
		if at := seen.Add(settle); now.Before(at) {
			again(at)
			continue
		}
		delete(e.remaining, uid)
	}
	if len(e.remaining) > 0 {
		return false
	}
	if now.Before(e.notBefore) {
		again(e.notBefore)
		return false
	}
	return true
}

// live are the orders without an outcome, for a plan request.
func (f *inflight) live() []wire.LiveOrder {
	f.mu.RLock()
	defer f.mu.RUnlock()
	orders := make([]wire.LiveOrder, 0, len(f.byPod))
	for _, e := range f.byPod {
		if e.phase.live() {
			orders = append(orders, e.live)
		}
	}
	slices.SortFunc(orders, func(a, b wire.LiveOrder) int { return strings.Compare(a.OrderID, b.OrderID) })
	return orders
}

// nominated are the places that preemptors with an order hold, whether or not the API shows it yet.
func (f *inflight) nominated() []wire.Placement {
	f.mu.RLock()
	defer f.mu.RUnlock()
	places := make([]wire.Placement, 0, len(f.byPod))
	for _, e := range f.byPod {
		if e.phase.reverts() || e.phase.preemptorGone() {
			continue
		}
		places = append(places, e.places()...)
	}
	return places
}

// count is how many preemptors have an order without an outcome.
func (f *inflight) count() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := 0
	for _, e := range f.byPod {
		if e.phase.live() {
			n++
		}
	}
	return n
}

func (f *inflight) get(orderID string) *inFlightPreemption {
	uid, ok := f.byOrder[orderID]
	if !ok {
		return nil
	}
	return f.byPod[uid]
}

// orAbsent is the order of an id, or one that is not known: others may count on it even so.
func (f *inflight) orAbsent(orderID string) *inFlightPreemption {
	if e := f.get(orderID); e != nil {
		return e
	}
	return &inFlightPreemption{orderID: orderID}
}

// put makes an order known, in place of an earlier one of its pod.
func (f *inflight) put(e *inFlightPreemption) {
	uid := types.UID(e.preemptor.UID)
	if old := f.byPod[uid]; old != nil {
		f.happens(old, onReplaced)
	}
	e.live = wire.LiveOrder{OrderID: e.orderID, PreemptorUID: e.preemptor.UID, Node: e.node}
	for _, victim := range e.victims {
		e.live.Victims = append(e.live.Victims, string(victim))
	}
	slices.Sort(e.live.Victims)
	f.byPod[uid] = e
	f.byOrder[e.orderID] = uid
	f.putMembers(e)
}

// happens moves an order on by the table, and reports whether the event changes anything. It carries out the effects that
// concern what is known of orders; those that concern the scheduler are the caller's, outside the lock.
func (f *inflight) happens(e *inFlightPreemption, happened event) bool {
	to, effects, ok := step(e.phase, happened)
	if !ok {
		return false
	}
	uid := types.UID(e.preemptor.UID)
	for _, effect := range effects {
		switch effect {
		case holdPlace:
			for _, place := range e.places() {
				f.holds.ReserveQuota(refOfPlacement(place))
			}
		case releasePlace:
			for _, place := range e.places() {
				f.holds.ReleaseQuota(types.UID(place.UID))
			}
		case closeGate:
			e.gated = true
		case openGate:
			e.gated = false
		case failDependents:
			f.failAwaiting(e.orderID)
		case blameEvictors:
			e.unanswered = e.own
		}
	}
	if to == absent && e.phase != absent {
		delete(f.byOrder, e.orderID)
		delete(f.byPod, uid)
		f.dropMembers(e)
	}
	if to != e.phase {
		e.phase = to
		e.endSpan(happened)
		f.notify()
	}
	return true
}
