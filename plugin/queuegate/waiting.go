package queuegate

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

// promiseLasts is how long room stays promised to a pod that was woken: longer than it takes to come to
// its cycle, unless the scheduler has thousands before it.
const promiseLasts = 10 * time.Second

// A pod that was woken is not woken again before firstWakePause is over; that doubles with each time up to
// longestWakePause, as the scheduler's own back-off does (podInitialBackoff, podMaxBackoff).
const (
	firstWakePause   = time.Second
	longestWakePause = 10 * time.Second
)

// pace is how often a pod has been woken in vain, and until when it is left in peace.
type pace struct {
	wakes int
	until time.Time
}

// over reports whether the pod may be woken.
func (p pace) over(now time.Time) bool { return !now.Before(p.until) }

// next is the pace after one more wake.
func (p pace) next(now time.Time) pace {
	if now.After(p.until.Add(longestWakePause)) {
		p.wakes = 0
	}
	pause := min(firstWakePause<<min(p.wakes, 10), longestWakePause)
	return pace{wakes: p.wakes + 1, until: now.Add(pause)}
}

// heldFlush is after how long a pod that is kept out is looked at again, whatever has happened: as the scheduler
// does with unschedulable pods, though not with those that PreEnqueue holds.
const heldFlush = 5 * time.Minute

// mostLooks bounds how many pods one round looks at, since PreEnqueue waits for it.
const mostLooks = 1000

// waiter is a pod that the gate keeps out, or that was promised room.
type waiter struct {
	demand
	pod           wire.PodRef
	rank          int64 // below which pods may be its victims
	profileMode   string
	created       time.Time
	blocked       *queue    // where it does not fit, as last looked; nil: look again
	promised      bool      // the room for it is spoken for
	admitted      bool      // promised as it came, and not woken from the line
	until         time.Time // of the promise
	passed        bool      // it has passed the gate since
	unlooked      bool      // kept out before the limits were known
	tried         bool      // a cycle of its own has found no victims that make room; others are not run until something changes
	flushAt       time.Time // when it is looked at again in any case
	held          bool      // PreEnqueue holds it, or would: its condition is to say so
	unschedulable bool      // its condition says so, and cluster autoscalers add nodes for it
	message       string    // why, for people
	about         string    // what every message that says so contains
	marked        uint64    // the round in which it was found to be due; 0: it is not
	pacedUntil    time.Time // it was woken and came back; with blocked nil it is looked at again then
}

func newWaiter(pod *v1.Pod, demand demand, profileMode string) *waiter {
	return &waiter{demand: demand, pod: refOf(pod), rank: rankOf(pod), profileMode: profileMode, created: pod.CreationTimestamp.Time, unschedulable: looksUnschedulable(pod)}
}

// waitingLine are the pods that the gate keeps out, and those that it has let in and that have no place yet. They are tried again in this order, each once there is
// room for it beyond what those before it were promised; one that does not fit lets others pass:
//
//  1. higher priority,
//  2. older,
//  3. lower UID.
//
// One that was woken and came back is passed over while it backs off.
//
// A promise ends with the pod's place being reserved, its being turned away, or after a while. Not safe for
// concurrent use.
type waitingLine struct {
	tell func(uid types.UID, urgent bool) // told of pods whose condition is to say that their queue holds them

	pods     map[types.UID]*waiter
	relieved map[*queue]bool     // hold less than when they were last looked at
	paces    map[types.UID]pace  // of pods that were woken and are not placed
	all      bool                // every pod is to be looked at again
	round    uint64              // of due
	promised []map[int32][]int64 // by queue's number and priority: how many pods, and what by resource's index plus 1
}

func newWaitingLine(tell func(uid types.UID, urgent bool)) *waitingLine {
	return &waitingLine{tell: tell, pods: map[types.UID]*waiter{}, relieved: map[*queue]bool{}, paces: map[types.UID]pace{}}
}

// blockedBy notes where a pod does not fit.
func (w *waiter) blockedBy(short []shortage) {
	w.blocked, w.message, w.about = short[0].queue, sentence(short), "queue "+short[0].queue.path+": "
}

// holdBack notes that a pod is held for its queue, for its condition to say so.
func (l *waitingLine) holdBack(w *waiter) {
	w.held = true
	l.tell(types.UID(w.pod.UID), w.unschedulable)
}

// enter lets a pod wait that does not.
func (l *waitingLine) enter(w *waiter) { l.pods[types.UID(w.pod.UID)] = w }

// passes notes that a pod has passed the gate. Its promise lasts until its place is reserved.
func (l *waitingLine) passes(uid types.UID) {
	w := l.pods[uid]
	if w == nil {
		return
	}
	if !w.promised {
		delete(l.pods, uid)
		return
	}
	w.passed = true
}

// leave lets a pod wait no longer. It gives the queue in which room was promised to it, nil where none was.
func (l *waitingLine) leave(uid types.UID) *queue {
	w := l.pods[uid]
	if w == nil {
		return nil
	}
	delete(l.pods, uid)
	if !w.promised {
		return nil
	}
	l.promise(w, -1)
	return w.leaf
}

// settled forgets how often a pod was woken: it is placed or gone.
func (l *waitingLine) settled(uid types.UID) { delete(l.paces, uid) }

// relieve notes that a queue and those above it hold less.
func (l *waitingLine) relieve(leaf *queue) {
	for _, q := range leaf.line {
		l.relieved[q] = true
	}
}

// update takes a waiting pod in as it is now, and says whether that makes a difference.
func (l *waitingLine) update(pod *v1.Pod, tree *queueTree) bool {
	w := l.pods[pod.UID]
	if w == nil || w.promised || tree == nil {
		return false
	}
	now := demandOf(pod)
	if now.like(&w.demand) {
		return false
	}
	now.place(tree)
	l.pods[pod.UID] = newWaiter(pod, now, w.profileMode)
	return true
}

// reenter places all waiting pods in another tree, nil for none. Promises end.
func (l *waitingLine) reenter(tree *queueTree) {
	l.relieved, l.promised = map[*queue]bool{}, nil
	if tree != nil {
		l.promised = make([]map[int32][]int64, len(tree.queues))
		for i := range l.promised {
			l.promised[i] = map[int32][]int64{}
		}
	}
	for uid, w := range l.pods {
		if w.passed || w.admitted {
			delete(l.pods, uid)
			continue
		}
		w.leaf, w.needs, w.blocked, w.promised, w.tried = nil, nil, nil, false, false
		if tree != nil {
			w.place(tree)
		}
	}
}

// due takes the pods to try now, in order. Where nothing holds a pod any more it leaves the line.
// Where more are due than one round looks at, half of it goes to the first in order and half to those that were due first,
// so that none is passed over for ever; the others stay due, and next is now. O(waiting), and O(depth) for each looked at.
func (l *waitingLine) due(usage *queueUsage, knows knowledge, holds Applies, now time.Time, leads bool) (pods []wire.PodRef, next time.Time) {
	// All promises that are over end first: any pod may have that room.
	for uid, w := range l.pods {
		if w.promised && !leads {
			w.until = now.Add(promiseLasts)
		}
		if !w.promised || now.Before(w.until) {
			continue
		}
		l.promise(w, -1)
		l.relieve(w.leaf)
		w.promised, w.blocked = false, nil
		if w.passed || w.admitted {
			delete(l.pods, uid)
		}
	}
	soon := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	var look []*waiter
	l.round++
	for _, w := range l.pods {
		again := w.blocked != nil && l.relieved[w.blocked]
		if again {
			w.tried = false
		}
		switch {
		case w.promised:
			soon(w.until)
			continue
		case !w.flushAt.IsZero() && !now.Before(w.flushAt):
			w.tried, w.flushAt = false, now.Add(heldFlush)
		case l.all || again || w.marked != 0:
		case w.blocked == nil:
			if now.Before(w.pacedUntil) {
				soon(w.pacedUntil)
				continue
			}
		default:
			if !w.flushAt.IsZero() {
				soon(w.flushAt)
			}
			continue
		}
		if w.marked == 0 {
			w.marked = l.round
		}
		look = append(look, w)
	}
	l.all = false
	clear(l.relieved)

	if knows == inForce && len(look) > mostLooks {
		look = nextLooks(look)
		soon(now)
	}
	slices.SortFunc(look, before)
	for _, w := range look {
		w.marked = 0
		if knows == noQueues || !holds(w.profileMode, w.priority, w.namespace) {
			delete(l.pods, types.UID(w.pod.UID))
			pods = append(pods, w.pod)
			continue
		}
		if knows != inForce {
			continue
		}
		uid := types.UID(w.pod.UID)
		own := usage.members[uid]
		if short := usage.shortages(w.leaf, w.needs, own, l.claims(int64(w.priority), w)); len(short) > 0 {
			w.blockedBy(short)
			if w.flushAt.IsZero() {
				w.flushAt = now.Add(heldFlush)
			}
			soon(w.flushAt)
			if l.mayTry(w, now, usage.mayPreempt(&w.demand, own, w.rank)) {
				pods = append(pods, w.pod)
			}
			continue
		}
		paced := l.paces[uid]
		if !paced.over(now) {
			w.blocked, w.pacedUntil = nil, paced.until // to be looked at again then
			soon(paced.until)
			continue
		}
		l.paces[uid] = paced.next(now)
		w.passed, w.unlooked, w.held = false, false, false
		l.give(w, now)
		soon(w.until)
		pods = append(pods, w.pod)
	}
	return pods, next
}

// nextLooks are the pods of one round, of more that are due.
func nextLooks(due []*waiter) []*waiter {
	chosen := leading(due, mostLooks/2, before)
	for _, w := range chosen {
		w.marked = 0
	}
	left := make([]*waiter, 0, len(due))
	for _, w := range due {
		if w.marked != 0 {
			left = append(left, w)
		}
	}
	return append(chosen, leading(left, mostLooks/2, func(a, b *waiter) int {
		return cmp.Or(cmp.Compare(a.marked, b.marked), before(a, b))
	})...)
}

// leading are the first n of waiters in an order, in any order themselves. O(waiters × log n), and hardly more than
// O(waiters).
func leading(waiters []*waiter, n int, order func(a, b *waiter) int) []*waiter {
	last := &lastFirst{order: order}
	for _, w := range waiters {
		switch {
		case len(last.waiters) < n:
			heap.Push(last, w)
		case order(w, last.waiters[0]) < 0:
			last.waiters[0] = w
			heap.Fix(last, 0)
		}
	}
	return last.waiters
}

// lastFirst is a heap whose root is the last in order.
type lastFirst struct {
	waiters []*waiter
	order   func(a, b *waiter) int
}

func (h *lastFirst) Len() int           { return len(h.waiters) }
func (h *lastFirst) Less(i, j int) bool { return h.order(h.waiters[i], h.waiters[j]) > 0 }
func (h *lastFirst) Swap(i, j int)      { h.waiters[i], h.waiters[j] = h.waiters[j], h.waiters[i] }

// Push implements heap.Interface.
func (h *lastFirst) Push(w any) {
	if w, ok := w.(*waiter); ok {
		h.waiters = append(h.waiters, w)
	}
}

// Pop implements heap.Interface.
func (h *lastFirst) Pop() any {
	end := len(h.waiters) - 1
	w := h.waiters[end]
	h.waiters = h.waiters[:end]
	return w
}

// mayTry reports whether a pod that does not fit may come to a cycle, where preemption may help. Otherwise its condition
// is to say why it waits.
func (l *waitingLine) mayTry(w *waiter, now time.Time, mayPreempt bool) bool {
	uid := types.UID(w.pod.UID)
	if mayPreempt && !w.tried && l.paces[uid].over(now) {
		l.paces[uid] = l.paces[uid].next(now)
		w.unlooked = false
		return true
	}
	if w.unlooked || !w.held {
		l.holdBack(w)
	}
	w.unlooked = false
	return false
}

// give promises a pod its room.
func (l *waitingLine) give(w *waiter, now time.Time) {
	w.promised, w.until = true, now.Add(promiseLasts)
	l.promise(w, 1)
}

func (l *waitingLine) promise(w *waiter, sign int64) {
	for _, q := range w.leaf.line {
		ranks := l.promised[q.number]
		rank := ranks[w.priority]
		if rank == nil {
			rank = make([]int64, 1+len(q.max))
			ranks[w.priority] = rank
		}
		for _, n := range w.needs {
			rank[1+n.index] += sign * n.value
		}
		if rank[0] += sign; rank[0] == 0 {
			delete(ranks, w.priority)
		}
	}
}

// claims is what pods of at least a priority were promised, besides one. O(priorities) each.
func (l *waitingLine) claims(least int64, own *waiter) claims {
	return func(q *queue, index int) int64 {
		var total int64
		for priority, rank := range l.promised[q.number] {
			if int64(priority) >= least {
				total += rank[1+index]
			}
		}
		if own != nil && own.promised && int64(own.priority) >= least && q.holds(own.leaf) {
			for _, n := range own.needs {
				if n.index == index {
					total -= n.value
				}
			}
		}
		return total
	}
}

func before(a, b *waiter) int {
	switch {
	case a.priority != b.priority:
		if a.priority > b.priority {
			return -1
		}
		return 1
	case !a.created.Equal(b.created):
		return a.created.Compare(b.created)
	}
	return strings.Compare(a.pod.UID, b.pod.UID)
}
