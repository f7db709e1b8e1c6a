package bridge

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/wire"
)

// knowledge is what the gate knows of the limits of queues.
type knowledge int

const (
	// undecided: the scheduler has just started; see control.go for how long.
	undecided knowledge = iota
	// missing: there are queues, as their ConfigMap shows, and their limits are not known. Nothing passes.
	missing
	// noQueues: there are none, and so no gate.
	noQueues
	// inForce: the limits of the tree hold.
	inForce
)

// queueGate keeps queues at or below their max. It counts pods by UID: those that the informer shows on a
// node, those that the scheduler has reserved a node for, and preemptors with an order in flight, which
// hold the place that is made for them. Nothing of that comes from the planner but the tree with its
// limits. All profiles of a process share it. Its lock is never held while calling into the scheduler.
type queueGate struct {
	clock   clock.PassiveClock
	pods    corelisters.PodLister
	holds   governs
	changed chan struct{} // sent to, without blocking, when due may have something new

	tree    atomic.Pointer[queueTree] // nil: no limits are in force
	none    atomic.Bool               // there are no queues: the way past without the lock
	decided chan struct{}             // closed when it is no longer undecided

	mu       sync.Mutex
	knows    knowledge
	told     bool        // a control state has said what holds
	why      string      // in the state missing: for people
	usage    *queueUsage // nil: as tree
	reserved map[types.UID]wire.PodRef
	held     map[types.UID]wire.PodRef
	waiting  *waitingLine

	tellings *tellings // of pods whose condition is to say that their queue holds them
}

// governs reports whether the gate may hold a pod of a profile at all: see control.holds.
type governs func(profileMode string, priority int32, namespace string) bool

func newQueueGate(clock clock.PassiveClock, pods corelisters.PodLister, holds governs) *queueGate {
	told := newTellings(clock)
	return &queueGate{
		waiting: newWaitingLine(told.add), tellings: told,
		clock: clock, pods: pods, holds: holds,
		changed:  make(chan struct{}, 1),
		decided:  make(chan struct{}),
		reserved: map[types.UID]wire.PodRef{},
		held:     map[types.UID]wire.PodRef{},
	}
}

func (g *queueGate) notify() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// decide leaves the state undecided. Callers hold the lock.
func (g *queueGate) decide(knows knowledge, why string) {
	if g.knows == undecided {
		close(g.decided)
	}
	g.knows, g.why = knows, why
	if knows == missing {
		for _, w := range g.waiting.pods {
			w.about, w.message = unknownLimits, unknownLimits+why
			g.waiting.holdBack(w)
		}
	}
	g.none.Store(knows == noQueues)
	g.waiting.all = true
	g.notify()
}

// assumeSome shuts the gate: there are queues, and their limits are not known. It does nothing, and says so,
// once a control state has told.
func (g *queueGate) assumeSome(why string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.told {
		return false
	}
	g.decide(missing, why)
	return true
}

// assumeNone takes the gate away until a control state says otherwise; it does nothing once one has.
func (g *queueGate) assumeNone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.told {
		return false
	}
	g.decide(noQueues, "")
	return true
}

// open takes the gate away: a control state says that there are no queues.
func (g *queueGate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told = true
	g.usage = nil
	g.tree.Store(nil)
	g.waiting.reenter(nil)
	g.decide(noQueues, "")
}

// limit puts a tree in force. The first time all pods are counted, from the informer's store; after that
// those that are known are placed anew. O(pods × depth).
func (g *queueGate) limit(tree *queueTree) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	members := map[types.UID]*member{}
	if g.usage != nil {
		members = g.usage.members
	}
	usage := newQueueUsage(tree, members)
	if g.usage == nil {
		if err := g.countAll(usage); err != nil {
			return err
		}
	}
	g.told = true
	g.usage = usage
	g.tree.Store(tree)
	g.waiting.reenter(tree)
	g.decide(inForce, "")
	return nil
}

// countAll counts every pod there is. What changes meanwhile is told of afterwards, since this holds the lock.
func (g *queueGate) countAll(usage *queueUsage) error {
	pods, err := g.pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for _, pod := range pods {
		_, reserved := g.reserved[pod.UID]
		_, held := g.held[pod.UID]
		if (pod.Spec.NodeName == "" && !reserved && !held) || ended(pod) {
			continue
		}
		bound := pod.Spec.NodeName != ""
		usage.count(pod.UID, &member{demand: demandOf(pod), bound: bound, placed: bound || reserved, leaving: pod.DeletionTimestamp != nil})
	}
	return nil
}

// reconsider lets pods that wait be looked at again: modes have changed.
func (g *queueGate) reconsider() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting.all = true
	g.notify()
}

// observe takes in a pod as the informer shows it.
func (g *queueGate) observe(pod *v1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case ended(pod):
		g.drop(pod.UID)
	case pod.Spec.NodeName != "":
		delete(g.reserved, pod.UID)
		g.leaveLine(pod.UID)
		g.waiting.settled(pod.UID)
		g.tellings.forget(pod.UID)
		g.count(pod, true, true)
	default:
		_, reserved := g.reserved[pod.UID]
		if _, held := g.held[pod.UID]; held || reserved {
			g.count(pod, false, reserved)
		}
		if g.waiting.update(pod, g.tree.Load()) {
			g.notify()
		}
		if w := g.waiting.pods[pod.UID]; w != nil {
			if w.unschedulable = looksUnschedulable(pod); w.held && w.unschedulable {
				g.tellings.addIn(pod.UID, 0, true)
			}
		}
	}
}

// removed takes in that a pod is gone. Telling it twice does no harm.
func (g *queueGate) removed(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(uid)
}

// leftNode takes in that a pod has left its node, from the scheduler's cache, which may be ahead of the
// informer's events here. A pod whose placement was taken back is no such pod: it may hold a place still.
func (g *queueGate) leftNode(uid types.UID) {
	if g.tree.Load() == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.usage != nil && g.usage.members[uid] != nil && g.usage.members[uid].bound {
		g.drop(uid)
	}
}

// reserve takes a place for a pod, where there is still one: between a cycle's look and this, pods may
// have come that this scheduler did not place.
func (g *queueGate) reserve(pod *v1.Pod, profileMode string) *rejection {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.usage == nil {
		g.reserved[pod.UID] = refOf(pod)
		return nil
	}
	wanted := demandOf(pod)
	wanted.place(g.usage.tree)
	if g.holds(profileMode, wanted.priority, wanted.namespace) {
		if rejected := g.lookFor(pod, wanted, profileMode); rejected != nil {
			// No preemption follows here: the waker lets it have a cycle of its own where victims may help.
			w := g.waiting.pods[pod.UID]
			w.blocked = nil
			g.waiting.holdBack(w)
			g.notify()
			return rejected
		}
	}
	g.reserved[pod.UID] = refOf(pod)
	g.leaveLine(pod.UID) // those that were held for its promise are looked at by what is used now
	g.recount(pod.UID, &member{demand: wanted, placed: true})
	return nil
}

// unreserve gives a pod's place back.
func (g *queueGate) unreserve(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, reserved := g.reserved[uid]; !reserved {
		return
	}
	delete(g.reserved, uid)
	g.settle(uid)
}

// hold lets a preemptor with an order count. It calls the informer's store alone.
func (g *queueGate) hold(ref wire.PodRef) {
	g.mu.Lock()
	defer g.mu.Unlock()
	uid := types.UID(ref.UID)
	g.held[uid] = ref
	g.leaveLine(uid)
	if g.usage == nil || g.usage.members[uid] != nil {
		return
	}
	if pod, err := g.pods.Pods(ref.Namespace).Get(ref.Name); err == nil && pod.UID == uid && !ended(pod) {
		bound := pod.Spec.NodeName != ""
		g.count(pod, bound, bound)
	}
}

// release ends that.
func (g *queueGate) release(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.held, uid)
	g.settle(uid)
}

// failed notes that a pod's cycle came to nothing for another reason than the gate, or that it is bound: others may
// have the room that it was woken for.
func (g *queueGate) failed(uid types.UID) {
	if g.none.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaveLine(uid)
}

// look says what keeps a pod out of its queue; nil where nothing does. A pod that is kept out waits in
// line. O(depth × resources); where there are no queues it is one read.
func (g *queueGate) look(pod *v1.Pod, profileMode string) *rejection {
	if g.none.Load() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lookLocked(pod, profileMode)
}

func (g *queueGate) lookLocked(pod *v1.Pod, profileMode string) *rejection {
	if g.knows == noQueues || !g.holds(profileMode, corev1helpers.PodPriority(pod), pod.Namespace) {
		g.leaveLine(pod.UID)
		return nil
	}
	wanted := demandOf(pod)
	if g.knows != inForce {
		return g.awaitLimits(pod, wanted, profileMode)
	}
	wanted.place(g.usage.tree)
	return g.lookFor(pod, wanted, profileMode)
}

// awaitLimits keeps a pod out until it is known whether there are limits, and which.
func (g *queueGate) awaitLimits(pod *v1.Pod, wanted demand, profileMode string) *rejection {
	w := newWaiter(pod, wanted, profileMode)
	w.unlooked = true
	w.about, w.message = unknownLimits, unknownLimits+g.reason()
	g.enterLine(w)
	if g.knows == missing {
		g.waiting.holdBack(w)
	}
	return &rejection{reason: rejectedUnknown, message: w.message}
}

// unknownLimits begins what is said while the limits are not known.
const unknownLimits = "the limits of queues are not known: "

// admit reports why a pod is not to come to a cycle now; nil where it may. One that its queue has room for is
// promised the room until it is reserved or the cycle fails, so that not more come to their cycles than fit: one
// that is rejected there looks unschedulable, and to a cluster autoscaler like a lack of nodes. One that its queue
// has no room for may come where evictions from within the queue may make some, and not again until something
// changes. It is called under the scheduling queue's lock. O(depth × resources × priorities).
func (g *queueGate) admit(pod *v1.Pod, profileMode string) *rejection {
	if g.none.Load() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(pod.Spec.SchedulingGates) > 0 || pod.DeletionTimestamp != nil || g.knows == noQueues ||
		!g.holds(profileMode, corev1helpers.PodPriority(pod), pod.Namespace) {
		g.leaveLine(pod.UID)
		return nil
	}
	wanted := demandOf(pod)
	if g.knows != inForce {
		return g.awaitLimits(pod, wanted, profileMode)
	}
	wanted.place(g.usage.tree)
	if w := g.waiting.pods[pod.UID]; g.usage.members[pod.UID] != nil || w != nil && w.promised && w.like(&wanted) {
		return nil // it has its place
	}
	if rejected := g.lookFor(pod, wanted, profileMode); rejected != nil {
		w := g.waiting.pods[pod.UID]
		if rejected.reason == rejectedMayHelp && !w.tried {
			return nil
		}
		g.waiting.holdBack(w)
		return rejected
	}
	if pod.Spec.SchedulingGroup == nil && limits(wanted.leaf, wanted.needs) {
		// Pods of a group come to their cycle together, and once all are there.
		g.leaveLine(pod.UID)
		w := newWaiter(pod, wanted, profileMode)
		w.admitted = true
		g.waiting.enter(w)
		g.waiting.give(w, g.clock.Now())
		g.notify() // for the promise to end in time
	}
	return nil
}

// limits reports whether a queue or one above it limits what a pod needs.
func limits(leaf *queue, needs []need) bool {
	for _, q := range leaf.line {
		for _, n := range needs {
			if q.max[n.index] != unlimited {
				return true
			}
		}
	}
	return false
}

// tried notes that a cycle has found no victims whose eviction makes room in a pod's queue.
func (g *queueGate) tried(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w := g.waiting.pods[uid]; w != nil && !w.promised {
		w.tried = true
		g.waiting.holdBack(w)
	}
}

// permit lets a pod whose queue is full come to a cycle once more: what kept its preemption may have changed.
func (g *queueGate) permit(uid types.UID) {
	if g.none.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if w := g.waiting.pods[uid]; w != nil {
		w.tried = false
	}
}

// lookFor is look where limits are in force.
func (g *queueGate) lookFor(pod *v1.Pod, wanted demand, profileMode string) *rejection {
	own, before := g.usage.members[pod.UID], g.waiting.pods[pod.UID]
	var promised claims
	if own == nil {
		// Room that others were promised is theirs, unless this pod is more important, or was promised room too.
		least := int64(wanted.priority)
		if before != nil && before.promised {
			least++
		}
		promised = g.waiting.claims(least, before)
	}
	short := g.usage.shortages(wanted.leaf, wanted.needs, own, promised)
	if len(short) == 0 {
		g.waiting.passes(pod.UID)
		return nil
	}
	w := newWaiter(pod, wanted, profileMode)
	w.blockedBy(short)
	w.tried = before != nil && before.tried
	w.flushAt = g.clock.Now().Add(heldFlush)
	g.enterLine(w)
	rejected := &rejection{reason: rejectedFull, message: w.message, room: g.roomFor(wanted, own)}
	if g.usage.mayPreempt(&wanted, own, w.rank) {
		rejected.reason = rejectedMayHelp
	} else {
		g.waiting.holdBack(w)
	}
	return rejected
}

// roomFor is the room in each queue that a pod would enter. O(depth × resources).
func (g *queueGate) roomFor(w demand, own *member) *roomState {
	room := &roomState{gate: g, needs: w.needs, line: w.leaf.line, free: make([][]int64, len(w.leaf.line))}
	for i, q := range w.leaf.line {
		room.free[i] = make([]int64, len(w.needs))
		for j, n := range w.needs {
			room.free[i][j] = unlimited
			if most := q.max[n.index]; most != unlimited {
				room.free[i][j] = most - g.usage.without(q, n.index, own)
			}
		}
	}
	return room
}

// memberAt is what a pod counts for, nil where it does not count.
func (g *queueGate) memberAt(uid types.UID) *member {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.usage == nil {
		return nil
	}
	return g.usage.members[uid]
}

func (g *queueGate) reason() string {
	if g.knows == undecided {
		return "the scheduler has just started"
	}
	return g.why
}

// count takes a pod in as it is now. Callers of this and the following hold the lock.
func (g *queueGate) count(pod *v1.Pod, bound, placed bool) {
	if g.usage == nil {
		return
	}
	g.recount(pod.UID, &member{demand: demandOf(pod), bound: bound, placed: placed, leaving: pod.DeletionTimestamp != nil})
}

func (g *queueGate) recount(uid types.UID, m *member) {
	if before := g.usage.members[uid]; before != nil && m.placed == before.placed && m.leaving == before.leaving && m.like(&before.demand) {
		before.bound = m.bound
		return
	}
	g.relieve(g.usage.forget(uid))
	g.usage.count(uid, m)
}

// settle takes a pod out that nothing lets count any more: it is neither bound nor reserved nor held.
func (g *queueGate) settle(uid types.UID) {
	if g.usage == nil || g.usage.members[uid] == nil || g.usage.members[uid].bound {
		return
	}
	if _, reserved := g.reserved[uid]; reserved {
		return
	}
	if _, held := g.held[uid]; held {
		pending := *g.usage.members[uid]
		pending.placed = false
		g.usage.count(uid, &pending)
		return
	}
	g.relieve(g.usage.forget(uid))
}

func (g *queueGate) drop(uid types.UID) {
	delete(g.reserved, uid)
	delete(g.held, uid)
	g.leaveLine(uid)
	g.waiting.settled(uid)
	g.tellings.forget(uid)
	if g.usage != nil {
		g.relieve(g.usage.forget(uid))
	}
}

// enterLine lets a pod wait, and others have what it was promised.
func (g *queueGate) enterLine(w *waiter) {
	g.leaveLine(types.UID(w.pod.UID))
	g.waiting.enter(w)
}

// leaveLine lets a pod wait no longer, and others have what it was promised.
func (g *queueGate) leaveLine(uid types.UID) { g.relieve(g.waiting.leave(uid)) }

// relieve notes that a queue and those above it hold less.
func (g *queueGate) relieve(leaf *queue) {
	if leaf == nil {
		return
	}
	g.waiting.relieve(leaf)
	g.notify()
}

// ended says whether a pod has ended and uses nothing.
func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// Why the gate rejects a pod; labels of a metric.
const (
	rejectedFull    = "queue_full"       // no eviction within the full queue could make room
	rejectedMayHelp = "victims_may_help" // pods of lower priority in it hold enough
	rejectedUnknown = "limits_unknown"
)

// rejection is why a pod is kept out of its queue.
type rejection struct {
	reason  string
	message string
	room    *roomState // nil where the limits are not known
}

// sentence names what is short, nearest queue first.
func sentence(short []shortage) string {
	parts := make([]string, 0, len(short))
	for _, s := range short {
		parts = append(parts, s.String())
	}
	return strings.Join(parts, "; ")
}

// due takes the waiting pods that may be tried now, and says when to ask again (zero: when something changes).
//
// A standby, whose pods come to no cycle yet, lets promises last.
func (g *queueGate) due(leads bool) (pods []wire.PodRef, next time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting.due(g.usage, g.knows, g.holds, g.clock.Now(), leads)
}

// state is what the metrics show: how many pods wait, and 1 where the gate is shut for want of limits.
func (g *queueGate) state() (waiting int, shut float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.knows == undecided || g.knows == missing {
		shut = 1
	}
	for _, w := range g.waiting.pods {
		if !w.promised {
			waiting++
		}
	}
	return waiting, shut
}
