package memory

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/orders"
)

// nodeBackoffMax is how long at most a node is left out after an order of the same preemptor failed there.
const (
	nodeBackoffMax = 5 * time.Minute
)

// NodeBackoff remembers on which nodes a preemptor's orders have failed, for example since the API server
// refuses to delete a victim. Without it the same plan would come again at once, and forever. How often orders came to
// nothing is the planner's to remember. Bounded by the pods that are pending: a bound or deleted pod is forgotten. Safe
// for concurrent use.
type NodeBackoff struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	pods map[types.UID]map[string]*backoffEntry // by node
}

type backoffEntry struct {
	until    time.Time
	duration time.Duration
}

func newNodeBackoff(clock clock.PassiveClock) *NodeBackoff {
	return &NodeBackoff{clock: clock, pods: map[types.UID]map[string]*backoffEntry{}}
}

// Failed notes an order that came to nothing for something about its node, which is left out for a
// while; each further failure there doubles the time.
func (a *NodeBackoff) Failed(pod types.UID, node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if a.pods[pod] == nil {
		a.pods[pod] = map[string]*backoffEntry{}
	}
	entry := a.pods[pod][node]
	if entry == nil {
		entry = &backoffEntry{duration: orders.NodeBackoffInitial / 2}
		a.pods[pod][node] = entry
	}
	entry.duration = min(2*entry.duration, nodeBackoffMax)
	entry.until = now.Add(entry.duration)
}

// Nodes are those to leave out now, and when the first of them may be tried again.
func (a *NodeBackoff) Nodes(pod types.UID) (out map[string]bool, first time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	nodes := a.pods[pod]
	if nodes == nil {
		return nil, time.Time{}
	}
	now := a.clock.Now()
	out = map[string]bool{}
	for node, entry := range nodes {
		if !now.Before(entry.until) {
			continue
		}
		out[node] = true
		if first.IsZero() || entry.until.Before(first) {
			first = entry.until
		}
	}
	return out, first
}

// Has reports whether orders of a pod have failed.
func (a *NodeBackoff) Has(pod types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods[pod] != nil
}

func (a *NodeBackoff) forget(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pods, pod)
}
