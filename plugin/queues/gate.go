// Package queues is the scheduler plugin MakeWayQueues, which keeps queues at or below their max: it holds pods whose queue has no room before and in their
// scheduling cycle, activates them when there is room, and says so in their condition.
//
// It knows pods from the informer and from the scheduling cycle, and the limits from SetLimits. It calls nothing of the
// scheduler but in Run.
package queues

import (
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/wire"
)

// Gate keeps queues at or below their max. It counts pods by UID: those that the informer shows on a
// node, those that the scheduler has reserved a node for, and preemptors with an order in flight, which
// hold the place that is made for them. Nothing of that comes from the planner but the tree with its
// limits. All profiles of a process share it. Its lock is never held while calling into the scheduler.
type Gate struct {
	clock   clock.WithTicker
	pods    corelisters.PodLister
	applies ModeApplies
	passes  bool          // pods pass while the limits are not known
	changed chan struct{} // sent to, without blocking, when due may have something new
	// orderLives is nil where no plugin makes room for pods.
	orderLives atomic.Pointer[StoredOrderLives]

	none atomic.Bool // there are no queues, and so no gate

	mu sync.Mutex
	limitsKnown
	usage    *queueUsage // of a tree where limits are in force
	waiting  *waitingPods
	profiles []string // whose pods queues may hold
}

// limitsKnown is what the gate knows of limits.
type limitsKnown struct {
	controlSeen bool   // a control state has said what holds
	why         string // no pod passes: there are queues, as their ConfigMap shows, and their limits are not known. Empty where that is not known either
}

// ModeApplies reports whether the gate may hold a pod of a profile at all. It is called under the gate's lock.
type ModeApplies func(profileMode string, priority int32, namespace string) bool

// NewGate makes a gate that is undecided: Run, the informer and a control state do the rest.
func NewGate(clock clock.WithTicker, pods corelisters.PodLister, applies ModeApplies) *Gate {
	telemetry.Register()
	return &Gate{
		clock: clock, pods: pods, applies: applies,
		changed: make(chan struct{}, 1), usage: newQueueUsage(), waiting: newWaitingPods(),
	}
}

func (g *Gate) notify() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// decide has pods that wait checked by what is known now: that there are no queues, or why no pod passes. Callers hold the lock.
func (g *Gate) decide(none bool, why string) {
	g.none.Store(none)
	if g.why = why; why != "" {
		for _, w := range g.waiting.pods {
			w.about, w.message = unknownLimits, unknownLimits+why
			w.holdBack(g.clock.Now())
		}
	}
	g.waiting.recheckAll()
	g.notify()
}

// Assume decides, until a control state says what holds, whether there are queues, whose limits are not known. It reports whether it did,
// for once a control state has told it does nothing, and whether no pod passes.
func (g *Gate) Assume(exist bool, why string) (decided, shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.controlSeen {
		return false, false
	}
	if shut = exist && !g.passes; !shut {
		why = ""
	}
	g.decide(!shut, why)
	return true, shut
}

// NoQueues takes the gate away: a control state says that there are no queues.
func (g *Gate) NoQueues() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.take(nil)
}

// SetLimits puts the limits of a control state in force. Pods are counted whether or not there are limits, so that it takes no longer
// with more of them.
func (g *Gate) SetLimits(queues []wire.QueueLimit) error {
	tree, err := newQueueTree(queues)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.take(tree)
	return nil
}

// take takes in what a control state says: the tree of the queues, nil where there are none. Callers hold the lock.
func (g *Gate) take(tree *queueTree) {
	g.controlSeen = true
	g.usage.setTree(tree)
	g.waiting.reenter(tree)
	g.decide(tree == nil, "")
}

// Reconsider lets pods that wait be checked again: modes have changed.
func (g *Gate) Reconsider() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting.recheckAll()
	g.notify()
}

// PodChanged takes in a pod as the informer shows it.
func (g *Gate) PodChanged(pod *v1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case podutil.IsPodTerminal(pod): // it uses nothing
		g.drop(pod.UID)
	case pod.Spec.NodeName != "":
		g.removeWaiting(pod.UID)
		g.waiting.settled(pod.UID)
		g.change(pod.UID, func(m *member) { m.demand, m.bound, m.reserved = demandOf(pod), true, false })
	default:
		if g.usage.members[pod.UID] != nil {
			g.change(pod.UID, func(m *member) { m.demand, m.bound = demandOf(pod), false })
		}
		if g.waiting.update(pod, g.usage.tree) {
			g.notify()
		}
		if w := g.waiting.pods[pod.UID]; w != nil {
			if w.unschedulable = looksUnschedulable(pod); w.held && w.unschedulable {
				w.checkCondition(g.clock.Now())
			}
		}
	}
}

// PodDeleted takes in that a pod is gone. Telling it twice does no harm.
func (g *Gate) PodDeleted(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(uid)
}

// Reserve takes a place for a pod, where there is still one: between a cycle's check and this, pods may
// have come that this scheduler did not place.
func (g *Gate) Reserve(pod *v1.Pod, profileMode string) (rejected *Rejection) {
	defer func() { rejected.count() }()
	g.mu.Lock()
	defer g.mu.Unlock()
	wanted := demandOf(pod)
	if g.usage.tree != nil && g.applies(profileMode, wanted.priority, wanted.namespace) {
		wanted.place(g.usage.tree)
		if rejected := g.checkDemand(pod, wanted, profileMode); rejected != nil {
			// No preemption follows here: the gate lets it have a cycle of its own where victims may help.
			w := g.waiting.pods[pod.UID]
			w.due = true
			w.holdBack(g.clock.Now())
			return rejected
		}
	}
	g.removeWaiting(pod.UID) // those that were held for its promise are checked by what is used now
	g.change(pod.UID, func(m *member) { m.demand, m.reserved = wanted, true })
	return nil
}

// Unreserve frees a pod's place.
func (g *Gate) Unreserve(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.usage.members[uid]; m != nil && m.reserved {
		g.change(uid, func(m *member) { m.reserved = false })
	}
}

// ReserveQuota lets a preemptor with an order count, where a profile has the plugin MakeWayQueues: else it would never be known to
// have left. It calls the informer's store alone.
func (g *Gate) ReserveQuota(ref wire.PodRef) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.applies == nil {
		return
	}
	uid := types.UID(ref.UID)
	g.removeWaiting(uid)
	counts := g.usage.members[uid] != nil
	g.change(uid, func(m *member) {
		m.held = true
		if pod, err := g.pods.Pods(ref.Namespace).Get(ref.Name); !counts && err == nil && pod.UID == uid && !podutil.IsPodTerminal(pod) {
			m.demand, m.bound = demandOf(pod), pod.Spec.NodeName != ""
		}
	})
}

// ReleaseQuota ends that.
func (g *Gate) ReleaseQuota(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.usage.members[uid] != nil {
		g.change(uid, func(m *member) { m.held = false })
	}
}

// CycleFailed notes that a pod's cycle came to nothing for another reason than the gate, or that it is bound: others may
// have the room that it was activated for.
func (g *Gate) CycleFailed(uid types.UID) {
	g.whereQueuesAre(func() { g.removeWaiting(uid) })
}

// whereQueuesAre does something under the lock, and nothing where there are no queues.
func (g *Gate) whereQueuesAre(do func()) {
	if g.none.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	do()
}

// Counts reports whether a pod counts in a queue, or would if limits were in force: it is placed, or an order makes room for it.
func (g *Gate) Counts(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.usage.members[uid] != nil
}

// QueueOf is the path of the queue that a pod counts in; ok is false where no limits are in force.
func (g *Gate) QueueOf(pod *v1.Pod) (path string, ok bool) {
	g.whereQueuesAre(func() {
		if tree := g.usage.tree; tree != nil {
			path, ok = tree.place(askedQueue(pod), pod.Namespace).path, true
		}
	})
	return path, ok
}

// held is what a pod counts for in its queue, nil where it does not count.
func (g *Gate) held(uid types.UID) *demand {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.usage.placedOf(uid)
}

// change makes a change to what a pod counts for. Callers of this and the following hold the lock.
func (g *Gate) change(uid types.UID, change func(*member)) {
	g.noteFreed(g.usage.change(uid, change))
}

// drop forgets a pod that has ended or gone.
func (g *Gate) drop(uid types.UID) {
	g.removeWaiting(uid)
	g.waiting.settled(uid)
	g.noteFreed(g.usage.forget(uid))
}

// addWaiting lets a pod wait, and others have what it was promised. Its condition is checked when it was to be.
func (g *Gate) addWaiting(w *waitingPod) {
	if is := g.waiting.pods[types.UID(w.pod.UID)]; is != nil {
		w.conditionAt = is.conditionAt
	}
	g.removeWaiting(types.UID(w.pod.UID))
	g.waiting.enter(w)
	g.notify() // for it to be checked again in time
}

// removeWaiting lets a pod wait no longer, and others have what it was promised.
func (g *Gate) removeWaiting(uid types.UID) { g.noteFreed(g.waiting.leave(uid)) }

// noteFreed notes that a queue and those above it hold less.
func (g *Gate) noteFreed(leaf *queue) {
	if leaf == nil {
		return
	}
	g.waiting.noteFreed(leaf)
	g.notify()
}

// due takes the waiting pods that may be tried now, and returns when to ask again (zero: when something changes).
//
// A standby, whose pods come to no cycle yet, lets promises last.
func (g *Gate) due(leads bool) (pods []wire.PodRef, next time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting.round(g.usage, g.none.Load(), g.applies, g.clock.Now(), leads)
}

// State is how many pods wait, and whether the gate is shut for want of limits.
func (g *Gate) State() (waiting int, shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting.pods) - g.waiting.granted, g.usage.tree == nil && !g.none.Load()
}

func refOf(pod *v1.Pod) wire.PodRef {
	return wire.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
}
