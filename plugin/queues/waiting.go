package queues

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

// promiseLasts is how long room stays promised to a pod that was activated: longer than it takes to come to
// its cycle, unless the scheduler has thousands before it.
const promiseLasts = 10 * time.Second

// heldFlush is after how long a pod that is kept out is checked again, whatever has happened: as the scheduler
// does with unschedulable pods, though not with those that PreEnqueue holds.
const heldFlush = 5 * time.Minute

// maxChecks bounds how many pods one round checks, and how many promises and times it lets run out, since PreEnqueue
// waits for it.
const maxChecks = 1000

// waitingPod is a pod that the gate keeps out, or that was promised room.
type waitingPod struct {
	demand
	pod         wire.PodRef
	rank        int64 // below which pods may be its victims
	profileMode string
	created     time.Time
	blocked     *queue // where it does not fit, as last checked; nil: that is not known
	beside      beside // what its gang's members held in its queue when it did not fit there in their cycle
	standing
	flushAt       time.Time // when it is checked again in any case
	unschedulable bool      // its condition says so, and cluster autoscalers add nodes for it
	message       string    // why, for people
	about         string    // what every message that says so contains
	turn
}

// standing is how far a waiting pod has come.
type standing struct {
	promised bool // the room for it is spoken for
	passed   bool // it has passed the gate since
	tried    bool // a cycle of its own has found no victims that make room; others are not run until something changes
	held     bool // PreEnqueue holds it, or would: its condition is to say so
}

// turn is where a waiting pod is in the heaps.
type turn struct {
	checked     uint64 // when it was last checked, in ticks; it may not change while the pod is in a heap
	waits       bool   // it is in a heap: of those that are due, or of those that are blocked in the same queue
	links       [orders]heapLinks
	timer       time.Time // when it is due in any case, or its promise ends; zero: it has none
	conditionAt time.Time // when its condition is to be checked; zero: it is not
	urgent      bool      // before those of others
}

func newWaitingPod(pod *v1.Pod, demand demand, profileMode string) *waitingPod {
	return &waitingPod{demand: demand, pod: refOf(pod), rank: rankOf(pod), profileMode: profileMode, created: pod.CreationTimestamp.Time, unschedulable: looksUnschedulable(pod)}
}

// waitingPods are the pods that the gate keeps out, and those that it has let in and that have no place yet. They are
// tried again in this order, each once there is room for it beyond what those before it were promised; one that does not
// fit lets others pass:
//
//  1. higher priority,
//  2. older,
//  3. lower UID.
//
// One that was activated and came back is passed over while it backs off.
//
// A promise ends with the pod's place being reserved, its being turned away, or after a while. Not safe for
// concurrent use.
type waitingPods struct {
	pods       map[types.UID]*waitingPod
	due        *podSet            // to be checked
	blocked    map[*queue]*podSet // the others, by where they do not fit; nil: where that is not known
	timers     podHeap
	conditions conditions
	ticks      uint64                          // counts what may let pods in, and rounds
	freed      map[*queue]uint64               // when a queue has last come to hold less, in ticks
	backoffs   map[types.UID]activationBackoff // of pods that were activated and are not placed
	promised   ranks
	granted    int       // how many of the pods have a promise
	standby    time.Time // promises last at least until then
}

func newWaitingPods() *waitingPods {
	return &waitingPods{
		pods: map[types.UID]*waitingPod{}, due: newPodSet(), blocked: map[*queue]*podSet{}, timers: podHeap{order: byTimer},
		conditions: newConditions(), freed: map[*queue]uint64{}, backoffs: map[types.UID]activationBackoff{},
	}
}

// blockedBy notes where a pod does not fit.
func (w *waitingPod) blockedBy(short []room) {
	w.blocked, w.message, w.about = short[0].queue, sentence(short), "queue "+short[0].queue.path+": "
}

// holdBack notes that a pod is held for its queue, for its condition to say so.
func (l *waitingPods) holdBack(w *waitingPod, now time.Time) {
	w.held = true
	l.conditions.check(w, now.Add(conditionSettle), w.unschedulable)
}

// enter lets a pod wait that does not, and has just been checked.
func (l *waitingPods) enter(w *waitingPod) {
	l.pods[types.UID(w.pod.UID)] = w
	l.rest(w, w.flushAt)
}

// rest leaves a pod, which has just been checked, in peace until the queue where it does not fit holds less, or
// a time (zero: none). O(log waiting).
func (l *waitingPods) rest(w *waitingPod, until time.Time) {
	l.unlink(w)
	w.checked, w.waits = l.ticks, true
	set := l.blocked[w.blocked]
	if set == nil {
		set = newPodSet()
		l.blocked[w.blocked] = set
	}
	set.push(w)
	l.setTimer(w, until)
}

// recheck lets a pod be checked in one of the next rounds. O(log waiting).
func (l *waitingPods) recheck(w *waitingPod) {
	l.unlink(w)
	w.waits, w.blocked = true, nil
	l.due.push(w)
}

// recheckAll lets every pod be checked. O(queues × log waiting).
func (l *waitingPods) recheckAll() {
	for _, set := range l.blocked {
		l.due.meld(set)
	}
}

// unlink takes a pod out of its heaps, where it is in some. O(log waiting).
func (l *waitingPods) unlink(w *waitingPod) {
	if !w.waits {
		return
	}
	w.waits = false
	for order := range l.due {
		in := &l.due[order]
		if w.links[order].up == nil && in.root != w {
			in = &l.blocked[w.blocked][order]
		}
		in.remove(w)
	}
}

// setTimer replaces a pod's timer; the zero time is none. O(log waiting).
func (l *waitingPods) setTimer(w *waitingPod, at time.Time) {
	if !w.timer.IsZero() {
		l.timers.remove(w)
	}
	if w.timer = at; !at.IsZero() {
		l.timers.push(w)
	}
}

// remove lets a pod wait no longer, and takes back what was promised to it: it returns the queue in which, nil where
// nothing was.
func (l *waitingPods) remove(w *waitingPod) *queue {
	delete(l.pods, types.UID(w.pod.UID))
	l.unlink(w)
	l.setTimer(w, time.Time{})
	l.conditions.remove(w)
	if !w.promised {
		return nil
	}
	l.withdraw(w)
	return w.leaf
}

// passes notes that a pod has passed the gate. Its promise lasts until its place is reserved.
func (l *waitingPods) passes(uid types.UID) {
	w := l.pods[uid]
	if w == nil {
		return
	}
	if !w.promised {
		l.remove(w)
		return
	}
	w.passed = true
}

// leave lets a pod wait no longer. It returns the queue in which room was promised to it, nil where none was.
func (l *waitingPods) leave(uid types.UID) *queue {
	w := l.pods[uid]
	if w == nil {
		return nil
	}
	return l.remove(w)
}

// settled forgets how often a pod was activated: it is placed or gone.
func (l *waitingPods) settled(uid types.UID) { delete(l.backoffs, uid) }

// noteFreed notes that a queue and those above it hold less: pods that do not fit there are checked again.
// O(depth × log waiting).
func (l *waitingPods) noteFreed(leaf *queue) {
	l.ticks++
	for _, q := range leaf.line {
		l.freed[q] = l.ticks
		if set := l.blocked[q]; set != nil {
			l.due.meld(set)
		}
	}
}

// isFreed reports whether the queue where a pod does not fit holds less than when the pod was last checked.
func (l *waitingPods) isFreed(w *waitingPod) bool {
	return w.blocked != nil && l.freed[w.blocked] > w.checked
}

// update takes a waiting pod in as it is now, and reports whether that makes a difference.
func (l *waitingPods) update(pod *v1.Pod, tree *queueTree) bool {
	w := l.pods[pod.UID]
	if w == nil || w.promised || tree == nil {
		return false
	}
	now := demandOf(pod)
	if now.like(&w.demand) {
		return false
	}
	now.place(tree)
	l.remove(w)
	w = newWaitingPod(pod, now, w.profileMode)
	l.pods[pod.UID] = w
	l.recheck(w)
	return true
}

// reenter places all waiting pods in another tree, nil for none, and lets them be checked. Promises end.
// O(waiting × (depth + log waiting)).
func (l *waitingPods) reenter(tree *queueTree) {
	l.due, l.blocked, l.timers = newPodSet(), map[*queue]*podSet{}, podHeap{order: byTimer}
	l.freed, l.promised, l.granted = map[*queue]uint64{}, nil, 0
	if tree != nil {
		l.promised = newRanks(tree)
	}
	for uid, w := range l.pods {
		if w.passed {
			l.conditions.remove(w)
			delete(l.pods, uid)
			continue
		}
		w.leaf, w.needs, w.promised, w.tried, w.held = nil, nil, false, false, false
		w.waits, w.timer = false, time.Time{}
		if tree != nil {
			w.place(tree)
		}
		l.recheck(w)
	}
}

// round takes the pods to try now, in order. One that nothing holds any more waits no longer.
// Where more are due than one round checks, half of it goes to the first in order and half to those that were not checked
// for longest, so that none is passed over forever; the others stay due, and next is now. O(log waiting + depth) for
// each pod checked, however many wait.
func (l *waitingPods) round(usage *queueUsage, limitsKnown limitsState, applies ModeApplies, now time.Time, leads bool) (pods []wire.PodRef, next time.Time) {
	l.ticks++
	if !leads {
		l.standby = now.Add(promiseLasts)
	}
	l.runTimers(now)
	checks := l.take(maxChecks/2, byOrder)
	checks = append(checks, l.take(maxChecks/2, byAge)...)
	slices.SortFunc(checks, before)
	for _, w := range checks {
		if l.tryNow(w, usage, limitsKnown, applies, now) {
			pods = append(pods, w.pod)
		}
	}
	switch {
	case !l.due.empty():
		next = now
	case l.timers.root != nil:
		next = l.timers.root.timer
	}
	return pods, next
}

// runTimers ends promises that are over, for any pod may have that room, and lets pods be checked whose time has come.
func (l *waitingPods) runTimers(now time.Time) {
	for range maxChecks {
		w := l.timers.root
		if w == nil || now.Before(w.timer) {
			return
		}
		switch {
		case w.promised && now.Before(l.standby):
			l.setTimer(w, l.standby)
		case w.promised:
			l.withdraw(w)
			l.setTimer(w, time.Time{})
			l.noteFreed(w.leaf)
			if w.passed {
				l.remove(w)
				continue
			}
			l.recheck(w)
		default:
			if !w.flushAt.IsZero() && !now.Before(w.flushAt) {
				w.tried, w.flushAt = false, now.Add(heldFlush)
			}
			l.setTimer(w, time.Time{})
			l.recheck(w)
		}
	}
}

// take takes so many of the pods that are due, the first in an order.
func (l *waitingPods) take(n, order int) []*waitingPod {
	var taken []*waitingPod
	for len(taken) < n && !l.due.empty() {
		w := l.due[order].root
		if l.isFreed(w) {
			w.tried = false
		}
		l.unlink(w)
		taken = append(taken, w)
	}
	return taken
}

// tryNow reports whether a pod is to be tried now. It is in no heap before; afterwards it rests, has a promise, or waits
// no longer.
func (l *waitingPods) tryNow(w *waitingPod, usage *queueUsage, limitsKnown limitsState, applies ModeApplies, now time.Time) bool {
	if limitsKnown == noQueues || !applies(w.profileMode, w.priority, w.namespace) {
		l.remove(w)
		return true
	}
	if limitsKnown != inForce {
		w.blocked = nil
		l.rest(w, time.Time{})
		return false
	}
	uid := types.UID(w.pod.UID)
	own := usage.placedOf(uid)
	if short := usage.shortages(w.leaf, usage.needsOf(&w.demand, w.beside), own, l.promisedTo(int64(w.priority), w)); len(short) > 0 {
		w.blockedBy(short)
		if !now.Before(w.flushAt) {
			w.flushAt = now.Add(heldFlush)
		}
		l.rest(w, w.flushAt)
		return l.mayActivate(w, now, usage.mayPreempt(&w.demand, own, w.rank))
	}
	backoff := l.backoffs[uid]
	if !backoff.over(now) {
		w.blocked = nil
		l.rest(w, backoff.until)
		return false
	}
	l.backoffs[uid] = backoff.next(now)
	w.passed, w.held = false, false
	l.grant(w, now)
	return true
}

// mayActivate reports whether a pod that does not fit may come to a cycle, where preemption may help. Otherwise its condition
// is to say why it waits.
func (l *waitingPods) mayActivate(w *waitingPod, now time.Time, mayPreempt bool) bool {
	uid := types.UID(w.pod.UID)
	if mayPreempt && !w.tried && l.backoffs[uid].over(now) {
		l.backoffs[uid] = l.backoffs[uid].next(now)
		return true
	}
	if !w.held {
		l.holdBack(w, now)
	}
	return false
}

// grant promises a pod its room.
func (l *waitingPods) grant(w *waitingPod, now time.Time) {
	l.unlink(w)
	w.promised = true
	l.setTimer(w, now.Add(promiseLasts))
	l.promised.add(w.leaf, w.priority, w.needs, 1, 1)
	l.granted++
}

// withdraw takes a promise back.
func (l *waitingPods) withdraw(w *waitingPod) {
	w.promised = false
	l.promised.add(w.leaf, w.priority, w.needs, 1, -1)
	l.granted--
}

// promisedTo is what pods of at least a priority were promised, besides one. O(priorities) each.
func (l *waitingPods) promisedTo(least int64, own *waitingPod) promisedAmount {
	return func(q *queue, index int) int64 {
		total := l.promised.held(q, index, func(priority int64) bool { return priority >= least })
		if own != nil && own.promised && int64(own.priority) >= least {
			total -= own.in(q, index)
		}
		return total
	}
}
