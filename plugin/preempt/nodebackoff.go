package preempt

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// How long a node is left out after an order of the same preemptor failed there.
const (
	nodeBackoffInitial = 10 * time.Second
	nodeBackoffMax     = 5 * time.Minute
)

// How long a preemptor pauses when its orders come to nothing one after the other, on whichever nodes:
// the first two times not at all, then doubling.
const (
	pauseAfter   = 3
	pauseInitial = time.Second
	pauseMax     = time.Minute
)

// nodeBackoff remembers on which nodes a preemptor's orders have failed, for example since the API server
// refuses to delete a victim, and how many have come to nothing in a row, for example since the
// evictors only observe. Without it the same plan would come again at once, and forever. Bounded by
// the pods that are pending: a bound or deleted pod is forgotten. Safe for concurrent use.
type nodeBackoff struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	pods map[types.UID]*preemptorFailures
}

// preemptorFailures is a preemptor whose last order came to nothing.
type preemptorFailures struct {
	inARow      int
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

// failed notes an order that came to nothing. Where that lies with the node, it is left out for a
// while; each further failure there doubles the time.
func (a *nodeBackoff) failed(pod types.UID, node string, nodesFault bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	p := a.pods[pod]
	if p == nil {
		p = &preemptorFailures{nodes: map[string]*backoffEntry{}}
		a.pods[pod] = p
	}
	if p.inARow++; p.inARow >= pauseAfter {
		p.pausedUntil = now.Add(min(pauseInitial<<min(p.inARow-pauseAfter, 10), pauseMax))
	}
	if !nodesFault {
		return
	}
	entry := p.nodes[node]
	if entry == nil {
		entry = &backoffEntry{duration: nodeBackoffInitial / 2}
		p.nodes[node] = entry
	}
	entry.duration = min(2*entry.duration, nodeBackoffMax)
	entry.until = now.Add(entry.duration)
}

// succeeded ends a row of failures.
func (a *nodeBackoff) succeeded(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pods[pod]; p != nil {
		p.inARow, p.pausedUntil = 0, time.Time{}
	}
}

// pausedUntil is until when a preemptor pauses, and after how many failures; zero where it need not.
func (a *nodeBackoff) pausedUntil(pod types.UID) (until time.Time, inARow int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[pod]
	if p == nil || !a.clock.Now().Before(p.pausedUntil) {
		return time.Time{}, 0
	}
	return p.pausedUntil, p.inARow
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
