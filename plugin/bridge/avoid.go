package bridge

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// How long a node is left out after an order of the same preemptor failed there.
const (
	avoidFirst   = 10 * time.Second
	avoidLongest = 5 * time.Minute
)

// avoidance remembers on which nodes a preemptor's orders have failed, for example since the API server
// refuses to delete a victim. Without it the same plan would come again at once, and for ever. Bounded
// by the pods that are pending: a bound or deleted pod is forgotten. Safe for concurrent use.
type avoidance struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	pods map[types.UID]map[string]*avoided
}

type avoided struct {
	until    time.Time
	duration time.Duration
}

func newAvoidance(clock clock.PassiveClock) *avoidance {
	return &avoidance{clock: clock, pods: map[types.UID]map[string]*avoided{}}
}

// failed notes a failure. Each further one on the same node doubles the time.
func (a *avoidance) failed(pod types.UID, node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	nodes := a.pods[pod]
	if nodes == nil {
		nodes = map[string]*avoided{}
		a.pods[pod] = nodes
	}
	entry := nodes[node]
	if entry == nil {
		entry = &avoided{duration: avoidFirst / 2}
		nodes[node] = entry
	}
	entry.duration = min(2*entry.duration, avoidLongest)
	entry.until = a.clock.Now().Add(entry.duration)
}

// nodes are those to leave out now, and when the first of them may be tried again.
func (a *avoidance) nodes(pod types.UID) (out map[string]bool, first time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	for node, entry := range a.pods[pod] {
		if !now.Before(entry.until) {
			continue
		}
		if out == nil {
			out = map[string]bool{}
		}
		out[node] = true
		if first.IsZero() || entry.until.Before(first) {
			first = entry.until
		}
	}
	return out, first
}

func (a *avoidance) forget(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pods, pod)
}
