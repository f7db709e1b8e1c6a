package preempt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Bounds of going on with verification in later cycles, and of what is remembered for it.
const (
	// verifyPause is how long verification waits at least that was not finished in one cycle.
	verifyPause = time.Second
	// verifyShare: what is continued takes one part in so many of the scheduler's time.
	verifyShare = 5
	// failureMemory is how long nodes that failed are remembered after the last one, or after the time at which
	// verification goes on: no answer rests on what the cluster was like long ago.
	failureMemory = 30 * time.Second
	// maxFailures bounds the nodes remembered, of all preemptors together.
	maxFailures = 100000
	// maxFailuresShown bounds the kinds of failures that a message counts.
	maxFailuresShown = 5
)

// cause is why a node failed verification.
type cause int

const (
	causeFilters    cause = iota + 1 // a filter rejects the pod whatever is removed
	causeTooMany                     // the filters ask for more victims than the candidate may have
	causeNothing                     // nothing that may be removed is there
	causeNoNeed                      // the pod fits with all pods in their places
	causeNodeGone                    // the scheduler's snapshot has no such node
	causeAwaited                     // the plan counts on an order that removes nothing there
	causeError                       // a plugin of the scheduler failed
	causeExtender                    // an extender's filter rejects the node
	causeUnfinished                  // the time for verification ended first; says nothing of the node
)

// failure is a cause, with the filter plugin or extender that rejects the pod where it is that.
type failure struct {
	cause  cause
	plugin string
}

// String describes the failure of a number of nodes, as kube-scheduler's messages do.
func (f failure) String() string {
	switch f.cause {
	case causeFilters:
		filters := "the scheduler's filters"
		if f.plugin != "" {
			filters += " (" + f.plugin + ")"
		}
		return "failed " + filters + " with all removable pods gone"
	case causeTooMany:
		return "needed more victims than are allowed"
	case causeNothing:
		return "had no pod that may be removed now"
	case causeNoNeed:
		return "had room without a victim"
	case causeNodeGone:
		return "no longer existed"
	case causeAwaited:
		return "awaited pods that no order in flight removes"
	case causeExtender:
		return "were rejected by extender " + f.plugin
	case causeError:
		return "met an error of a scheduler plugin"
	}
	return "were not verified in time"
}

// summary counts the nodes of each failure, the most frequent first.
func summary(failed map[string]failure) string {
	counts := map[failure]int{}
	for _, f := range failed {
		counts[f]++
	}
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b failure) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.cause, b.cause), cmp.Compare(a.plugin, b.plugin))
	})
	parts := make([]string, 0, maxFailuresShown+1)
	for i, kind := range kinds {
		if i == maxFailuresShown {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, fmt.Sprintf("%d node(s) %s", counts[kind], kind))
	}
	return strings.Join(parts, ", ")
}

// verifyFailures remembers for which nodes verification failed, by preemptor. Planner and ranking give the same answer to
// the same question, so that without it every cycle would verify the same nodes, and a preemptor that more of them
// rank better for than can be verified in one cycle would never come to the others. It is dropped once all
// potential nodes have been judged, so that a later try starts anew. Safe for concurrent use.
type verifyFailures struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	pods  map[types.UID]*podFailures
	total int       // nodes of all pods
	free  time.Time // when verification has been paid for that was not finished so far
}

type podFailures struct {
	nodes map[string]nodeFailure
	until time.Time
}

// nodeFailure is a failure, and the generation of the scheduler's view of the node then: any change of the node or its
// pods makes another.
type nodeFailure struct {
	failure    failure
	generation int64
}

func newVerifyFailures(clock clock.PassiveClock) *verifyFailures {
	return &verifyFailures{clock: clock, pods: map[types.UID]*podFailures{}}
}

// of returns the nodes that failed for a pod and have not changed since. generation reports a node's present one; ok is
// false where there is no such node. O(nodes remembered of the pod).
func (t *verifyFailures) of(pod types.UID, generation func(node string) (generation int64, ok bool)) map[string]failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	failed := map[string]failure{}
	entry := t.pods[pod]
	if entry == nil {
		return failed
	}
	if !t.clock.Now().Before(entry.until) {
		t.drop(pod)
		return failed
	}
	for name, node := range entry.nodes {
		if now, ok := generation(name); !ok || now != node.generation {
			delete(entry.nodes, name)
			t.total--
			continue
		}
		failed[name] = node.failure
	}
	return failed
}

// add notes that a node failed for a pod. Where too many are remembered, the pods whose memory ends first make room.
func (t *verifyFailures) add(pod types.UID, node string, failed failure, generation int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := t.pods[pod]
	if entry == nil {
		entry = &podFailures{nodes: map[string]nodeFailure{}}
		t.pods[pod] = entry
	}
	if _, known := entry.nodes[node]; !known {
		t.total++
	}
	entry.nodes[node] = nodeFailure{failed, generation}
	entry.until = t.clock.Now().Add(failureMemory)
	for t.total > maxFailures && len(t.pods) > 1 {
		var oldest types.UID
		for uid, other := range t.pods {
			if uid != pod && (oldest == "" || other.until.Before(t.pods[oldest].until)) {
				oldest = uid
			}
		}
		t.drop(oldest)
	}
}

// continueAt returns when a pod's verification may go on that ended unfinished after so long, and remembers its nodes until
// then: after a pause, and so that what all pods continue costs the scheduling cycles at most one part in verifyShare of
// their time.
func (t *verifyFailures) continueAt(pod types.UID, took time.Duration) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if t.free.Before(now) {
		t.free = now
	}
	t.free = t.free.Add((verifyShare - 1) * took)
	at := now.Add(verifyPause)
	if at.Before(t.free) {
		at = t.free
	}
	if entry := t.pods[pod]; entry != nil {
		entry.until = at.Add(failureMemory)
	}
	return at
}

// has reports whether nodes have failed for a pod.
func (t *verifyFailures) has(pod types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pods[pod] != nil
}

// forget drops what is remembered of a pod.
func (t *verifyFailures) forget(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(pod)
}

func (t *verifyFailures) drop(pod types.UID) {
	if entry := t.pods[pod]; entry != nil {
		t.total -= len(entry.nodes)
		delete(t.pods, pod)
	}
}
