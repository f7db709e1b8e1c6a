// Package verify holds what a planner proposes to the scheduler's own filters. A Verifier checks candidates for a pod on copies of
// their nodes, a GroupVerifier a plan for a pod group on the cycle's snapshot, by one trial: take out what is planned, see that all
// members fit, give back what need not leave. A planner's word alone makes no pod go. What failed is remembered by class of pods, and what
// verification may cost the scheduling thread is bounded. It knows no clock but the time that callers pass in, no NATS and no API server.
package verify

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/wire"
)

// How many nodes that stand are enough for the second pass: like upstream, a tenth of the nodes, and at least a hundred.
const (
	enoughAtLeast = 100
	enoughShare   = 10
)

// pluginName is what the framework knows the plugin by that verifies.
const pluginName = "MakeWay"

// Verifier checks candidates of one cycle with the scheduler's own filters, on copies of its node and
// of its state. It never changes either, and never removes a pod that is not in `removable`.
type Verifier struct {
	Handle fwk.Handle
	State  fwk.CycleState
	Pod    *v1.Pod
	Now    time.Time
	// Remover is the order in flight that removes a pod, empty where none does. A planner's word alone makes no pod go.
	Remover func(orderID string, uid types.UID) string
	// Left are the pods that succeeded orders have removed, each with its order: the planner may see one gone a moment before the
	// scheduler does, and names it no more.
	Left map[types.UID]string
}

// Verify returns the candidates that pass, best first, and why each other node that was judged does not.
//
// The plan's first candidate stands alone where its victims are as planned and nothing can be better:
// no node is unmodelled, and no extender has to choose. Otherwise all are verified. Where a planned set does not fit, and
// on unmodelled nodes, every removable pod is removed and reprieved, in parallel, until enough nodes stand; what that
// finds is ranked against the others. A node that the context's end kept from being judged is in neither.
func (v *Verifier) Verify(ctx context.Context, reply *wire.PlanReply, potential int, wantAll bool) (passed []*Candidate, failed map[string]Failure) {
	candidates, unmodelled := reply.Candidates, reply.Unmodelled
	results := make([]*Candidate, len(candidates))
	checked := 0
	if len(candidates) > 0 && len(unmodelled) == 0 && !wantAll {
		first, _ := v.Check(ctx, candidates[0], false)
		if first != nil && first.AsPlanned {
			return []*Candidate{first}, nil
		}
		results[0], checked = first, 1
	}
	v.Handle.Parallelizer().Until(ctx, len(candidates)-checked, func(i int) {
		results[checked+i], _ = v.Check(ctx, candidates[checked+i], false)
	}, pluginName)
	passed = slices.DeleteFunc(slices.Clone(results), func(r *Candidate) bool { return r == nil })

	again := make([]wire.Candidate, 0, len(candidates)+len(unmodelled))
	for i, result := range results {
		if result == nil {
			again = append(again, candidates[i])
		}
	}
	again = append(again, unmodelled...)
	enough := max(enoughAtLeast, potential/enoughShare)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed = map[string]Failure{}
	var mu sync.Mutex
	v.Handle.Parallelizer().Until(ctx, len(again), func(i int) {
		result, why := v.Check(ctx, again[i], true)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case result != nil:
			if passed = append(passed, result); len(passed) >= enough {
				cancel()
			}
		case why.Cause != CauseUnfinished:
			failed[again[i].Node] = why
		}
	}, pluginName)
	Rank(passed, v.Now)
	return passed, failed
}

// Check verifies one candidate: remove the awaited and the planned pods (all: every removable one), run
// the filters, and reprieve the removed ones, those that violate a budget first and the more important
// first. Where the candidate does not stand it is nil, and the failure says why.
func (v *Verifier) Check(ctx context.Context, candidate wire.Candidate, all bool) (result *Candidate, why Failure) {
	defer goroutines.RecoverPanic(ctx, "post_filter", func() { result, why = nil, Failure{Cause: CauseError} })
	nodes := v.Handle.SnapshotSharedLister().NodeInfos()
	original, err := nodes.Get(candidate.Node)
	if err != nil || original.Node() == nil {
		return nil, Failure{Cause: CauseNodeGone}
	}
	dry := v.trialOn(original)
	there := &cluster{nodes: nodes, pods: map[string]map[types.UID]fwk.PodInfo{}}
	result = &Candidate{Node: candidate.Node, removable: map[types.UID]Victim{}}

	unordered := false
	awaited := v.awaited(candidate.Awaited)
	for _, info := range original.GetPods() {
		orderID, named := awaited[info.GetPod().UID]
		if !named && (v.removedBy(info.GetPod()) == "" || isPlanned(info.GetPod(), candidate.Removable)) {
			continue
		}
		out := v.leaving(info, candidate.Node, orderID)
		if out == nil {
			unordered = true // it stays, and the preemptor may fit beside it
			continue
		}
		if err := dry.take(ctx, out, dry.members); err != nil {
			return nil, failureOf(ctx, nil)
		}
		dry.goes(result, out)
	}

	var removed []*removal
	plannedCount, plannedAwaited := 0, len(result.Awaited)
	for _, block := range byViolation(candidate.Removable) {
		if block[0].Victim {
			plannedCount += len(block)
		}
		together, why := v.removal(block, candidate.Node, there)
		if why != "" {
			continue
		}
		for _, one := range together.victims {
			result.removable[one.Pod.UID] = one
		}
		if !all && !block[0].Victim {
			continue
		}
		if err := dry.take(ctx, together, dry.members); err != nil {
			return nil, failureOf(ctx, nil)
		}
		removed = append(removed, together)
	}

	if len(removed)+len(result.Awaited) == 0 {
		return nil, Failure{Cause: CauseNothing}
	}
	switch rejected, err := dry.fit(ctx, dry.members); {
	case err == nil && rejected == nil:
	case unordered:
		return nil, Failure{Cause: CauseAwaited}
	default:
		return nil, failureOf(ctx, rejected)
	}
	if judged, err := dry.settle(ctx, removed, time.Time{}, result); err != nil || !judged {
		return nil, failureOf(ctx, nil)
	}
	if result.NeedsNothing() {
		return nil, Failure{Cause: CauseNoNeed}
	}
	if candidate.MaxVictims > 0 && int64(len(result.Victims)) > candidate.MaxVictims {
		return nil, Failure{Cause: CauseTooMany}
	}
	result.AsPlanned = !all && len(result.Victims)+len(result.Awaited)-plannedAwaited == plannedCount
	return result, Failure{}
}

// isPlanned reports whether a candidate names a pod.
func isPlanned(pod *v1.Pod, removable []wire.Removable) bool {
	return slices.ContainsFunc(removable, func(one wire.Removable) bool { return one.UID == string(pod.UID) })
}

// trialOn is a trial on a copy of a node and of the cycle's state.
func (v *Verifier) trialOn(node fwk.NodeInfo) *dryRun {
	return &dryRun{
		Verifier: v, board: &nodeCopy{v.Handle.SnapshotSharedLister().NodeInfos(), node.Snapshot()},
		members: []minor.Assignment{{Pod: v.Pod, Node: node.Node().Name, State: v.State.Clone()}},
	}
}

// failureOf says why a step failed, by what the filters answered if that was why. What they answer while the context ends says nothing of
// the node.
func failureOf(ctx context.Context, rejected *fwk.Status) Failure {
	switch {
	case ctx.Err() != nil:
		return Failure{Cause: CauseUnfinished}
	case rejected.IsRejected():
		return Failure{Cause: CauseFilters, Plugin: rejected.Plugin()}
	}
	return Failure{Cause: CauseError}
}

// mayRemove is the plugin's own check of a rule that the planner names. A rule it does not know allows
// nothing. A pod that should have left long ago makes no room by being asked again. That a pod says that a
// DaemonSet controls it keeps it from nothing here: the planner knows whether that is so, and an evictor reads it.
func (v *Verifier) mayRemove(pod *v1.Pod, rule, node string) bool {
	if overdue(pod, v.Now) {
		return false
	}
	switch rule {
	case RuleLowerPriority:
		return corev1helpers.PodPriority(pod) < corev1helpers.PodPriority(v.Pod)
	case ruleLowerGroupPriority:
		// The scheduler's own priority of the pod does not count; an evictor reads that of the group.
		return minor.InGroup(pod) && !v.isOwn(pod)
	case RuleReclaim:
		// Whose queue guarantees what an evictor reads, and the priorities of groups.
		equal := corev1helpers.PodPriority(pod) == corev1helpers.PodPriority(v.Pod)
		return (equal || minor.InGroup(pod)) && !v.isOwn(pod)
	case RuleDaemonSetSingle, RuleDaemonSetMultiple:
		return node != "" && DaemonSetNode(v.Pod) == node && mayDisplace(v.Pod, pod, node)
	}
	return false
}

// byViolation returns removals, a pod by itself or all of a unit: those that violate a budget first, otherwise in the
// planner's order.
func byViolation(removable []wire.Removable) [][]wire.Removable {
	blocks := inUnits(removable)
	violates := func(block []wire.Removable) bool {
		return slices.ContainsFunc(block, func(r wire.Removable) bool { return r.PDBViolating })
	}
	slices.SortStableFunc(blocks, func(a, b []wire.Removable) int { return first(violates(a), violates(b)) })
	return blocks
}

// first compares by what comes first.
func first(yes, other bool) int {
	switch {
	case yes == other:
		return 0
	case yes:
		return -1
	}
	return 1
}
