package bridge

import (
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

// next is the pace after one more wake.
func (p pace) next(now time.Time) pace {
	if now.After(p.until.Add(longestWakePause)) {
		p.wakes = 0
	}
	pause := min(firstWakePause<<min(p.wakes, 10), longestWakePause)
	return pace{wakes: p.wakes + 1, until: now.Add(pause)}
}

// waiter is a pod that the gate keeps out.
type waiter struct {
	demand
	pod         wire.PodRef
	profileMode string
	created     time.Time
	blocked     *queue    // where it does not fit, as last looked; nil: look again
	promised    bool      // woken; the room for it is spoken for
	until       time.Time // of the promise
	passed      bool      // it has passed the gate since
	unlooked    bool      // kept out before the limits were known
}

func newWaiter(pod *v1.Pod, demand demand, profileMode string) *waiter {
	return &waiter{demand: demand, pod: refOf(pod), profileMode: profileMode, created: pod.CreationTimestamp.Time}
}

// waitingLine are the pods that the gate keeps out. They are tried again in this order, each once there is
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
	pods     map[types.UID]*waiter
	relieved map[*queue]bool    // hold less than when they were last looked at
	paces    map[types.UID]pace // of pods that were woken and are not placed
	all      bool               // every pod is to be looked at again
	promised [][]int64          // by queue's number and resource's index
}

func newWaitingLine() *waitingLine {
	return &waitingLine{pods: map[types.UID]*waiter{}, relieved: map[*queue]bool{}, paces: map[types.UID]pace{}}
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
		l.promised = make([][]int64, len(tree.queues))
		for i := range l.promised {
			l.promised[i] = make([]int64, len(tree.names))
		}
	}
	for uid, w := range l.pods {
		if w.passed {
			delete(l.pods, uid)
			continue
		}
		w.leaf, w.needs, w.blocked, w.promised = nil, nil, nil, false
		if tree != nil {
			w.place(tree)
		}
	}
}

// due takes the pods to try now, in order. Where nothing holds a pod any more it leaves the line.
// O(waiting), and O(depth) for each pod at a queue that holds less than before.
func (l *waitingLine) due(usage *queueUsage, knows knowledge, holds governs, now time.Time) (pods []wire.PodRef, next time.Time) {
	// All promises that are over end first: any pod may have that room.
	for uid, w := range l.pods {
		if !w.promised || now.Before(w.until) {
			continue
		}
		l.promise(w, -1)
		l.relieve(w.leaf)
		w.promised, w.blocked = false, nil
		if w.passed {
			delete(l.pods, uid)
		}
	}
	soon := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	var look []*waiter
	for _, w := range l.pods {
		switch {
		case w.promised:
			soon(w.until)
		case l.all || w.blocked == nil || l.relieved[w.blocked]:
			look = append(look, w)
		}
	}
	l.all = false
	clear(l.relieved)

	slices.SortFunc(look, before)
	for _, w := range look {
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
		if short := usage.shortages(w.leaf, w.needs, own, l.promised); len(short) > 0 {
			w.blocked = short[0].queue
			if w.unlooked {
				// It is tried once more, for its condition to say what it really waits for.
				w.unlooked = false
				pods = append(pods, w.pod)
			}
			continue
		}
		paced := l.paces[uid]
		if now.Before(paced.until) {
			w.blocked = nil // to be looked at again then
			soon(paced.until)
			continue
		}
		l.paces[uid] = paced.next(now)
		w.promised, w.passed, w.unlooked, w.until = true, false, false, now.Add(promiseLasts)
		l.promise(w, 1)
		soon(w.until)
		pods = append(pods, w.pod)
	}
	return pods, next
}

func (l *waitingLine) promise(w *waiter, sign int64) {
	for _, q := range w.leaf.line {
		for _, n := range w.needs {
			l.promised[q.number][n.index] += sign * n.value
		}
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
