package ask

import (
	"reflect"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/utils/lru"
)

// Labels of makeway_scheduler_plans_ahead_total.
const (
	prefetchUsed     = "used"
	prefetchChanged  = "changed"
	PrefetchUnneeded = "unneeded"
)

// PrefetchAfter is how many pods of a class have to need a plan on the same nodes, one after the other, before the
// next one's is prefetched: so at most every other plan is made in vain.
const PrefetchAfter = 2

// maxPrefetchClasses bounds how many classes are remembered.
const maxPrefetchClasses = 256

// prefetchClass is what pods have in common that are expected to need the same plan, besides what they ask of nodes.
type prefetchClass struct {
	namespace string
	priority  int32
}

func prefetchClassOf(pod *v1.Pod) prefetchClass {
	return prefetchClass{pod.Namespace, corev1helpers.PodPriority(pod)}
}

// History remembers where preemption could help for the last pods of each class that did not fit. A
// plan for the next one is asked for while the scheduler's filters still run, instead of after them. Safe for
// concurrent use.
type History struct{ classes *lru.Cache }

// streak is so many pods in a row for which preemption could help on the same nodes, and the last of them.
type streak struct {
	pod    *v1.Pod
	nodes  Potential
	length int
}

// matches reports whether the streak is of pods like this one: where they ask for other things, a plan is asked
// for in vain, or again.
func (s streak) matches(pod *v1.Pod) bool {
	a, b := &s.pod.Spec, &pod.Spec
	return reflect.DeepEqual(a.NodeSelector, b.NodeSelector) && reflect.DeepEqual(a.Affinity, b.Affinity) && reflect.DeepEqual(a.Tolerations, b.Tolerations)
}

func NewHistory() *History { return &History{lru.New(maxPrefetchClasses)} }

// of is the streak of pods like this one; empty where there is none.
func (h *History) of(pod *v1.Pod) streak {
	if last, ok := h.classes.Get(prefetchClassOf(pod)); ok && last.(streak).matches(pod) {
		return last.(streak)
	}
	return streak{}
}

// Needed notes that a pod needs a plan, on these nodes. O(names in them).
func (h *History) Needed(pod *v1.Pod, nodes Potential) {
	now := streak{pod: pod, nodes: nodes, length: 1}
	if last := h.of(pod); last.length > 0 && last.nodes.equal(nodes) {
		now.length = min(last.length+1, PrefetchAfter)
	}
	h.classes.Add(prefetchClassOf(pod), now)
}

// Forget ends a streak: a pod has needed no plan.
func (h *History) Forget(pod *v1.Pod) { h.classes.Remove(prefetchClassOf(pod)) }

// Nodes are those that a pod is expected to need a plan on; ok is false where it may need none.
func (h *History) Nodes(pod *v1.Pod) (nodes Potential, ok bool) {
	last := h.of(pod)
	return last.nodes, last.length >= PrefetchAfter
}

// Prefetch is a plan that is asked for before PostFilter wants one. It is of use where PostFilter would ask the same.
type Prefetch struct {
	Question
	*Asked
	Result string // what becomes of it, for the metric
}

// NewPrefetch is a question that is about to be asked, at a moment as the caller counts.
func NewPrefetch(q Question, at uint64) *Prefetch {
	return &Prefetch{Question: q, Asked: NewAsked(at), Result: PrefetchUnneeded}
}

// Answers notes what is asked after all, and reports whether that is the same.
func (p *Prefetch) Answers(q Question) bool {
	if p.same(q) {
		p.Result = prefetchUsed
		return true
	}
	p.Result = prefetchChanged
	return false
}

// Unneeded reports whether nothing was asked after all.
func (p *Prefetch) Unneeded() bool { return p.Result == PrefetchUnneeded }
