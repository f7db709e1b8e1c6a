package queues

import (
	"cmp"
	"fmt"
	"runtime"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

// podsATurn is how many pods a count takes in while it holds the gate's lock, which PreEnqueue waits for under that of the
// scheduling queue: less than 0.1 ms.
const podsATurn = 64

// beingCounted is why nothing passes while all pods are counted for the first time.
const beingCounted = "what the queues hold is being counted"

// recount is a count of all pods for another tree. What changes while it is under way it takes in as it changes, so that
// a pod counts as it was last told of, whether its turn is over or yet to come.
type recount struct {
	usage *queueUsage
	pods  []*v1.Pod              // still to be counted
	gone  map[types.UID]struct{} // pods that have ended or gone since it began
}

// SetLimits puts the limits of a control state in force. The first time all pods are counted, from the informer's store,
// and nothing passes until they are; after that those that are known are placed anew, and the limits before hold until
// then. It takes the gate's lock for a few pods at a time. One call at a time, and none beside NoQueues. O(pods × depth).
func (g *Gate) SetLimits(queues []wire.QueueLimit) error {
	tree, err := newQueueTree(queues)
	if err != nil {
		return err
	}
	if err := g.beginCount(tree); err != nil {
		return err
	}
	for g.countSome(podsATurn) {
		runtime.Gosched() // those that wait for the lock come first
	}
	g.putInForce()
	return nil
}

// beginCount begins a count of all pods for a tree. Changes are taken in from before the pods are listed.
func (g *Gate) beginCount(tree *queueTree) error {
	c := &recount{gone: map[types.UID]struct{}{}, usage: newQueueUsage(tree)}
	g.mu.Lock()
	g.recount = c
	g.mu.Unlock()
	pods, err := g.pods.List(labels.Everything())
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.recount = nil
		return fmt.Errorf("list pods: %w", err)
	}
	c.pods = pods
	g.controlSeen = true
	switch g.limitsKnown {
	case noQueues:
		g.decide(missing, beingCounted)
	case missing:
		g.why = beingCounted
	}
	return nil
}

// countSome takes so many more pods in, and reports whether there are more.
func (g *Gate) countSome(n int) bool {
	c := g.recount // this and usage are set by the caller's goroutine alone
	turn := c.pods[:min(n, len(c.pods))]
	c.pods = c.pods[len(turn):]
	var demands []demand
	if g.usage == nil {
		demands = make([]demand, len(turn)) // most of the work, and it needs no lock
		for i, pod := range turn {
			demands[i] = demandOf(pod)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, pod := range turn {
		switch {
		case c.usage.members[pod.UID] != nil: // told of since
		case g.usage != nil:
			c.usage.copyOf(pod.UID, g.usage.members[pod.UID])
		default:
			g.countListed(pod, demands[i])
		}
	}
	return len(c.pods) > 0
}

// countListed takes a pod in as it was listed, unless it is gone by now.
func (g *Gate) countListed(pod *v1.Pod, wanted demand) {
	_, reserved := g.reserved[pod.UID]
	_, held := g.held[pod.UID]
	bound := pod.Spec.NodeName != ""
	if _, gone := g.recount.gone[pod.UID]; gone || ended(pod) || !bound && !reserved && !held {
		return
	}
	g.recount.usage.count(pod.UID, &member{demand: wanted, label: wanted.asked, bound: bound, placed: bound || reserved})
}

// putInForce ends a count. O(waiting × (depth + log waiting)).
func (g *Gate) putInForce() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.usage, g.recount = g.recount.usage, nil
	g.tree.Store(g.usage.tree)
	g.waiting.reenter(g.usage.tree)
	g.decide(inForce, "")
}

// counted is what takes changes in: what the queues hold, while that is counted for the first time as far as it is counted;
// nil where there are no limits. Callers of this and the following hold the lock.
func (g *Gate) counted() *queueUsage {
	if g.recount == nil {
		return g.usage
	}
	return cmp.Or(g.usage, g.recount.usage)
}

// change makes a change to what a pod counts for, also in a count that is under way. The change returns the queue that
// holds less.
func (g *Gate) change(uid types.UID, change func(*queueUsage) *queue) {
	counted := g.counted()
	if counted == nil {
		return
	}
	freed := change(counted)
	if counted != g.usage {
		return
	}
	g.noteFreed(freed)
	if g.recount != nil {
		g.recount.usage.copyOf(uid, g.usage.members[uid])
	}
}

// count takes a pod in as it is now.
func (g *Gate) count(pod *v1.Pod, bound, placed bool) {
	if g.counted() != nil {
		g.countMember(pod.UID, member{demand: demandOf(pod), bound: bound, placed: placed})
	}
}

func (g *Gate) countMember(uid types.UID, m member) {
	g.change(uid, func(u *queueUsage) *queue { return u.update(uid, m) })
}

// settle takes a pod out that nothing lets count any more.
func (g *Gate) settle(uid types.UID) {
	_, reserved := g.reserved[uid]
	_, held := g.held[uid]
	g.change(uid, func(u *queueUsage) *queue { return u.settle(uid, reserved, held) })
}

// drop forgets a pod that has ended or gone.
func (g *Gate) drop(uid types.UID) {
	delete(g.reserved, uid)
	delete(g.held, uid)
	g.removeWaiting(uid)
	g.waiting.settled(uid)
	g.conditionUpdates.forget(uid)
	g.change(uid, func(u *queueUsage) *queue { return u.forget(uid) })
	if g.recount != nil {
		g.recount.gone[uid] = struct{}{}
	}
}
