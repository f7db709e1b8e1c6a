package queues

import (
	"cmp"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"makeway.dev/makeway/plugin/internal/minor"
)

// check reports what keeps a pod out of its queue in its cycle; nil where nothing does. A pod that is kept out waits in
// line. O(depth × resources); where there are no queues it is one read.
func (g *Gate) check(pod *v1.Pod, profileMode string) *Rejection {
	return g.judge(pod, profileMode, true, func(wanted demand) *Rejection { return g.checkDemand(pod, wanted, profileMode) })
}

// judge has a pod judged by what it asks of its queue, where queues hold it; it waits until the limits are known. comes: it may come to a
// cycle otherwise. Where there are no queues it is one read.
func (g *Gate) judge(pod *v1.Pod, profileMode string, comes bool, judged func(wanted demand) *Rejection) *Rejection {
	if g.none.Load() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !comes || g.none.Load() || !g.applies(profileMode, corev1helpers.PodPriority(pod), pod.Namespace) {
		g.removeWaiting(pod.UID)
		return nil
	}
	wanted := demandOf(pod)
	if g.usage.tree == nil {
		return g.awaitLimits(pod, wanted, profileMode)
	}
	wanted.place(g.usage.tree)
	return judged(wanted)
}

// awaitLimits keeps a pod out until it is known whether there are limits, and which.
func (g *Gate) awaitLimits(pod *v1.Pod, wanted demand, profileMode string) *Rejection {
	w := newWaitingPod(pod, wanted, profileMode)
	w.about, w.message = unknownLimits, unknownLimits+cmp.Or(g.why, "the scheduler has just started")
	g.addWaiting(w)
	if g.why != "" {
		w.holdBack(g.clock.Now())
	}
	return &Rejection{gate: g, reason: rejectedUnknown, message: w.message}
}

// unknownLimits begins what is said while the limits are not known.
const unknownLimits = "the limits of queues are not known: "

// Admit reports why a pod is not to come to a cycle now; nil where it may. One that its queue has room for is
// promised the room until it is reserved or the cycle fails, so that not more come to their cycles than fit: one
// that is rejected there looks unschedulable, and to a cluster autoscaler like a lack of nodes. One that its queue
// has no room for may come where evictions from within the queue may make some, and not again until something
// changes. It is called under the scheduling queue's lock. O(depth × resources × priorities).
func (g *Gate) Admit(pod *v1.Pod, profileMode string) (rejected *Rejection) {
	defer func() { rejected.count() }()
	comes := len(pod.Spec.SchedulingGates) == 0 && pod.DeletionTimestamp == nil
	return g.judge(pod, profileMode, comes, func(wanted demand) *Rejection { return g.admit(pod, wanted, profileMode) })
}

// admit is Admit where limits are in force.
func (g *Gate) admit(pod *v1.Pod, wanted demand, profileMode string) *Rejection {
	switch w := g.waiting.pods[pod.UID]; {
	case g.usage.members[pod.UID] != nil: // it has its place
		return nil
	case w != nil && w.promised && w.like(&wanted):
		w.queued = true
		return nil
	}
	if rejected := g.checkDemand(pod, wanted, profileMode); rejected != nil {
		w := g.waiting.pods[pod.UID]
		if rejected.reason == rejectedMayHelp && !w.tried {
			w.queued = true
			return nil
		}
		w.holdBack(g.clock.Now())
		return rejected
	}
	if !minor.InGroup(pod) && limits(wanted.leaf, wanted.needs) {
		// Pods of a group come to their cycle together, and once all are there.
		g.removeWaiting(pod.UID)
		w := newWaitingPod(pod, wanted, profileMode)
		if g.waiting.comesLater(w) {
			g.addWaiting(w)
			w.due = true
			return &Rejection{gate: g, reason: rejectedFull, message: "queue " + wanted.leaf.path + ": pods that wait for its room are tried first"}
		}
		w.passed = true
		g.waiting.enter(w)
		g.waiting.grant(w, g.clock.Now())
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

// Tried notes that a pod's cycle has come to nothing. Where the gate kept the pod out, no eviction has made room in its queue, and the
// pod is held until something changes; where it passed, others may have the room that it was activated for.
func (g *Gate) Tried(uid types.UID) {
	g.whereQueuesAre(func() {
		switch w := g.waiting.pods[uid]; {
		case w == nil:
		case w.promised:
			g.removeWaiting(uid)
		default:
			w.tried = true
			w.holdBack(g.clock.Now())
		}
	})
}

// AllowCycle lets pods whose queue is full come to a cycle once more, and with them their groups, each of which is held by holding one:
// what kept their preemption may have changed. O(pods), and O(waiting) where one is of a group.
func (g *Gate) AllowCycle(pods map[string]*v1.Pod) {
	g.whereQueuesAre(func() {
		groups := sets.New[types.NamespacedName]()
		for _, pod := range pods {
			if w := g.waiting.pods[pod.UID]; w != nil {
				w.tried = false
			}
			if group := minor.GroupName(pod); group != "" {
				groups.Insert(types.NamespacedName{Namespace: pod.Namespace, Name: group})
			}
		}
		if len(groups) == 0 {
			return
		}
		for _, w := range g.waiting.line {
			w.tried = w.tried && !groups.Has(types.NamespacedName{Namespace: w.pod.Namespace, Name: w.group})
		}
	})
}

// checkDemand is check where limits are in force.
func (g *Gate) checkDemand(pod *v1.Pod, wanted demand, profileMode string) *Rejection {
	own, before := g.usage.placedOf(pod.UID), g.waiting.pods[pod.UID]
	var promised promisedAmount
	if own == nil {
		// Room that others were promised is theirs, unless this pod is more important, or was promised room too.
		least := int64(wanted.priority)
		if before != nil && before.promised {
			least++
		}
		promised = g.waiting.promisedTo(least, before)
	}
	short := g.usage.shortages(wanted.leaf, wanted.needs, own, promised)
	if len(short) == 0 {
		g.waiting.passes(pod.UID)
		return nil
	}
	w := newWaitingPod(pod, wanted, profileMode)
	w.blockedBy(short)
	w.tried = before != nil && before.tried && !g.waiting.isFreed(before)
	w.flushAt = g.clock.Now().Add(heldFlush)
	g.addWaiting(w)
	rejected := &Rejection{gate: g, reason: rejectedFull, message: w.message, rooms: g.usage.rooms(wanted.leaf, wanted.needs, own, nil, true)}
	if g.usage.mayPreempt(&wanted, own, w.rank) {
		rejected.reason = rejectedMayHelp
	} else {
		w.holdBack(g.clock.Now())
	}
	return rejected
}

// sentence names what is short, nearest queue first.
func sentence(short []room) string {
	parts := make([]string, 0, len(short))
	for _, s := range short {
		parts = append(parts, s.String())
	}
	return strings.Join(parts, "; ")
}
