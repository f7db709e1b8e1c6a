package plugin

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// PostFilter implements PostFilterPlugin. What each pair of result and status means is in status.go.
func (pl *MakeWay) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (result *fwk.PostFilterResult, status *fwk.Status) {
	keptOut := keptOut(statuses, pl.handle.SnapshotSharedLister().NodeInfos())
	end, without := pl.try(ctx, attemptsTotal, postFilterDuration, func(without *unplanned) preemptResult {
		*without = pl.withoutPlan(pod.Namespace, corev1helpers.PodPriority(pod))
		p := &preemptor{MakeWay: pl, uid: pod.UID, pods: []*v1.Pod{pod}, mode: pl.mode(pod)}
		end := p.preemptForPod(ctx, state, statuses, keptOut)
		if current := pl.engine.current(orders.RefOf(pod)); current != nil && end.keepsNomination() {
			end.clear = pl.engine.memory.Reverted.CompareAndDelete(pod.UID, current.Status.NominatedNodeName)
		}
		p.attempted(end)
		return end
	})
	pl.finishPrefetch(state)
	if result, status = end.statusPair(); status.Code() == fwk.Unschedulable {
		status = without.status(end)
	}
	if keptOut && status.Code() == fwk.Unschedulable {
		// No plugin listed after this one may make room for a pod that its queue has none for.
		status = end.status(fwk.UnschedulableAndUnresolvable)
	}
	if status.Code() != fwk.Unschedulable && end.kind != endLate {
		// kube-scheduler's own metric: what a plugin after this one may do, that one counts.
		metrics.PreemptionAttempts.Inc()
	}
	return result, status
}

// preemptForPod decides about one pod that does not fit. It asks the planner and verifies within
// bounds of time, and writes nothing: the order is committed outside the cycle.
func (p *preemptor) preemptForPod(ctx context.Context, state fwk.CycleState, statuses fwk.NodeToStatusReader, keptOut bool) (result preemptResult) {
	// 0) Fetch the pod as of now: its nomination may be newer than the queue's copy.
	pod := p.engine.current(p.one())
	if pod == nil {
		return preemptResult{kind: endError, message: "the pod is gone"}
	}
	p.pods[0] = pod
	nodes := p.handle.SnapshotSharedLister().NodeInfos()

	// 1) Ensure the pod may preempt: it has no order in flight, and no victims are leaving for it.
	if end, _ := p.ineligible(excluded(pod), func(node string) bool {
		_, err := nodes.Get(node)
		return err != nil || statuses.Get(node).Code() == fwk.UnschedulableAndUnresolvable
	}); end != nil {
		return *end
	}

	// 2) Find the nodes where preemption may help.
	potential, total, err := ask.PotentialNodes(statuses, nodes, len(p.handle.Extenders()) == 0)
	switch {
	case err != nil:
		return preemptResult{kind: endError, message: err.Error()}
	case potential.Count == 0:
		return preemptResult{kind: endHopeless, message: fmt.Sprintf("preemption would not help on any of %d nodes", total)}
	}

	// 3) Ensure that neither its PriorityClass lets it wait for a node first, nor orders are held back.
	if end := p.held(); end != nil {
		return *end
	}

	// 4) Recall what earlier attempts have left behind.
	planner := p.engine.planner
	planner.History.Needed(pod, potential)
	class := sync.OnceValue(func() string { return verify.ClassOf(pod) })
	attempt := &attempt{
		preemptor: p, class: class, state: state, pod: pod, nodes: nodes, keptOut: keptOut, prefetch: cycleOf(state).prefetch,
		potential: potential, failed: p.failedFor(pod.UID, class), full: p.engine.verified.samples.Full(p.engine.clock.Now(), pod.UID),
	}

	// 5) Ask the planner for candidates, and run the scheduler's filters on them.
	p.waitFor(planner.Pods, planOf(pod, p.mode), cycleOf(state).taken(), p.args.PlanTimeout.Duration)
	ctx, p.span = p.engine.goOn(ctx, attempt.prefetch, klog.KObj(pod), pod.UID)
	defer func() { p.endSpan(result) }()
	candidates, reply, end := attempt.find(ctx)
	if end != nil {
		return *end
	}

	// 6) Ask the extenders which of them they allow.
	candidates, end = attempt.askExtenders(candidates)
	if end != nil {
		return *end
	}

	// 7) Nominate the pod to the best candidate's node; its order is committed outside the cycle.
	result = p.nominate(candidates[0], reply)
	if result.kind == endNominated {
		metrics.PreemptionVictims.Observe(float64(len(candidates[0].Victims)))
	}
	return result
}

// verifyTimeout bounds verification in one cycle, with all plan requests but the time of two. An extender has a
// time-out of its own.
const verifyTimeout = time.Second

// firstCandidates is how many candidates the first plan request asks for: the best one stands nearly always, and
// each further one costs the planner more than finding it. Where none stands, as many as the arguments allow
// are asked for.
const firstCandidates = 3

func (pl *MakeWay) firstCandidates() int { return min(firstCandidates, pl.args.MaxCandidates) }

// attempt is one pod's preemption in one cycle.
type attempt struct {
	*preemptor
	state     fwk.CycleState
	pod       *v1.Pod
	nodes     fwk.NodeInfoLister
	keptOut   bool                      // by its queue
	potential ask.Potential             // the nodes where preemption may help
	failed    map[string]verify.Failure // nodes that failed verification, in cycles before and in this one
	full      bool                      // the columns are set aside: a refusal was wrong
	prefetch  *ask.Prefetch             // what was asked before the filters ran; nil: nothing, or it was looked at
	class     func() string             // of the pod, worked out once in a cycle
}

// find returns the candidates that passed verification, best first, and the plan that they are from; the result says why
// there is none. It asks for a few candidates first. Where the best is not as it was planned and others may be
// better, it asks once more, for as many as the arguments allow. Where none stands, it goes on asking without the
// nodes that failed, in pieces that grow. It ends where one
// stands, none is left, or the time is over or that of all pods: then the next plugin may act, and the next cycle goes on.
func (a *attempt) find(ctx context.Context) (passed []*verify.Candidate, reply *wire.PlanReply, end *preemptResult) {
	ended := func(end preemptResult) ([]*verify.Candidate, *wire.PlanReply, *preemptResult) { return nil, nil, &end }
	start, budget := a.engine.clock.Now(), a.engine.verified.budget
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout+2*a.args.PlanTimeout.Duration)
	defer cancel()
	piece := a.firstCandidates()
	if a.asksExtenders(a.pod) {
		piece = a.args.MaxCandidates // they are called once, with all that stand
	}
	switch {
	case a.left().Count == 0:
		return ended(a.unverifiable())
	case a.mode == wire.ModeObserve:
		return ended(*a.observe(func() (ask.Exchange, error) { return a.question(a.asks(a.args.MaxCandidates), false) }))
	case len(a.failed) > 0 && !budget.IsOpen(a.engine.clock.Now()) && a.engine.planner.Late.Of(a.uid) == nil:
		return ended(a.unfinished(false))
	}
	pay := sync.OnceFunc(func() { budget.Spent(a.engine.clock.Now(), a.engine.clock.Since(start)) })
	for first := true; ; {
		next, end := a.plan(ctx, piece)
		if end != nil && len(passed) == 0 {
			return nil, nil, end
		}
		if end != nil {
			break
		}
		stand, judged := a.verify(ctx, next, piece)
		if len(stand) > 0 {
			passed, reply = stand, next
		} else if a.outdated() {
			continue
		}
		if first && len(passed) == 0 {
			defer pay()
		}
		done := len(passed) > 0 && (!first || passed[0].AsPlanned || len(next.Candidates) < piece || piece == a.args.MaxCandidates)
		// A planner that names what it was asked to leave out is not asked forever.
		goesOn := len(passed) > 0 || judged > 0 && budget.IsOpen(a.engine.clock.Now())
		if done || !goesOn || a.left().Count == 0 || !mayAsk(ctx, a.args.PlanTimeout.Duration) {
			break
		}
		first, piece = false, ask.NextPiece(piece, a.args.MaxCandidates)
	}
	switch {
	case len(passed) > 0:
		if passed, end = a.allowedByFilters(passed, pay); end != nil {
			return nil, nil, end
		}
		return passed, reply, nil
	case a.left().Count == 0:
		return ended(a.unverifiable())
	}
	pay()
	return ended(a.unfinished(true))
}

// left are the potential nodes that have not failed verification.
func (a *attempt) left() ask.Potential { return a.potential.Without(sets.KeySet(a.failed), a.nodes) }

// mode is the one in force for a preemptor.
func (pl *MakeWay) mode(pod *v1.Pod) string {
	return pl.engine.control.Mode(pl.args.Mode, pod.Namespace)
}
