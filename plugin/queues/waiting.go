package queues

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
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
	grouped     bool   // its group comes to a cycle together
	group       string // of that name
	rank        int64  // below which pods may be its victims
	profileMode string
	created     time.Time
	standing
	turn
	flushAt       time.Time // when it is checked again in any case
	unschedulable bool      // its condition says so, and cluster autoscalers add nodes for it
	message       string    // why, for people
	about         string    // what every message that says so contains
}

// standing is how far a waiting pod has come.
type standing struct {
	promised bool // the room for it is spoken for
	queued   bool // the scheduler's queue has asked for it since it was kept out: its cycle will come
	passed   bool // it has passed the gate since
	tried    bool // a cycle of its own has found no victims that make room; others are not run until something changes
	held     bool // PreEnqueue holds it, or would: its condition is to say so
}

// turn is when a waiting pod is checked.
type turn struct {
	due         bool      // in the next rounds, whatever has happened
	blocked     *queue    // else once this queue holds less, the topmost where it does not fit, as last checked; nil: that is not known
	checked     uint64    // when it was last checked, in ticks
	timer       time.Time // when it is due in any case, or its promise ends; zero: never
	conditionAt time.Time // when its condition is to be checked; zero: it is not
}

// before compares waiting pods as they are to be tried.
func before(a, b *waitingPod) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), a.created.Compare(b.created), strings.Compare(a.pod.UID, b.pod.UID))
}

func newWaitingPod(pod *v1.Pod, demand demand, profileMode string) *waitingPod {
	return &waitingPod{demand: demand, pod: refOf(pod), grouped: minor.InGroup(pod), group: minor.GroupName(pod), rank: rankOf(pod), profileMode: profileMode, created: pod.CreationTimestamp.Time, unschedulable: looksUnschedulable(pod)}
}

// waitingPods are the pods that the gate keeps out, and those that it has let in and that have no place yet. They are
// tried again in this order, each once there is room for it beyond what those before it were promised; one that does not
// fit lets others pass:
//
//  1. higher priority,
//  2. older,
//  3. lower UID.
//
// One that was activated and came back, or did not come, is passed over while it backs off.
//
// A promise ends with the pod's place being reserved, its being turned away, or after a while. Not safe for
// concurrent use.
type waitingPods struct {
	pods     map[types.UID]*waitingPod
	line     []*waitingPod                   // the same in the order in which they are to be tried
	last     *waitingPod                     // in the line, up to which those have been checked that are not among the first
	timers   time.Time                       // before which no timer of a pod is over
	ticks    uint64                          // counts what may let pods in, and rounds
	rounded  uint64                          // when the last round has looked at them, in ticks
	freed    []uint64                        // when a queue has last come to hold less, in ticks, by its number in the tree
	backoffs map[types.UID]activationBackoff // of pods that were activated and are not placed
	promised ranks
	granted  int       // how many of the pods have a promise
	standby  time.Time // promises last at least until then
}

func newWaitingPods() *waitingPods {
	return &waitingPods{pods: map[types.UID]*waitingPod{}, backoffs: map[types.UID]activationBackoff{}}
}

// blockedBy notes where a pod does not fit. It is checked again once the topmost of those queues holds less, as that does whenever one
// below it does: with less there it may preempt in a lower one that is full still.
func (w *waitingPod) blockedBy(short []room) {
	w.blocked, w.message, w.about = short[len(short)-1].queue, sentence(short), "queue "+short[0].queue.path+": "
}

// holdBack notes that a pod is held for its queue, for its condition to say so.
func (w *waitingPod) holdBack(now time.Time) {
	w.held = true
	w.checkCondition(now.Add(conditionSettle))
}

// checkCondition has a pod's condition checked at a time, or when it was to be checked before that.
func (w *waitingPod) checkCondition(at time.Time) {
	w.conditionAt = goroutines.Sooner(w.conditionAt, at)
}

// enter lets a pod wait that does not, and has just been checked. Its place in the line is found in O(log waiting), and what follows moves.
func (l *waitingPods) enter(w *waitingPod) {
	l.pods[types.UID(w.pod.UID)] = w
	at, _ := slices.BinarySearchFunc(l.line, w, before)
	l.line = slices.Insert(l.line, at, w)
	l.rest(w, w.flushAt)
}

// rest leaves a pod, which has just been checked, in peace until the queue where it does not fit holds less, or
// a time (zero: none).
func (l *waitingPods) rest(w *waitingPod, until time.Time) {
	w.due, w.checked = false, l.ticks
	l.setTimer(w, until)
}

// setTimer sets when a pod is due in any case, or its promise ends; zero: never.
func (l *waitingPods) setTimer(w *waitingPod, at time.Time) {
	w.timer = at
	l.timers = goroutines.Sooner(l.timers, at)
}

// recheckAll lets every pod be checked that has no promise. O(waiting).
func (l *waitingPods) recheckAll() {
	for _, w := range l.line {
		w.due = w.due || !w.promised
	}
}

// remove lets a pod wait no longer, and takes back what was promised to it: it returns the queue in which, nil where
// nothing was.
func (l *waitingPods) remove(w *waitingPod) *queue {
	delete(l.pods, types.UID(w.pod.UID))
	if at, found := slices.BinarySearchFunc(l.line, w, before); found {
		l.line = slices.Delete(l.line, at, at+1)
	}
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

// noteFreed notes that a queue and those above it hold less: pods that do not fit there are checked again. O(depth).
func (l *waitingPods) noteFreed(leaf *queue) {
	l.ticks++
	for _, q := range leaf.line {
		l.freed[q.number] = l.ticks
	}
}

// isFreed reports whether the queue where a pod does not fit holds less than when the pod was last checked.
func (l *waitingPods) isFreed(w *waitingPod) bool {
	return w.blocked != nil && l.freed[w.blocked.number] > w.checked
}

// comesLater reports whether one of the first in line comes before a new pod, and waits where that would enter and room was made since the
// last round. It looks at no more of them than a round checks, since PreEnqueue waits for it.
func (l *waitingPods) comesLater(w *waitingPod) bool {
	return slices.ContainsFunc(w.leaf.line, func(q *queue) bool { return l.freed[q.number] > l.rounded }) &&
		slices.ContainsFunc(l.line[:min(len(l.line), maxChecks)], func(other *waitingPod) bool {
			return !other.promised && l.isFreed(other) && other.blocked.holds(w.leaf) && before(other, w) < 0
		})
}

// update takes a waiting pod in as it is now, and reports whether that makes a difference. A promise ends with what it was made for.
func (l *waitingPods) update(pod *v1.Pod, tree *queueTree) bool {
	w := l.pods[pod.UID]
	if w == nil {
		return false
	}
	now := demandOf(pod)
	if now.like(&w.demand) {
		return false
	}
	if leaf := l.remove(w); leaf != nil {
		l.noteFreed(leaf)
	}
	w.demand, w.standing = now, standing{held: w.held && tree == nil}
	if tree != nil {
		w.place(tree)
	}
	l.enter(w)
	w.due = true
	return true
}

// reenter places all waiting pods in another tree, nil for none, and lets them be checked. Promises end. O(waiting × depth).
func (l *waitingPods) reenter(tree *queueTree) {
	l.freed, l.promised, l.granted = nil, nil, 0
	if tree != nil {
		l.freed, l.promised = make([]uint64, len(tree.queues)), newRanks(tree)
	}
	l.line = slices.DeleteFunc(l.line, func(w *waitingPod) bool { return w.passed })
	clear(l.pods)
	for _, w := range l.line {
		l.pods[types.UID(w.pod.UID)] = w
		w.leaf, w.needs, w.standing = nil, nil, standing{}
		w.turn = turn{due: true, conditionAt: w.conditionAt}
		if tree != nil {
			w.place(tree)
		}
	}
}

// round takes the pods to try now, in order. One that nothing holds any more waits no longer.
// Where more are due than one round checks, half of it goes to the first in order, and half to those after the ones that were checked so
// in the round before, so that none is passed over forever; the others stay due, and next is now. It looks once at all that wait, and at the
// times that are over where one is, and checks so many of them alone.
func (l *waitingPods) round(usage *queueUsage, none bool, applies ModeApplies, now time.Time, leads bool) (pods []wire.PodRef, next time.Time) {
	l.ticks++
	if !leads {
		l.standby = now.Add(promiseLasts)
	}
	if !l.timers.IsZero() && !now.Before(l.timers) {
		l.runTimers(now)
	}
	l.rounded = l.ticks
	taken, more := l.take()
	for _, w := range taken {
		if l.tryNow(w, usage, none, applies, now) {
			pods = append(pods, w.pod)
		}
	}
	if more {
		return pods, now
	}
	return pods, l.timers
}

// isDue reports whether a pod is to be checked.
func (l *waitingPods) isDue(w *waitingPod) bool { return w.due || !w.promised && l.isFreed(w) }

// runTimers ends promises that are over, for any pod may have that room, and lets pods be checked whose time has come.
func (l *waitingPods) runTimers(now time.Time) {
	var ended []*waitingPod
	l.timers = time.Time{}
	for _, w := range l.line {
		if !w.timer.IsZero() && !now.Before(w.timer) && len(ended) < maxChecks {
			ended = append(ended, w)
			continue
		}
		l.timers = goroutines.Sooner(l.timers, w.timer)
	}
	for _, w := range ended {
		switch {
		case w.promised && now.Before(l.standby):
			l.setTimer(w, l.standby)
			continue
		case w.promised:
			l.withdraw(w)
			l.noteFreed(w.leaf)
			if w.passed {
				l.remove(w)
				continue
			}
			if uid := types.UID(w.pod.UID); !w.queued { // something else keeps it from a cycle, and others may have the room
				l.backoffs[uid] = l.backoffs[uid].next(now)
			}
		case !w.flushAt.IsZero() && !now.Before(w.flushAt):
			w.tried, w.flushAt = false, now.Add(heldFlush)
		}
		w.due, w.timer = true, time.Time{}
	}
}

// take are the pods to check in a round, in order, and whether others are due.
func (l *waitingPods) take() (taken []*waitingPod, more bool) {
	const half = maxChecks / 2
	goesOn := 0 // in the line, after the ones that were checked in the round before
	if l.last != nil {
		at, found := slices.BinarySearchFunc(l.line, l.last, before)
		if goesOn = at; found {
			goesOn++
		}
	}
	var later []*waitingPod
	for i, w := range l.line {
		if !l.isDue(w) {
			continue
		}
		if i >= goesOn && len(taken) >= half && len(later) < half {
			later = append(later, w)
		}
		if more = len(taken) == maxChecks; !more {
			taken = append(taken, w)
		}
	}
	if more {
		taken = append(taken[:maxChecks-len(later)], later...)
		l.last = taken[len(taken)-1]
		if len(later) < half { // the first of those after goesOn come after the last in the line
			l.last = taken[maxChecks-len(later)-1]
		}
	}
	for _, w := range taken {
		if l.isFreed(w) {
			w.tried = false
		}
	}
	return taken, more
}

// tryNow reports whether a pod is to be tried now. Afterwards it rests, has a promise, or waits no longer. One of a group is promised
// nothing: it comes to its cycle with the others, and may be kept out there again. Nor is one with an order, whose place counts.
func (l *waitingPods) tryNow(w *waitingPod, usage *queueUsage, none bool, applies ModeApplies, now time.Time) bool {
	if none || !applies(w.profileMode, w.priority, w.namespace) {
		l.remove(w)
		return true
	}
	if usage.tree == nil {
		w.blocked = nil
		l.rest(w, time.Time{})
		return false
	}
	uid := types.UID(w.pod.UID)
	own := usage.placedOf(uid)
	if short := usage.shortages(w.leaf, w.needs, own, l.promisedTo(int64(w.priority), w)); len(short) > 0 {
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
	if w.grouped || own != nil {
		l.remove(w)
	} else {
		l.grant(w, now)
	}
	return true
}

// mayActivate reports whether a pod that does not fit may come to a cycle, where preemption may help. Otherwise its condition
// is to say why it waits.
func (l *waitingPods) mayActivate(w *waitingPod, now time.Time, mayPreempt bool) bool {
	uid := types.UID(w.pod.UID)
	if mayPreempt && !w.tried {
		backoff := l.backoffs[uid]
		if backoff.over(now) {
			l.backoffs[uid] = backoff.next(now)
			return true
		}
		l.setTimer(w, backoff.until)
	}
	if !w.held {
		w.holdBack(now)
	}
	return false
}

// grant promises a pod its room.
func (l *waitingPods) grant(w *waitingPod, now time.Time) {
	w.due, w.promised = false, true
	l.setTimer(w, now.Add(promiseLasts))
	l.promised.add(w.leaf, w.priority, w.needs, 1)
	l.granted++
}

// withdraw takes a promise back.
func (l *waitingPods) withdraw(w *waitingPod) {
	w.promised = false
	l.promised.add(w.leaf, w.priority, w.needs, -1)
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
