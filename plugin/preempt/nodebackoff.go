package preempt

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

// fallbackTries is how often the fallback evicts for a pod before it pauses.
const fallbackTries = 3

// fallbackPauses are the pauses after that try and the next ones, the planner's for its own; the last is the longest.
var fallbackPauses = []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute}

// nodeBackoff remembers on which nodes a preemptor's orders have failed, for example since the API server
// refuses to delete a victim, and how often the fallback has evicted for it. Without it the same plan would come again at
// once, and forever. How often orders came to nothing is the planner's to remember. Bounded by
// the pods that are pending: a bound or deleted pod is forgotten. Safe for concurrent use.
type nodeBackoff struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	pods map[types.UID]*preemptorFailures
}

// preemptorFailures is a preemptor whose last order came to nothing, or that the fallback has evicted for.
type preemptorFailures struct {
	fellBack    int // how often the fallback has evicted for it
	pausedFor   int // for how many of those pausedUntil was set
	pausedUntil time.Time
	nodes       map[string]*backoffEntry
}

type backoffEntry struct {
	until    time.Time
	duration time.Duration
}

func newNodeBackoff(clock clock.PassiveClock) *nodeBackoff {
	return &nodeBackoff{clock: clock, pods: map[types.UID]*preemptorFailures{}}
}

// failed notes an order that came to nothing for something about its node, which is left out for a
// while; each further failure there doubles the time.
func (a *nodeBackoff) failed(pod types.UID, node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	p := a.of(pod)
	entry := p.nodes[node]
	if entry == nil {
		entry = &backoffEntry{duration: orders.NodeBackoffInitial / 2}
		p.nodes[node] = entry
	}
	entry.duration = min(2*entry.duration, nodeBackoffMax)
	entry.until = now.Add(entry.duration)
}

// of is what is remembered of a preemptor, from now on. The lock is held.
func (a *nodeBackoff) of(pod types.UID) *preemptorFailures {
	p := a.pods[pod]
	if p == nil {
		p = &preemptorFailures{nodes: map[string]*backoffEntry{}}
		a.pods[pod] = p
	}
	return p
}

// fellBack notes that the fallback evicts for a pod.
func (a *nodeBackoff) fellBack(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of(pod).fellBack++
}

// pausedUntil is until when the fallback evicts nothing for a pod that it has evicted for again and again, and how often it
// has; zero where it may. That it is asked says that the pod is not bound; a pause begins with the first such question.
func (a *nodeBackoff) pausedUntil(pod types.UID) (until time.Time, times int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[pod]
	if p == nil || p.fellBack < fallbackTries {
		return time.Time{}, 0
	}
	now := a.clock.Now()
	if p.pausedFor != p.fellBack {
		p.pausedFor = p.fellBack
		p.pausedUntil = now.Add(fallbackPauses[min(p.fellBack-fallbackTries, len(fallbackPauses)-1)])
	}
	if !now.Before(p.pausedUntil) {
		return time.Time{}, 0
	}
	return p.pausedUntil, p.fellBack
}

// nodes are those to leave out now, and when the first of them may be tried again.
func (a *nodeBackoff) nodes(pod types.UID) (out map[string]bool, first time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[pod]
	if p == nil {
		return nil, time.Time{}
	}
	now := a.clock.Now()
	out = map[string]bool{}
	for node, entry := range p.nodes {
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

// has reports whether orders of a pod have failed.
func (a *nodeBackoff) has(pod types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods[pod] != nil
}

func (a *nodeBackoff) forget(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pods, pod)
}
