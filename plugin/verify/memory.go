package verify

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// tokenVolume begins the names of the volumes that the API server adds for the tokens of service accounts; what follows is random.
const tokenVolume = "kube-api-access-"

// Bounds of what is remembered of verification for later cycles.
const (
	// failureMemory is how long nodes that failed are remembered after the last one, or after the time at which
	// verification goes on: no answer rests on what the cluster was like long ago.
	failureMemory = 30 * time.Second
	// SettledMemory is how long nodes that failed are remembered once all have been judged: pods of one class that are tried one
	// after the other share the answer, and what no event of a node tells changes it soon after.
	SettledMemory = 3 * time.Second
	// maxFailures bounds the nodes remembered, of all classes together.
	maxFailures = 100000
)

// Failures remembers for which nodes verification failed, by class of pods: pods of one class are equal in all that a filter
// may look at, as the replicas of a Deployment are. Planner and ranking give the same answer to the same question, so that without
// it every cycle would verify the same nodes, and a preemptor that more of them rank better for than can be verified in one cycle
// would never come to the others. Safe for concurrent use.
type Failures struct {
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
	Failure    Failure
	generation int64
}

func NewFailures() *Failures {
	return &Failures{classes: map[string]*classFailures{}}
}

// IsEmpty reports whether nothing is remembered of any class. O(classes).
func (t *Failures) IsEmpty(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for class, entry := range t.classes {
		if !now.Before(entry.until) {
			t.drop(class)
		}
	}
	return len(t.classes) == 0
}

// Of returns the nodes that failed for a class and have not changed since. generation reports a node's present one; ok is
// false where there is no such node. O(nodes remembered of the class).
func (t *Failures) Of(now time.Time, class string, generation func(node string) (generation int64, ok bool)) map[string]Failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	failed := map[string]Failure{}
	entry := t.classes[class]
	if entry == nil {
		return failed
	}
	if !now.Before(entry.until) {
		t.drop(class)
		return failed
	}
	for name, node := range entry.nodes {
		if present, ok := generation(name); !ok || present != node.generation {
			delete(entry.nodes, name)
			t.total--
			continue
		}
		failed[name] = node.Failure
	}
	return failed
}

// Add notes that a node failed for a class. Where too many are remembered, the classes whose memory ends first make room.
func (t *Failures) Add(now time.Time, class, node string, failed Failure, generation int64) {
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
		entry.until = now.Add(failureMemory)
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

// KeepUntil has what is remembered of a class last until failureMemory after a time at which its verification goes on.
func (t *Failures) KeepUntil(class string, goesOn time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if entry := t.classes[class]; entry != nil && !entry.settled {
		entry.until = goesOn.Add(failureMemory)
	}
}

// Settle has what is remembered of a class end after settledMemory at the latest: all its nodes have been judged, and a later try
// starts anew.
func (t *Failures) Settle(now time.Time, class string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if entry := t.classes[class]; entry != nil && !entry.settled {
		entry.until, entry.settled = now.Add(SettledMemory), true
	}
}

// Forget drops what is remembered of a class.
func (t *Failures) Forget(class string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(class)
}

func (t *Failures) drop(class string) {
	if entry := t.classes[class]; entry != nil {
		t.total -= len(entry.nodes)
		delete(t.classes, class)
	}
}

// ClassOf is a text that two pods share where a filter has no way to tell one from the other: namespace, labels,
// annotations and spec, but for what each pod of a workload has of its own.
func ClassOf(pod *v1.Pod) string {
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
	raw, err := json.Marshal([]any{pod.Namespace, labels, annotations, spec})
	if err != nil {
		return string(pod.UID)
	}
	sum := sha256.Sum256(raw)
	return string(sum[:])
}

// share: verification beyond the first candidates takes one part in so many of the scheduling thread's time.
const share = 5

// Budget bounds what verification costs the scheduling thread for all pods together, beyond the few candidates that each try
// begins with: after so long it is shut for four times as long, so that over a minute it has at most a fifth, and one try. What
// finds a node at the first candidates is free, as it is what a preemption costs anyhow. Its zero value is open. Safe for concurrent use.
type Budget struct {
	mu   sync.Mutex
	free time.Time // when what was spent has been paid for
}

// OpensAt is from when on verification looks beyond its first candidates.
func (b *Budget) OpensAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free
}

// IsOpen reports whether verification looks beyond its first candidates.
func (b *Budget) IsOpen(now time.Time) bool { return !now.Before(b.OpensAt()) }

// Spent notes that a try has taken so long of the thread's time.
func (b *Budget) Spent(now time.Time, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add((share - 1) * took)
}

// How often a refusal's sample is verified, and for how long a pod whose refusal was wrong is tried in full.
const (
	sampleEvery = time.Minute
	fullFor     = 10 * time.Minute
)

// mostInFull is more than the pods that can be tried in full at once: each has had a sample.
const mostInFull = int(fullFor/sampleEvery) + 1

// Samples guards the planner's refusals, which no filter of the scheduler has seen: now and then one of the nodes that
// its columns rule out is verified with everything removed that may be. Safe for concurrent use.
type Samples struct {
	mu     sync.Mutex
	next   time.Time
	inFull *lru.Cache // pods whose refusal was wrong, until when they are tried in full
}

func NewSamples() *Samples { return &Samples{inFull: lru.New(mostInFull)} }

// Due reports whether a sample is to be verified now, and takes that turn.
func (s *Samples) Due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.next) {
		return false
	}
	s.next = now.Add(sampleEvery)
	return true
}

// Missed notes that a pod was refused wrongly.
func (s *Samples) Missed(now time.Time, pod types.UID) { s.inFull.Add(pod, now.Add(fullFor)) }

// Full reports whether a pod is tried on every node that removing pods may help, whatever the columns say.
func (s *Samples) Full(now time.Time, pod types.UID) bool {
	until, ok := s.inFull.Get(pod)
	return ok && now.Before(until.(time.Time))
}
