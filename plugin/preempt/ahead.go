package preempt

import (
	"context"
	"errors"
	"reflect"
	"sync"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/wire"
)

// aheadKey is where a cycle's state keeps the question that was asked ahead.
const aheadKey fwk.StateKey = "Ahead" + Name

// Labels of makeway_scheduler_plans_ahead_total.
const (
	aheadUsed     = "used"
	aheadChanged  = "changed"
	aheadUnneeded = "unneeded"
)

// aheadAfter is how many pods alike have to need a plan on the same nodes, one after the other, before the next
// one's is asked for ahead: so at most every other plan is made in vain.
const aheadAfter = 2

// mostKinds bounds what is remembered of pods alike.
const mostKinds = 256

// kind is what pods that are taken to be alike have in common, besides what they ask of nodes.
type kind struct {
	namespace string
	priority  int32
}

func kindOf(pod *v1.Pod) kind { return kind{pod.Namespace, corev1helpers.PodPriority(pod)} }

// forecast remembers which nodes removing pods could help for the last pods of each kind that did not fit. A
// plan for the next one is asked for while the scheduler's filters still run, instead of after them. Safe for
// concurrent use.
type forecast struct {
	mu    sync.Mutex
	kinds map[kind]*row
}

// row is so many pods in a row which the same nodes could help, and the last of them.
type row struct {
	pod    *v1.Pod
	nodes  potential
	length int
}

// holds says whether the row is of pods like this one: where the rest of them asks for other things, a plan is asked
// for in vain, or again.
func (r *row) holds(pod *v1.Pod) bool {
	a, b := &r.pod.Spec, &pod.Spec
	return reflect.DeepEqual(a.NodeSelector, b.NodeSelector) && reflect.DeepEqual(a.Affinity, b.Affinity) && reflect.DeepEqual(a.Tolerations, b.Tolerations)
}

func newForecast() *forecast { return &forecast{kinds: map[kind]*row{}} }

// unfit notes that a pod needs a plan, on these nodes. O(names in them).
func (f *forecast) unfit(pod *v1.Pod, nodes potential) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := kindOf(pod)
	last := f.kinds[k]
	if last != nil && last.holds(pod) && last.nodes.equal(nodes) {
		last.length = min(last.length+1, aheadAfter)
		return
	}
	if last == nil && len(f.kinds) >= mostKinds {
		for any := range f.kinds {
			delete(f.kinds, any)
			break
		}
	}
	f.kinds[k] = &row{pod: pod, nodes: nodes, length: 1}
}

// forget ends a row: a pod has needed no plan.
func (f *forecast) forget(pod *v1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.kinds, kindOf(pod))
}

// nodes are those that a pod is expected to need a plan on; ok is false where it may need none.
func (f *forecast) nodes(pod *v1.Pod) (nodes potential, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.kinds[kindOf(pod)]; last != nil && last.length >= aheadAfter && last.holds(pod) {
		return last.nodes, true
	}
	return potential{}, false
}

// ahead is a plan that is asked for before PostFilter wants one. It is of use where PostFilter would ask the same.
type ahead struct {
	question
	at     moment
	result string // what becomes of it, for the metric

	answered chan struct{} // closed once the rest is set
	reply    *wire.PlanReply
	err      error
}

// Clone implements StateData.
func (q *ahead) Clone() fwk.StateData { return q }

// askAhead asks for a pod's plan while the scheduler's filters look at the nodes, where pods like it have needed
// one lately. It never waits. Nothing that a plan depends on besides those nodes changes within a scheduling cycle, other
// than what might as well while PostFilter waits.
func (pl *MakeWay) askAhead(state fwk.CycleState, pod *v1.Pod) {
	nodes, ok := pl.engine.forecast.nodes(pod)
	if !ok || !pl.mayAskAhead(pod) {
		return
	}
	current := pl.engine.current(refOf(pod))
	if current == nil || current.Status.NominatedNodeName != "" {
		return
	}
	q := &ahead{
		question: question{pod: current, mode: wire.ModeEnforce, nodes: nodes, candidates: pl.firstCandidates()},
		at:       pl.engine.retry.now(), result: aheadUnneeded,
		answered: make(chan struct{}), err: errors.New("the plan was not asked for"),
	}
	state.Write(aheadKey, q)
	goroutines.GoRecovered(pl.engine.life, "plan_ahead", func(ctx context.Context) {
		defer close(q.answered)
		q.reply, q.err = pl.query(ctx, q.question, true)
	})
}

// mayAskAhead says whether PostFilter would ask for a plan, as far as is known before the filters ran.
func (pl *MakeWay) mayAskAhead(pod *v1.Pod) bool {
	if pl.mode(pod) != wire.ModeEnforce || excluded(pod) != nil || len(interestedExtenders(pl.handle, pod)) > 0 {
		return false
	}
	if why, _ := pl.engine.orders.shut(); why != "" {
		return false
	}
	breaker, _ := pl.engine.breaker.current()
	return breaker == breakerClosed && !pl.engine.remembers(pod.UID) && !pl.ordersLimited()
}

// aheadOf is what was asked ahead in a cycle, nil where nothing was.
func aheadOf(state fwk.CycleState) *ahead { return dataOf[*ahead](state, aheadKey) }

// settleAhead counts what has become of a cycle's question, and expects no more where there was no need for it.
func (pl *MakeWay) settleAhead(state fwk.CycleState) {
	q := aheadOf(state)
	if q == nil {
		return
	}
	plansAhead.WithLabelValues(q.result).Inc()
	if q.result == aheadUnneeded {
		pl.engine.forecast.forget(q.pod)
	}
}

// await gives the answer. Asking is bounded, by the plan time-out.
func (q *ahead) await(ctx context.Context) (*wire.PlanReply, error) {
	select {
	case <-q.answered:
		return q.reply, q.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
