package preempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"makeway.dev/makeway/plugin/queuegate"
	"makeway.dev/makeway/plugin/wire"
)

// verifyTimeout bounds verification in one cycle, with all plan requests but the time of two. An extender has a
// time-out of its own.
const verifyTimeout = time.Second

// firstCandidates is how many candidates the first plan request asks for: the best one stands nearly always, and
// each further one costs the planner more than finding it. Where none stands, as many as the arguments allow
// are asked for.
const firstCandidates = 3

// unaskableReasons are those of a planner that cannot read a question, which is most probably due to the pod in it.
var unaskableReasons = []string{"MalformedPod", "MalformedRequest"}

func (pl *MakeWay) firstCandidates() int { return min(firstCandidates, pl.args.MaxCandidates) }

// Bounds of what is taken of a refusal: its text goes into the pod's status and Events, and what it
// depends on is kept for as long as the pod waits.
const (
	longestMessage   = 1024
	mostDependencies = 64
)

// attempt is one pod's preemption in one cycle.
type attempt struct {
	*MakeWay
	state    fwk.CycleState
	pod      *v1.Pod
	mode     string // in force for the pod
	nodes    fwk.NodeInfoLister
	recalled             // its failed nodes grow by those of this cycle
	asked    changeCount // when the last question was asked
	prefetch *prefetch   // what was asked before the filters ran; nil: nothing, or it was looked at
}

// find returns the candidates that passed verification, best first, and the plan that they are from; the result says why
// there is none. It asks for a few candidates first. Where the best is not as it was planned and others may be
// better, it asks once more, for as many as the arguments allow. Where none stands, it goes on asking without the
// nodes that failed, until one does, none is left, or the time is over: then the next cycle goes on.
func (a *attempt) find(ctx context.Context) (passed []*verifiedCandidate, reply *wire.PlanReply, end *preemptResult) {
	ended := func(end preemptResult) ([]*verifiedCandidate, *wire.PlanReply, *preemptResult) { return nil, nil, &end }
	start := a.engine.clock.Now()
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout+2*a.args.PlanTimeout.Duration)
	defer cancel()
	few := a.firstCandidates()
	if a.mode == wire.ModeObserve || len(interestedExtenders(a.handle, a.pod)) > 0 {
		// What another preempts is compared with all of them; extenders are called once, with all that stand.
		few = a.args.MaxCandidates
	}
	if a.left().count == 0 {
		return ended(a.unverifiable())
	}
	reply, end = a.plan(ctx, few)
	if end != nil {
		return nil, nil, end
	}
	passed, judged := a.verify(ctx, reply)
	done := len(passed) > 0 && (passed[0].asPlanned || len(reply.Candidates) < few || few == a.args.MaxCandidates)
	// A planner that names what it was asked to leave out is not asked forever.
	for !done && (judged > 0 || len(passed) > 0) && a.left().count > 0 && a.mayAsk(ctx) {
		again, end := a.plan(ctx, a.args.MaxCandidates)
		if end != nil {
			if len(passed) == 0 {
				return nil, nil, end
			}
			break
		}
		var others []*verifiedCandidate
		if others, judged = a.verify(ctx, again); len(others) > 0 {
			passed, reply = others, again
		}
		done = len(passed) > 0
	}
	switch {
	case len(passed) > 0:
		return passed, reply, nil
	case a.left().count == 0:
		return ended(a.unverifiable())
	}
	return ended(a.unfinished(start))
}

// left are the potential nodes that have not failed verification.
func (a *attempt) left() potential {
	names := make(map[string]bool, len(a.failed))
	for name := range a.failed {
		names[name] = true
	}
	return a.potential.without(names, a.nodes)
}

// mayAsk reports whether there is time for one more plan: one that the attempt's own end cut short would count as
// a planner's failure.
func (a *attempt) mayAsk(ctx context.Context) bool {
	deadline, _ := ctx.Deadline()
	return ctx.Err() == nil && time.Until(deadline) >= a.args.PlanTimeout.Duration
}

// plan asks for so many candidates, without the nodes that failed; the result says why there is none.
func (a *attempt) plan(ctx context.Context, candidates int) (*wire.PlanReply, *preemptResult) {
	ended := func(end preemptResult) (*wire.PlanReply, *preemptResult) { return nil, &end }
	reply, err := a.answer(ctx, question{pod: a.pod, mode: a.mode, nodes: a.left(), candidates: candidates, refused: a.refused, full: a.full})
	if err != nil {
		return ended(a.unreachable(err))
	}
	switch {
	case reply.Status == wire.StatusNotSynced && reply.Refusal != nil && slices.Contains(unaskableReasons, reply.Refusal.Reason):
		a.engine.retry.planUnavailable(refOf(a.pod), time.Time{})
		return ended(preemptResult{kind: endUnaskable, message: "the planner cannot read the question: " + beginning(reply.Refusal.Message, longestMessage)})
	case reply.Status == wire.StatusNotSynced:
		a.engine.retry.planUnavailable(refOf(a.pod), time.Time{})
		message := "the planner does not say why"
		if refusal := reply.Refusal; refusal != nil {
			message = beginning(refusal.Message, longestMessage)
		}
		return ended(preemptResult{kind: endNotSynced, message: "no plan: " + message})
	case a.mode == wire.ModeObserve:
		a.engine.retry.modeHeld(refOf(a.pod), a.asked)
		return ended(preemptResult{kind: endObserved, message: "mode observe"})
	case len(reply.Candidates)+len(reply.Unmodelled) == 0:
		return ended(a.refusal(ctx, reply))
	}
	return reply, nil
}

// answer returns the planner's reply, to the prefetched question where it is the same, else to a new one.
func (a *attempt) answer(ctx context.Context, q question) (*wire.PlanReply, error) {
	if asked := a.prefetch; asked != nil {
		a.prefetch = nil
		if asked.same(q) {
			asked.result = prefetchUsed
			a.asked = asked.at
			return asked.await(ctx)
		}
		asked.result = prefetchChanged
	}
	a.asked = a.engine.retry.now()
	return a.query(ctx, q, false)
}

func (a *attempt) verifier() *verifier {
	return &verifier{handle: a.handle, state: a.state, pod: a.pod, now: a.engine.clock.Now(), removes: a.engine.inflight.removes, refused: set(a.refused)}
}

// verify returns a plan's candidates that stand, best first, and how many more nodes have failed. What failed is
// remembered for the cycles to come.
func (a *attempt) verify(ctx context.Context, reply *wire.PlanReply) (passed []*verifiedCandidate, judged int) {
	start := time.Now()
	defer func() { verificationDuration.Observe(time.Since(start).Seconds()) }()
	// More than was asked for would cost more than it may.
	reply.Candidates = reply.Candidates[:min(len(reply.Candidates), a.args.MaxCandidates)]
	wantAll := len(interestedExtenders(a.handle, a.pod)) > 0
	passed, failed := a.verifier().verify(ctx, reply, a.potential.count, wantAll, a.rank)
	for node, why := range failed {
		if _, known := a.failed[node]; known {
			continue
		}
		judged++
		a.failed[node] = why
		if generation, ok := generationOf(a.nodes, node); ok {
			a.engine.verifyFailures.add(a.pod.UID, node, why, generation)
		}
	}
	return passed, judged
}

// askExtenders returns the candidates that the extenders allow, best first. Each extender is asked once, with all of them.
func (a *attempt) askExtenders(candidates []*verifiedCandidate) (kept []*verifiedCandidate, end *preemptResult) {
	extenders := interestedExtenders(a.handle, a.pod)
	if len(extenders) == 0 {
		return candidates, nil
	}
	kept, err := askExtenders(extenders, a.pod, candidates, a.nodes)
	switch {
	case err != nil:
		return nil, &preemptResult{kind: endError, message: err.Error()}
	case len(kept) == 0:
		a.engine.retry.planUnavailable(refOf(a.pod), time.Time{})
		return nil, &preemptResult{kind: endUnverifiable, message: fmt.Sprintf("scheduler extenders left none of %d nodes", len(candidates))}
	}
	a.rank(kept)
	return kept, nil
}

func (a *attempt) rank(candidates []*verifiedCandidate) { rank(candidates, a.engine.clock.Now()) }

// nominate marks the pod as preempting, before PostFilter returns and so before any other cycle, and
// leaves the rest to a goroutine.
func (a *attempt) nominate(best *verifiedCandidate, reply *wire.PlanReply) preemptResult {
	now := a.engine.clock.Now()
	order := &pendingOrder{
		id:         wire.NewOrderID(now),
		requestID:  reply.RequestID,
		decisionID: reply.DecisionID,
		pod:        a.pod,
		chosen:     best,
	}
	a.engine.retry.forget(a.pod.UID)
	a.engine.reverted.forget(a.pod.UID)
	a.engine.orders.begin(order.id)
	a.engine.inflight.begin(order.entry(now, a.args.NotAfter.Duration))
	victimsPerOrder.Observe(float64(len(best.victims)))
	metrics.PreemptionVictims.Observe(float64(len(best.victims)))
	failpoint(failNominated)
	a.engine.startCommit(order)
	return preemptResult{kind: endNominated, node: best.node}
}

// unreachable ends an attempt without a plan; the pod is tried again, since no event of the cluster
// tells when the planner is back.
func (a *attempt) unreachable(err error) preemptResult {
	_, probeAt := a.engine.breaker.current()
	switch {
	case errors.Is(err, errTooLarge), errors.Is(err, errUnreadable):
		a.engine.retry.planUnavailable(refOf(a.pod), time.Time{})
		return preemptResult{kind: endUnaskable, message: err.Error()}
	case errors.Is(err, errBreakerOpen):
		a.engine.retry.tryAt(refOf(a.pod), probeAt)
	default:
		a.engine.retry.planUnavailable(refOf(a.pod), probeAt)
	}
	return preemptResult{kind: endUnreachable, message: "no plan: " + err.Error()}
}

// refusal ends an attempt that the planner has refused: it says so of the nodes that are left, and those that failed
// were judged by the scheduler's filters.
func (a *attempt) refusal(ctx context.Context, reply *wire.PlanReply) preemptResult {
	if a.contradicts(ctx, reply) {
		a.engine.retry.tryAt(refOf(a.pod), a.engine.clock.Now().Add(verifyPause))
		return preemptResult{kind: endUnfinished, message: "the pod passes the scheduler's filters on a node that the planner ruled out; every node is verified next"}
	}
	a.engine.verifyFailures.forget(a.pod.UID)
	refusal := reply.Refusal
	if refusal == nil {
		refusal = &wire.Refusal{Message: "no node can be freed"}
	}
	retryAt := a.retryAt
	if refusal.RetryAt != nil && (retryAt.IsZero() || refusal.RetryAt.Before(retryAt)) {
		retryAt = refusal.RetryAt.Time
	}
	message := beginning(refusal.Message, longestMessage)
	if len(a.failed) > 0 {
		// Planner and plugin see the cluster at different moments, and no event tells when they agree.
		if soon := a.engine.clock.Now().Add(unreachableLongest); retryAt.IsZero() || soon.Before(retryAt) {
			retryAt = soon
		}
		message += fmt.Sprintf(" (nodes that were verified with the scheduler's filters: %s)", summary(a.failed))
	}
	dependsOn := refusal.DependsOn[:min(len(refusal.DependsOn), mostDependencies)]
	if queuegate.RejectionOf(a.state) != nil {
		dependsOn = append(slices.Clone(dependsOn), wire.Dependency{Kind: kindNode})
	}
	a.engine.retry.refuse(refOf(a.pod), a.asked, retryAt, dependsOn)
	klog.Background().V(2).Info("preemption_refused", "pod", klog.KObj(a.pod), "pod_uid", a.pod.UID,
		"request_id", reply.RequestID, "decision_id", reply.DecisionID, "reason", refusal.Reason)
	return preemptResult{kind: endRefused, message: message}
}

// unverifiable ends an attempt after all potential nodes have failed verification, in this cycle or those before. The
// pod is tried again, from the beginning: planner and plugin see the cluster and the orders at different moments, and no
// event tells when they agree.
func (a *attempt) unverifiable() preemptResult {
	a.engine.verifyFailures.forget(a.pod.UID)
	a.engine.retry.planUnavailable(refOf(a.pod), time.Time{})
	return preemptResult{kind: endUnverifiable, message: fmt.Sprintf("preemption would not help on any of %d nodes that were verified with the scheduler's filters: %s",
		a.potential.count, summary(a.failed))}
}

// unfinished ends an attempt whose time was over while nodes were left. The pod is tried again soon, and goes on with
// those.
func (a *attempt) unfinished(start time.Time) preemptResult {
	a.engine.retry.tryAt(refOf(a.pod), a.engine.verifyFailures.continueAt(a.pod.UID, a.engine.clock.Since(start)))
	message := fmt.Sprintf("%d of %d nodes where preemption may help have been verified with the scheduler's filters, without success so far; the others are next",
		a.potential.count-a.left().count, a.potential.count)
	if len(a.failed) > 0 {
		message += ": " + summary(a.failed)
	}
	return preemptResult{kind: endUnfinished, message: message}
}

// beginning cuts a text to so many bytes, between characters.
func beginning(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "") + "…"
}
