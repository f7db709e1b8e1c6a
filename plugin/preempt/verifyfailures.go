package preempt

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// tokenVolume begins the names of the volumes that the API server adds for the tokens of service accounts; what follows is random.
const tokenVolume = "kube-api-access-"

// Bounds of going on with verification in later cycles, and of what is remembered for it.
const (
	// verifyPause is how long verification waits at least that was not finished in one cycle.
	verifyPause = time.Second
	// failureMemory is how long nodes that failed are remembered after the last one, or after the time at which
	// verification goes on: no answer rests on what the cluster was like long ago.
	failureMemory = 30 * time.Second
	// settledMemory is how long nodes that failed are remembered once all have been judged: pods of one class that are tried one
	// after the other share the answer, and what no event of a node tells changes it soon after.
	settledMemory = 3 * time.Second
	// maxFailures bounds the nodes remembered, of all classes together.
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

// verifyFailures remembers for which nodes verification failed, by class of pods: pods of one class are equal in all that a filter
// may look at, as the replicas of a Deployment are. Planner and ranking give the same answer to the same question, so that without
// it every cycle would verify the same nodes, and a preemptor that more of them rank better for than can be verified in one cycle
// would never come to the others. Safe for concurrent use.
type verifyFailures struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	classes map[string]*classFailures
	total   int // nodes of all classes
}

type classFailures struct {
	nodes   map[string]nodeFailure
	until   time.Time
	settled bool // all nodes of the class have been judged: until is moved no more
}

// nodeFailure is a failure, and the generation of the scheduler's view of the node then: any change of the node or its
// pods makes another.
type nodeFailure struct {
	failure    failure
	generation int64
}

func newVerifyFailures(clock clock.PassiveClock) *verifyFailures {
	return &verifyFailures{clock: clock, classes: map[string]*classFailures{}}
}

// isEmpty reports whether nothing is remembered of any class. O(classes).
func (t *verifyFailures) isEmpty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	for class, entry := range t.classes {
		if !now.Before(entry.until) {
			t.drop(class)
		}
	}
	return len(t.classes) == 0
}

// of returns the nodes that failed for a class and have not changed since. generation reports a node's present one; ok is
// false where there is no such node. O(nodes remembered of the class).
func (t *verifyFailures) of(class string, generation func(node string) (generation int64, ok bool)) map[string]failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	failed := map[string]failure{}
	entry := t.classes[class]
	if entry == nil {
		return failed
	}
	if !t.clock.Now().Before(entry.until) {
		t.drop(class)
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

// add notes that a node failed for a class. Where too many are remembered, the classes whose memory ends first make room.
func (t *verifyFailures) add(class, node string, failed failure, generation int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := t.classes[class]
	if entry == nil {
		entry = &classFailures{nodes: map[string]nodeFailure{}}
		t.classes[class] = entry
	}
	if _, known := entry.nodes[node]; !known {
		t.total++
	}
	entry.nodes[node] = nodeFailure{failed, generation}
	if !entry.settled {
		entry.until = t.clock.Now().Add(failureMemory)
	}
	for t.total > maxFailures && len(t.classes) > 1 {
		oldest, found := "", false
		for other, of := range t.classes {
			if other != class && (!found || of.until.Before(t.classes[oldest].until)) {
				oldest, found = other, true
			}
		}
		t.drop(oldest)
	}
}

// keepUntil has what is remembered of a class last until failureMemory after a time at which its verification goes on.
func (t *verifyFailures) keepUntil(class string, goesOn time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if entry := t.classes[class]; entry != nil && !entry.settled {
		entry.until = goesOn.Add(failureMemory)
	}
}

// settle has what is remembered of a class end after settledMemory at the latest: all its nodes have been judged, and a later try
// starts anew.
func (t *verifyFailures) settle(class string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if entry := t.classes[class]; entry != nil && !entry.settled {
		entry.until, entry.settled = t.clock.Now().Add(settledMemory), true
	}
}

// has reports whether nodes have failed for a class.
func (t *verifyFailures) has(class string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.classes[class] != nil
}

// forget drops what is remembered of a class.
func (t *verifyFailures) forget(class string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(class)
}

func (t *verifyFailures) drop(class string) {
	if entry := t.classes[class]; entry != nil {
		t.total -= len(entry.nodes)
		delete(t.classes, class)
	}
}

// verificationClass is a text that two pods share where a filter has no way to tell one from the other: namespace, labels,
// annotations and spec, but for what each pod of a workload has of its own, and the pods that could not be evicted for them.
func verificationClass(pod *v1.Pod, refused []string) string {
	spec := *pod.Spec.DeepCopy()
	spec.Hostname, spec.NodeName = "", ""
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(volume v1.Volume) bool { return strings.HasPrefix(volume.Name, tokenVolume) })
	for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].VolumeMounts = nil
		}
	}
	labels := maps.Clone(pod.Labels)
	for _, own := range []string{"apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name", "batch.kubernetes.io/job-completion-index"} {
		delete(labels, own)
	}
	annotations := maps.Clone(pod.Annotations)
	delete(annotations, "batch.kubernetes.io/job-completion-index")
	raw, err := json.Marshal([]any{pod.Namespace, labels, annotations, spec, refused})
	if err != nil {
		return string(pod.UID)
	}
	sum := sha256.Sum256(raw)
	return string(sum[:])
}
