package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

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
	var retryAt time.Time
	if refusal.RetryAt != nil {
		retryAt = refusal.RetryAt.Time
	}
	message := wire.Beginning(refusal.Message, wire.MostOfMessage)
	if len(a.failed) > 0 {
		// Planner and plugin see the cluster at different moments, and no event tells when they agree.
		if soon := a.engine.clock.Now().Add(memory.PlanUnavailableMax); retryAt.IsZero() || soon.Before(retryAt) {
			retryAt = soon
		}
		message += fmt.Sprintf(" (nodes that were verified with the scheduler's filters: %s)", verify.Summary(a.failed))
	}
	dependsOn := refusal.DependsOn[:min(len(refusal.DependsOn), maxDependencies)]
	if a.keptOut {
		dependsOn = append(slices.Clone(dependsOn), wire.Dependency{Kind: memory.KindNode})
	}
	a.engine.memory.Retries.Refuse(a.one(), a.asked, retryAt, dependsOn)
	klog.Background().V(2).Info("preemption_refused", "pod", klog.KObj(a.pod), "pod_uid", a.pod.UID,
		"request_id", reply.RequestID, "decision_id", reply.DecisionID, "reason", refusal.Reason)
	return preemptResult{kind: endRefused, message: message}
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
		a.engine.verified.failures.Settle(a.engine.clock.Now(), a.ownClass())
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
		a.engine.verified.failures.KeepUntil(a.ownClass(), goesOn)
	}
	message := fmt.Sprintf("%d of %d nodes where preemption may help have been verified with the scheduler's filters, without success so far; the others are next",
		a.potential.Count-a.left().Count, a.potential.Count)
	if len(a.failed) > 0 {
		message += ": " + verify.Summary(a.failed)
	}
	return preemptResult{kind: endUnfinished, message: message}
}
