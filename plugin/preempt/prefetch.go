package preempt

import (
	"context"
	"errors"
	"reflect"
	"sync"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/tracing"
	"makeway.dev/makeway/plugin/wire"
)

// prefetchKey is where a cycle's state keeps the question that was prefetched.
const prefetchKey fwk.StateKey = "Prefetch" + Name

// Labels of makeway_scheduler_plans_ahead_total.
const (
	prefetchUsed     = "used"
	prefetchChanged  = "changed"
	prefetchUnneeded = "unneeded"
)

// prefetchAfter is how many pods of a class have to need a plan on the same nodes, one after the other, before the
// next one's is prefetched: so at most every other plan is made in vain.
const prefetchAfter = 2

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

// prefetchHistory remembers where preemption could help for the last pods of each class that did not fit. A
// plan for the next one is asked for while the scheduler's filters still run, instead of after them. Safe for
// concurrent use.
type prefetchHistory struct {
	mu      sync.Mutex
	classes map[prefetchClass]*streak
}

// streak is so many pods in a row for which preemption could help on the same nodes, and the last of them.
type streak struct {
	pod    *v1.Pod
	nodes  potential
	length int
}

// matches reports whether the streak is of pods like this one: where they ask for other things, a plan is asked
// for in vain, or again.
func (s *streak) matches(pod *v1.Pod) bool {
	a, b := &s.pod.Spec, &pod.Spec
	return reflect.DeepEqual(a.NodeSelector, b.NodeSelector) && reflect.DeepEqual(a.Affinity, b.Affinity) && reflect.DeepEqual(a.Tolerations, b.Tolerations)
}

func newPrefetchHistory() *prefetchHistory {
	return &prefetchHistory{classes: map[prefetchClass]*streak{}}
}

// needed notes that a pod needs a plan, on these nodes. O(names in them).
func (h *prefetchHistory) needed(pod *v1.Pod, nodes potential) {
	h.mu.Lock()
	defer h.mu.Unlock()
	class := prefetchClassOf(pod)
	last := h.classes[class]
	if last != nil && last.matches(pod) && last.nodes.equal(nodes) {
		last.length = min(last.length+1, prefetchAfter)
		return
	}
	if last == nil && len(h.classes) >= maxPrefetchClasses {
		for any := range h.classes {
			delete(h.classes, any)
			break
		}
	}
	h.classes[class] = &streak{pod: pod, nodes: nodes, length: 1}
}

// forget ends a streak: a pod has needed no plan.
func (h *prefetchHistory) forget(pod *v1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.classes, prefetchClassOf(pod))
}

// nodes are those that a pod is expected to need a plan on; ok is false where it may need none.
func (h *prefetchHistory) nodes(pod *v1.Pod) (nodes potential, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := h.classes[prefetchClassOf(pod)]; last != nil && last.length >= prefetchAfter && last.matches(pod) {
		return last.nodes, true
	}
	return potential{}, false
}

// prefetch is a plan that is asked for before PostFilter wants one. It is of use where PostFilter would ask the same.
type prefetch struct {
	question
	at     changeCount
	result string // what becomes of it, for the metric
	span   tracing.Span

	answered chan struct{} // closed once the rest is set
	reply    *wire.PlanReply
	err      error
}

// Clone implements StateData.
func (p *prefetch) Clone() fwk.StateData { return p }

// startPrefetch asks for a pod's plan while the scheduler's filters look at the nodes, where pods like it have needed
// one lately. It never waits. Nothing that a plan depends on besides those nodes changes within a scheduling cycle, other
// than what might as well while PostFilter waits.
func (pl *MakeWay) startPrefetch(state fwk.CycleState, pod *v1.Pod) {
	nodes, ok := pl.engine.prefetchHistory.nodes(pod)
	if !ok || !pl.mayPrefetch(pod) {
		return
	}
	current := pl.engine.current(orders.RefOf(pod))
	if current == nil || current.Status.NominatedNodeName != "" {
		return
	}
	all := pl.handle.SnapshotSharedLister().NodeInfos()
	nodes = nodes.without(namesOf(pl.failedBefore(pod, nil, all)), all)
	if nodes.count == 0 {
		return
	}
	q := &prefetch{
		question: question{pod: current, mode: wire.ModeEnforce, nodes: nodes, candidates: pl.firstCandidates()},
		at:       pl.engine.retry.now(), result: prefetchUnneeded,
		answered: make(chan struct{}), err: errors.New("the plan was not asked for"),
	}
	state.Write(prefetchKey, q)
	var ctx context.Context
	ctx, q.span = pl.engine.beginSpan(pl.engine.life, klog.KObj(pod), pod.UID)
	goroutines.GoRecovered(ctx, "plan_ahead", func(ctx context.Context) {
		defer close(q.answered)
		q.reply, q.err = pl.query(ctx, q.question, true)
	})
}

// mayPrefetch reports whether PostFilter would ask for a plan, as far as is known before the filters ran.
func (pl *MakeWay) mayPrefetch(pod *v1.Pod) bool {
	if pl.mode(pod) != wire.ModeEnforce || excluded(pod) != nil || pl.asksExtenders(pod) {
		return false
	}
	if why, _ := pl.engine.ordersHeldBack(pod.Namespace); why != "" {
		return false
	}
	if until, _ := pl.engine.delayedUntil(pod); !until.IsZero() {
		return false
	}
	breaker, _ := pl.engine.breaker.current()
	return breaker == breakerClosed && !pl.engine.remembers(pod.UID)
}

// prefetchOf returns what was prefetched in a cycle, nil where nothing was.
func prefetchOf(state fwk.CycleState) *prefetch { return dataOf[*prefetch](state, prefetchKey) }

// finishPrefetch counts what has become of a cycle's prefetch, and ends the streak where there was no need for it.
func (pl *MakeWay) finishPrefetch(state fwk.CycleState) {
	q := prefetchOf(state)
	if q == nil {
		return
	}
	plansPrefetched.WithLabelValues(q.result).Inc()
	q.span.End(nil, "result", q.result)
	if q.result == prefetchUnneeded {
		pl.engine.prefetchHistory.forget(q.pod)
	}
}

// await returns the answer. Asking is bounded, by the plan time-out.
func (p *prefetch) await(ctx context.Context) (*wire.PlanReply, error) {
	select {
	case <-p.answered:
		return p.reply, p.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
