package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// verifier checks candidates in the attempt's cycle.
func (a *attempt) verifier() *verify.Verifier {
	return &verify.Verifier{Handle: a.handle, State: a.state, Pod: a.pod, Now: a.engine.clock.Now(), Remover: a.engine.inflight.Remover, Left: a.engine.inflight.Left()}
}

// verify returns a plan's candidates that stand, best first, and how many more nodes have failed. What failed is
// remembered for the cycles to come. asked: how many candidates were asked for.
func (a *attempt) verify(ctx context.Context, reply *wire.PlanReply, asked int) (passed []*verify.Candidate, judged int) {
	start := time.Now()
	defer func() { verificationDuration.Observe(time.Since(start).Seconds()) }()
	// More than was asked for would cost more than it may.
	reply.Candidates = reply.Candidates[:min(len(reply.Candidates), asked)]
	passed, failed := a.verifier().Verify(ctx, reply, a.potential.Count, a.asksExtenders(a.pod))
	if len(passed) == 0 && a.outdated() {
		return nil, len(failed)
	}
	return passed, a.remember(failed)
}

// remember notes nodes that have failed, for the cycles to come too, and returns how many were not known.
func (a *attempt) remember(failed map[string]verify.Failure) (added int) {
	for node, why := range failed {
		if _, known := a.failed[node]; known {
			continue
		}
		added++
		a.fail(node, why)
	}
	return added
}

// fail notes that a node failed, for this try and for others of pods of the class; of the pod alone where a cycle before has asked. What
// another plan takes there is an order in a moment, or free again after seconds, and no event of the node shows that: it is for this try
// alone.
func (a *attempt) fail(node string, why verify.Failure) {
	a.failed[node] = why
	if why.Cause == verify.CauseAwaited {
		return
	}
	class := a.class()
	if a.before {
		class = string(a.uid)
	}
	a.failedNow(class, node, why)
}

// Labels of makeway_scheduler_refusal_samples_total.
const (
	sampleConfirmed = "confirmed"
	sampleMissed    = "missed"
	sampleUndecided = "undecided"
)

// contradicts verifies the sample of a refusal, where its turn has come, and reports whether it shows the refusal to be wrong.
func (a *attempt) contradicts(ctx context.Context, reply *wire.PlanReply) bool {
	if reply.Sample == nil || a.full || !a.engine.verified.samples.Due(a.engine.clock.Now()) {
		return false
	}
	passed, why := a.verifier().Check(ctx, *reply.Sample, true)
	result := sampleUndecided
	switch {
	case passed != nil && !a.before: // else the node may have changed since a cycle before asked
		result = sampleMissed
	case why.Cause == verify.CauseFilters || why.Cause == verify.CauseTooMany:
		result = sampleConfirmed
	}
	refusalSamples.WithLabelValues(result).Inc()
	logger := klog.FromContext(ctx)
	if passed != nil {
		a.engine.verified.samples.Missed(a.engine.clock.Now(), a.pod.UID)
	}
	if result != sampleMissed {
		logger.V(2).Info("refusal_sampled", "pod", klog.KObj(a.pod), "node", reply.Sample.Node, "decision_id", reply.DecisionID, "result", result)
		return passed != nil
	}
	logger.Error(nil, "refusal_missed", "pod", klog.KObj(a.pod), "pod_uid", a.pod.UID, "node", reply.Sample.Node, "victims", len(passed.Victims),
		"request_id", reply.RequestID, "decision_id", reply.DecisionID, "planner", reply.Planner, "remedy", "report it with the output of: makeway replay "+reply.DecisionID)
	return true
}

// asksExtenders reports whether extenders are asked about a pod's candidates: each once, with all of them.
func (pl *MakeWay) asksExtenders(pod *v1.Pod) bool {
	return len(verify.Extenders(pl.handle, pod, fwk.Extender.SupportsPreemption))+len(verify.Extenders(pl.handle, pod, fwk.Extender.IsFilter)) > 0
}

// allowedByFilters returns the candidates that the extenders' filters do not reject; the others have failed verification. The result
// says why there is none: then no other plugin acts either, since the scheduler would place the pod on none of them. pay has the
// time that it took counted.
func (a *attempt) allowedByFilters(candidates []*verify.Candidate, pay func()) (kept []*verify.Candidate, end *preemptResult) {
	extenders := verify.Extenders(a.handle, a.pod, fwk.Extender.IsFilter)
	if len(extenders) == 0 {
		return candidates, nil
	}
	rejected, err := verify.AskFilters(extenders, a.pod, candidates, a.nodes)
	if err != nil {
		return nil, a.later(endUnverifiable, err.Error())
	}
	a.remember(rejected)
	kept = slices.DeleteFunc(slices.Clone(candidates), func(c *verify.Candidate) bool {
		_, gone := rejected[c.Node]
		return gone
	})
	if len(kept) > 0 {
		return kept, nil
	}
	result := a.unverifiable
	if a.left().Count > 0 {
		pay()
		result = func() preemptResult { return a.unfinished(true) }
	}
	ended := result()
	ended.kind = endUnverifiable
	return nil, &ended
}

// askExtenders returns the candidates that the extenders allow, best first. Each extender is asked once, with all of them.
func (a *attempt) askExtenders(candidates []*verify.Candidate) (kept []*verify.Candidate, end *preemptResult) {
	extenders := verify.Extenders(a.handle, a.pod, fwk.Extender.SupportsPreemption)
	if len(extenders) == 0 {
		return candidates, nil
	}
	kept, err := verify.AskExtenders(extenders, a.pod, candidates, a.nodes)
	switch {
	case err != nil:
		return nil, &preemptResult{kind: endError, message: err.Error()}
	case len(kept) == 0:
		return nil, a.later(endUnverifiable, fmt.Sprintf("scheduler extenders left none of %d nodes", len(candidates)))
	}
	verify.Rank(kept, a.engine.clock.Now())
	return kept, nil
}

// maxDependencies bounds what is kept of what a refusal depends on, for as long as the pod waits.
const maxDependencies = 64

// verifyPause is how long verification waits at least that was not finished in one cycle.
const verifyPause = time.Second

// refusal ends an attempt that the planner has refused: it says so of the nodes that are left, and those that failed
// were judged by the scheduler's filters.
func (a *attempt) refusal(ctx context.Context, reply *wire.PlanReply) preemptResult {
	if a.contradicts(ctx, reply) {
		a.engine.memory.Retries.TryAt(a.one(), a.engine.clock.Now().Add(verifyPause))
		return preemptResult{kind: endUnfinished, message: "the pod passes the scheduler's filters on a node that the planner ruled out; every node is verified next"}
	}
	a.settle()
	refusal := reply.Refusal
	if refusal == nil {
		refusal = &wire.Refusal{Message: "no node can be freed"}
	}
	retryAt := retryAtOf(refusal)
	message := wire.Beginning(refusal.Message, wire.MostOfMessage)
	if len(a.failed) > 0 {
		// Planner and plugin see the cluster at different moments, and no event tells when they agree.
		retryAt = goroutines.Sooner(retryAt, a.engine.clock.Now().Add(memory.PlanUnavailableMax))
		message += fmt.Sprintf(" (nodes that were verified with the scheduler's filters: %s)", verify.Summary(a.failed))
	}
	var and []wire.Dependency
	if a.keptOut {
		and = append(and, wire.Dependency{Kind: memory.KindNode})
	}
	klog.Background().V(2).Info("preemption_refused", "pod", klog.KObj(a.pod), "pod_uid", a.pod.UID,
		"request_id", reply.RequestID, "decision_id", reply.DecisionID, "reason", refusal.Reason)
	return *a.refused(refusal, retryAt, message, and...)
}

// unverifiable ends an attempt after all potential nodes have failed verification, in this cycle or those before. The
// pod is tried again, and from the beginning once settledMemory is over: planner and plugin see the cluster and the orders at different moments, and no
// event tells when they agree.
func (a *attempt) unverifiable() preemptResult {
	a.settle()
	return *a.later(endUnverifiable, fmt.Sprintf("preemption would not help on any of %d nodes that were verified with the scheduler's filters: %s",
		a.potential.Count, verify.Summary(a.failed)))
}

// settle has a later try of the class start anew.
func (a *attempt) settle() {
	if len(a.failed) > 0 {
		a.engine.verified.failures.Settle(a.engine.clock.Now(), a.class())
		a.engine.verified.failures.Settle(a.engine.clock.Now(), string(a.uid))
	}
}

// unfinished ends an attempt whose time, or that of all pods, was over while nodes were left. The pod is tried again once there is
// time, and goes on with those; each further try that did not begin waits longer.
func (a *attempt) unfinished(begun bool) preemptResult {
	goesOn := a.engine.verified.budget.OpensAt()
	if soonest := a.engine.clock.Now().Add(verifyPause); goesOn.Before(soonest) {
		goesOn = soonest
	}
	if begun {
		a.engine.memory.Retries.TryAt(a.one(), goesOn)
	} else {
		a.engine.memory.Retries.PlanUnavailable(a.one(), goesOn)
	}
	if len(a.failed) > 0 {
		a.engine.verified.failures.KeepUntil(a.class(), goesOn)
		a.engine.verified.failures.KeepUntil(string(a.uid), goesOn)
	}
	message := fmt.Sprintf("%d of %d nodes where preemption may help have been verified with the scheduler's filters, without success so far; the others are next",
		a.potential.Count-a.left().Count, a.potential.Count)
	if len(a.failed) > 0 {
		message += ": " + verify.Summary(a.failed)
	}
	return preemptResult{kind: endUnfinished, message: message}
}
