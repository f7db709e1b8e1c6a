package plugin

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// plan asks for so many candidates, without the nodes that failed; the result says why there is none.
func (a *attempt) plan(ctx context.Context, candidates int) (*wire.PlanReply, *preemptResult) {
	reply, err := a.answer(ctx, ask.Question{Pod: a.pod, Mode: a.mode, Nodes: a.left(), Candidates: candidates, Full: a.full})
	if err != nil {
		return nil, a.unreachable(a.engine.planner.Pods, err)
	}
	planned := len(reply.Candidates)+len(reply.Unmodelled) > 0
	if end := a.unplanned(reply.Status, reply.Refusal, planned, reply.Offer); end != nil {
		return nil, end
	}
	if !planned {
		end := a.refusal(ctx, reply)
		return nil, &end
	}
	return reply, nil
}

// answer returns the planner's reply, to the prefetched question where it is the same.
func (a *attempt) answer(ctx context.Context, q ask.Question) (reply *wire.PlanReply, err error) {
	var asked *ask.Asked[wire.PlanReply]
	if a.prefetch != nil && a.prefetch.Answers(q) {
		asked = a.prefetch.Asked
	}
	a.prefetch = nil
	reply, a.asked, err = a.inquirer.answer(ctx, asked, func() (ask.Exchange[wire.PlanReply], error) { return a.question(q, false) })
	return reply, err
}

// mayAsk reports whether there is time for one more plan: one that the attempt's own end cut short would count as
// a planner's failure.
func mayAsk(ctx context.Context, planTimeout time.Duration) bool {
	deadline, _ := ctx.Deadline()
	return ctx.Err() == nil && time.Until(deadline) >= planTimeout
}

// query sends a question and waits for its answer, outside the scheduling cycle; prefetched says that it is asked while the filters run.
func (pl *MakeWay) query(ctx context.Context, q ask.Question, prefetched bool) (*wire.PlanReply, error) {
	exchange, err := pl.question(q, prefetched)
	if err != nil {
		return nil, err
	}
	return exchange(ctx)
}

// question returns what sends a question and waits for its answer.
func (pl *MakeWay) question(q ask.Question, prefetched bool) (ask.Exchange[wire.PlanReply], error) {
	known, err := pl.engine.view(q.Pod.UID)
	if err != nil {
		return nil, err
	}
	by := ask.How{Now: pl.engine.clock.Now(), Timeout: max(pl.args.PlanTimeout.Duration, ask.AnsweredWithin), Profile: pl.Profile(), Prefetched: prefetched}
	request, err := q.Request(by, known)
	if err != nil {
		return nil, err
	}
	return pl.engine.planner.Plan(request)
}

// view is what this scheduler knows that the API server does not; except is left out of its nominations.
func (e *engine) view(except types.UID) (known ask.View, err error) {
	if known.ClusterUID, err = e.control.ClusterUID(); err != nil {
		return known, err
	}
	known.Nominations, known.Assumed = e.placements.Lists(e.inflight.Nominated(), except)
	known.Seen = e.planner.Seen.All()
	return known, nil
}

// prefetchKey is where a cycle's state keeps the question that was prefetched.
const prefetchKey fwk.StateKey = "Prefetch" + Name

// startPrefetch asks for a pod's plan while the scheduler's filters look at the nodes, where pods like it have needed
// one lately. It never waits. Nothing that a plan depends on besides those nodes changes within a scheduling cycle, other
// than what might as well while PostFilter waits.
func (pl *MakeWay) startPrefetch(state fwk.CycleState, pod *v1.Pod) {
	nodes, ok := pl.engine.planner.History.Nodes(pod)
	if !ok || !pl.mayPrefetch(pod) {
		return
	}
	current := pl.engine.current(orders.RefOf(pod))
	if current == nil || current.Status.NominatedNodeName != "" {
		return
	}
	all := pl.handle.SnapshotSharedLister().NodeInfos()
	nodes = nodes.Without(namesOf(pl.failedBefore(pod, all)), all)
	if nodes.Count == 0 {
		return
	}
	q := ask.NewPrefetch(ask.Question{Pod: current, Mode: wire.ModeEnforce, Nodes: nodes, Candidates: pl.firstCandidates()}, uint64(pl.engine.memory.Retries.Now()))
	state.Write(prefetchKey, q)
	var ctx context.Context
	ctx, q.Span = pl.engine.beginSpan(pl.engine.life, klog.KObj(pod), pod.UID)
	goroutines.GoRecovered(ctx, "plan_ahead", func(ctx context.Context) {
		q.Ask(func() (*wire.PlanReply, error) { return pl.query(ctx, q.Question, true) })
	})
}

// mayPrefetch reports whether PostFilter would ask for a plan, as far as is known before the filters ran.
func (pl *MakeWay) mayPrefetch(pod *v1.Pod) bool {
	if pl.mode(pod) != wire.ModeEnforce || excluded(pod) != nil || pl.asksExtenders(pod) {
		return false
	}
	if why, _ := pl.engine.memory.OrdersHeldBack(pod.Namespace); why != "" {
		return false
	}
	if until, _ := pl.engine.delayedUntil(pod); !until.IsZero() {
		return false
	}
	breaker, _ := pl.engine.planner.Pods.Current()
	return breaker == telemetry.Closed && !pl.engine.remembers(pod.UID)
}

// prefetchOf returns what was prefetched in a cycle, nil where nothing was.
func prefetchOf(state fwk.CycleState) *ask.Prefetch { return dataOf[*ask.Prefetch](state, prefetchKey) }

// finishPrefetch counts what has become of a cycle's prefetch, and ends the streak where there was no need for it.
func (pl *MakeWay) finishPrefetch(state fwk.CycleState) {
	q := prefetchOf(state)
	if q == nil {
		return
	}
	plansPrefetched.WithLabelValues(q.Result).Inc()
	q.Span.End(nil, "result", q.Result)
	if q.Unneeded() {
		pl.engine.planner.History.Forget(q.Pod)
	}
}

// Profile names the filters of this plugin's profile as plan requests carry them. The framework knows its filters only after
// every plugin is made.
func (pl *MakeWay) Profile() wire.Profile {
	pl.profileOnce.Do(func() {
		pl.profileValue = wire.Profile{Name: pl.handle.ProfileName()}
		if lister, ok := pl.handle.(framework.Framework); ok {
			pl.profileValue = ask.ProfileOf(lister, pl.profileArgs)
		}
	})
	return pl.profileValue
}
