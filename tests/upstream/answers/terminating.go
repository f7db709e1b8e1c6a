package main

import (
	"context"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// asked is when the planner is asked about a cluster, and these are makeway's terms for terminating pods (docs/ranking.md).
var asked = began.Add(24 * time.Hour)

const (
	awaitTerminating = time.Minute
	overdueAfter     = time.Minute
)

// ends are when grace periods of terminating pods end: soon, long ago, and not for a while.
var ends = []time.Time{asked.Add(20 * time.Second), began.Add(time.Hour), asked.Add(10 * time.Minute)}

// isTerminating reports whether a pod is being deleted on a node.
func isTerminating(pod *v1.Pod) bool { return pod.DeletionTimestamp != nil && pod.Spec.NodeName != "" }

// isAwaited reports whether the room of a terminating pod is on its way; patient: however long that takes.
func isAwaited(pod *v1.Pod, patient bool) bool {
	left := pod.DeletionTimestamp.Sub(asked)
	return left > -overdueAfter && (patient || left <= awaitTerminating)
}

// askAsRuled gives what DefaultPreemption would do by makeway's rule for terminating pods, which kube-scheduler does not have: they
// are no victims, and on each node those whose room is on its way are gone. Where that leaves no candidate, the others that
// are not overdue are gone as well. A node that has room without them is a candidate without victims, and the best.
func askAsRuled(ctx context.Context, c *Case, answer *Answer) error {
	for _, patient := range []bool{false, true} {
		if err := dryRunAsRuled(ctx, c, answer, patient); err != nil || len(answer.Candidates) > 0 {
			return err
		}
	}
	return nil
}

func dryRunAsRuled(ctx context.Context, c *Case, answer *Answer, patient bool) error {
	var all []preemption.Candidate
	var evaluator *preemption.Evaluator
	awaiting := map[string]bool{}
	for _, pod := range c.Pods {
		if isTerminating(pod) && isAwaited(pod, patient) {
			awaiting[pod.Spec.NodeName] = true
		}
	}
	others := slices.DeleteFunc(slices.Clone(answer.Potential), func(node string) bool { return awaiting[node] })
	parts := [][]string{others}
	for _, node := range answer.Potential {
		if awaiting[node] {
			parts = append(parts, []string{node})
		}
	}
	for _, nodes := range parts {
		if len(nodes) == 0 {
			continue
		}
		w, err := newWorld(ctx, asRuled(c, nodes[0], patient))
		if err != nil {
			return err
		}
		state, fits, potential, err := w.filter(ctx, c.Preemptor)
		if err != nil {
			return err
		}
		for _, node := range nodes {
			if slices.Contains(fits, node) {
				answer.Candidates[node] = Victims{UIDs: []string{}}
			}
		}
		potential = slices.DeleteFunc(potential, func(info fwk.NodeInfo) bool { return !slices.Contains(nodes, info.Node().Name) })
		if len(potential) == 0 {
			continue
		}
		found, _, err := w.evaluator.DryRunPreemption(ctx, state, c.Preemptor, potential, c.Budgets, 0, int32(len(potential)))
		if err != nil && !countsSpreadsByOrder(c) {
			return err
		}
		evaluator, all = w.evaluator, append(all, found...)
	}
	for node := range answer.Candidates {
		if answer.Chosen == "" || node < answer.Chosen {
			answer.Chosen = node
		}
	}
	for _, candidate := range all {
		answer.Candidates[candidate.Name()] = victimsOf(candidate)
	}
	if answer.Chosen == "" && evaluator != nil {
		answer.Chosen = best(ctx, evaluator, all)
	}
	answer.Sampled = answer.Chosen
	return nil
}

// asRuled is a cluster without the awaited pods of a node, in which no other terminating pod can be a victim.
func asRuled(c *Case, node string, patient bool) *Case {
	ruled := *c
	ruled.Pods = nil
	for _, pod := range c.Pods {
		if isTerminating(pod) {
			if pod.Spec.NodeName == node && isAwaited(pod, patient) {
				continue
			}
			pod = pod.DeepCopy()
			pod.Spec.Priority = new(int32(math.MaxInt32))
		}
		ruled.Pods = append(ruled.Pods, pod)
	}
	return &ruled
}
