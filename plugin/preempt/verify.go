package preempt

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/wire"
)

// The planner's rules by which a pod may be removed: a lower priority, and the strategies that make room
// for a pod that its DaemonSet has bound to one node.
const (
	ruleLowerPriority      = "lower-priority"
	ruleLowerGroupPriority = "lower-group-priority"
	ruleDaemonSetSingle    = "daemonset-single"
	ruleDaemonSetMultiple  = "daemonset-multiple"
)

// How many nodes that stand are enough for the second pass: like upstream, a tenth of the nodes, and at least a hundred.
const (
	enoughAtLeast = 100
	enoughShare   = 10
)

// victim is a pod that has to go.
type victim struct {
	pod       *v1.Pod
	rule      string
	violating bool               // its removal violates a PodDisruptionBudget
	unit      string             // the group with which it goes whole or not at all
	closes    *wire.ClosedDomain // on a node of no member, and why it goes
	apart     bool               // on a node of no member, and the preemptor fits while it is still leaving there
}

// awaitedPod is a pod that leaves anyway: another order removes it, or it is terminating and has no orderID.
type awaitedPod struct {
	pod     *v1.Pod
	orderID string
}

// onTheWire names the pod as messages do.
func (a awaitedPod) onTheWire() wire.Awaited {
	if a.orderID != "" {
		return wire.Awaited{UID: string(a.pod.UID), OrderID: a.orderID}
	}
	until := wire.At(overdueAt(a.pod))
	return wire.Awaited{UID: string(a.pod.UID), Namespace: a.pod.Namespace, Name: a.pod.Name, Until: &until}
}

// verifiedCandidate is a candidate that passed the scheduler's own filters. Its victims are minimal: none of
// them could stay. They come in the order in which they were reprieved.
type verifiedCandidate struct {
	node    string
	nodeUID types.UID
	victims []victim
	awaited []awaitedPod
	// removable are the pods of the node that policy allows to be removed, by UID.
	removable map[types.UID]victim
	// asPlanned: the victims are exactly those of the plan.
	asPlanned bool
}

func (a *attempt) verifier() *verifier {
	limited := a.engine.gate.HasMax(a.pod)
	return &verifier{handle: a.handle, state: a.state, pod: a.pod, now: a.engine.clock.Now(), remover: a.engine.inflight.remover, refused: set(a.refused), limited: limited}
}

// verify returns a plan's candidates that stand, best first, and how many more nodes have failed. What failed is
// remembered for the cycles to come. asked: how many candidates were asked for.
func (a *attempt) verify(ctx context.Context, reply *wire.PlanReply, asked int) (passed []*verifiedCandidate, judged int) {
	start := time.Now()
	defer func() { verificationDuration.Observe(time.Since(start).Seconds()) }()
	// More than was asked for would cost more than it may.
	reply.Candidates = reply.Candidates[:min(len(reply.Candidates), asked)]
	passed, failed := a.verifier().verify(ctx, reply, a.potential.count, a.asksExtenders(a.pod), a.rank)
	return passed, a.remember(failed)
}

// remember notes nodes that have failed, for the cycles to come too, and returns how many were not known.
func (a *attempt) remember(failed map[string]failure) (added int) {
	for node, why := range failed {
		if _, known := a.failed[node]; known {
			continue
		}
		added++
		a.fail(node, why)
	}
	return added
}

func (a *attempt) rank(candidates []*verifiedCandidate) { rank(candidates, a.engine.clock.Now()) }

// verifier checks candidates of one cycle with the scheduler's own filters, on copies of its node and
// of its state. It never changes either, and never removes a pod that is not in `removable`.
type verifier struct {
	handle fwk.Handle
	state  fwk.CycleState
	pod    *v1.Pod
	now    time.Time
	// remover is the order in flight that removes a pod, empty where none does. A planner's word alone makes no pod go.
	remover func(orderID string, uid types.UID) string
	// refused are pods that could not be evicted for this one lately.
	refused map[string]bool
	// limited: the pod's queue, or one above it, has a max, which counts pods on all nodes until they have left.
	limited bool
}

// verify returns the candidates that pass, best first, and why each other node that was judged does not.
//
// The plan's first candidate stands alone where its victims are as planned and nothing can be better:
// no node is unmodelled, and no extender has to choose. Otherwise all are verified. Where a planned set does not fit, and
// on unmodelled nodes, every removable pod is removed and reprieved, in parallel, until enough nodes stand; what that
// finds is ranked against the others. A node that the context's end kept from being judged is in neither.
func (v *verifier) verify(ctx context.Context, reply *wire.PlanReply, potential int, wantAll bool, rankAll func([]*verifiedCandidate)) (passed []*verifiedCandidate, failed map[string]failure) {
	candidates, unmodelled := reply.Candidates, reply.Unmodelled
	results := make([]*verifiedCandidate, len(candidates))
	checked := 0
	if len(candidates) > 0 && len(unmodelled) == 0 && !wantAll {
		first, _ := v.check(ctx, candidates[0], false)
		if first != nil && first.asPlanned {
			return []*verifiedCandidate{first}, nil
		}
		results[0], checked = first, 1
	}
	v.handle.Parallelizer().Until(ctx, len(candidates)-checked, func(i int) {
		results[checked+i], _ = v.check(ctx, candidates[checked+i], false)
	}, Name)
	passed = slices.DeleteFunc(slices.Clone(results), func(r *verifiedCandidate) bool { return r == nil })

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
	failed = map[string]failure{}
	var mu sync.Mutex
	v.handle.Parallelizer().Until(ctx, len(again), func(i int) {
		result, why := v.check(ctx, again[i], true)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case result != nil:
			if passed = append(passed, result); len(passed) >= enough {
				cancel()
			}
		case why.cause != causeUnfinished:
			failed[again[i].Node] = why
		}
	}, Name)
	rankAll(passed)
	return passed, failed
}

// check verifies one candidate: remove the awaited and the planned pods (all: every removable one), run
// the filters, and reprieve the removed ones, those that violate a budget first and the more important
// first. Where the candidate does not stand it is nil, and the failure says why.
func (v *verifier) check(ctx context.Context, candidate wire.Candidate, all bool) (result *verifiedCandidate, why failure) {
	defer goroutines.RecoverPanic(ctx, "post_filter", func() { result, why = nil, failure{cause: causeError} })
	original, err := v.handle.SnapshotSharedLister().NodeInfos().Get(candidate.Node)
	if err != nil || original.Node() == nil {
		return nil, failure{cause: causeNodeGone}
	}
	dry := dryRun{verifier: v, node: original.Snapshot(), state: v.state.Clone()}
	result = &verifiedCandidate{
		node:      candidate.Node,
		nodeUID:   original.Node().UID,
		removable: map[types.UID]victim{},
	}
	present := make(map[types.UID]fwk.PodInfo, len(original.GetPods()))
	for _, info := range original.GetPods() {
		present[info.GetPod().UID] = info
	}

	for _, awaited := range candidate.Awaited {
		info, ok := present[types.UID(awaited.UID)]
		if !ok {
			continue
		}
		one := awaitedPod{pod: info.GetPod()}
		if !terminating(one.pod, v.now) {
			if one.orderID = v.remover(awaited.OrderID, one.pod.UID); one.orderID == "" {
				return nil, failure{cause: causeAwaited}
			}
		}
		if !dry.remove(ctx, info) {
			return nil, dry.failure(ctx)
		}
		result.awaited = append(result.awaited, one)
	}

	var removed []removal
	plannedCount := 0
	for _, block := range byViolation(candidate.Removable) {
		if block[0].Victim {
			plannedCount += len(block)
		}
		together, ok := v.removal(block, candidate.Node, present)
		if !ok {
			continue
		}
		for _, one := range together.victims {
			result.removable[one.pod.UID] = one
		}
		if !all && !block[0].Victim {
			continue
		}
		if !dry.removeAll(ctx, together) {
			return nil, dry.failure(ctx)
		}
		removed = append(removed, together)
	}

	if len(removed)+len(result.awaited) == 0 {
		return nil, failure{cause: causeNothing}
	}
	if !dry.fits(ctx) {
		return nil, dry.failure(ctx)
	}
	var going []removal
	for _, together := range removed {
		stays, ok := dry.reprieve(ctx, together)
		if !ok {
			return nil, dry.failure(ctx)
		}
		if !stays {
			going = append(going, together)
		}
	}
	if !v.limited && dry.fitsBeside(ctx, going) {
		for _, together := range going {
			for i := range together.victims {
				together.victims[i].apart = together.nodes[i] != nil
			}
		}
	}
	plannedAwaited := len(result.awaited)
	for _, together := range going {
		for _, one := range together.victims {
			if terminating(one.pod, v.now) { // since the plan was made
				result.awaited = append(result.awaited, awaitedPod{pod: one.pod})
			} else {
				result.victims = append(result.victims, one)
			}
		}
	}
	if len(result.victims)+len(result.awaited) == 0 {
		return nil, failure{cause: causeNoNeed}
	}
	if candidate.MaxVictims > 0 && int64(len(result.victims)) > candidate.MaxVictims {
		return nil, failure{cause: causeTooMany}
	}
	result.asPlanned = !all && len(result.victims)+len(result.awaited)-plannedAwaited == plannedCount
	return result, failure{}
}

// mayRemove is the plugin's own check of a rule that the planner names. A rule it does not know allows
// nothing. A pod that should have left long ago, or that could not be evicted, makes no room by being asked again.
func (v *verifier) mayRemove(pod *v1.Pod, rule, node string) bool {
	if overdue(pod, v.now) || v.refused[string(pod.UID)] {
		return false
	}
	switch rule {
	case ruleLowerPriority:
		return corev1helpers.PodPriority(pod) < corev1helpers.PodPriority(v.pod)
	case ruleLowerGroupPriority:
		// The scheduler's own priority of the pod does not count; an evictor reads that of the group.
		return minor.InGroup(pod)
	case ruleDaemonSetSingle, ruleDaemonSetMultiple:
		return daemonSetNode(v.pod) == node && !ofDaemonSet(pod) && mayDisplace(v.pod, pod, node)
	}
	return false
}

// byViolation returns what goes together, a pod by itself or all of a unit: those that violate a budget first, otherwise in the
// planner's order.
func byViolation(removable []wire.Removable) [][]wire.Removable {
	var blocks [][]wire.Removable
	for first := 0; first < len(removable); {
		last := first + 1
		for removable[first].Unit != "" && last < len(removable) && removable[last].Unit == removable[first].Unit {
			last++
		}
		blocks = append(blocks, removable[first:last])
		first = last
	}
	violates := func(block []wire.Removable) bool {
		return slices.ContainsFunc(block, func(r wire.Removable) bool { return r.PDBViolating })
	}
	slices.SortStableFunc(blocks, func(a, b []wire.Removable) int {
		switch {
		case violates(a) == violates(b):
			return 0
		case violates(a):
			return -1
		}
		return 1
	})
	return blocks
}

// removal is what goes together: a pod by itself, or the pods of a unit, on all their nodes.
type removal struct {
	victims []victim
	infos   []fwk.PodInfo
	nodes   []fwk.NodeInfo // of each pod, nil where that is the candidate
}

// removal finds the pods of a block. ok is false where one of them is not there or may not go: then none does.
func (v *verifier) removal(block []wire.Removable, node string, present map[types.UID]fwk.PodInfo) (together removal, ok bool) {
	for _, removable := range block {
		info, remote := present[types.UID(removable.UID)], fwk.NodeInfo(nil)
		if removable.Unit != "" && removable.Node != "" && removable.Node != node {
			info, remote = v.find(removable)
		}
		if info == nil || !v.mayRemove(info.GetPod(), removable.Rule, node) {
			return removal{}, false
		}
		together.victims = append(together.victims, victim{pod: info.GetPod(), rule: removable.Rule, violating: removable.PDBViolating, unit: removable.Unit})
		together.infos, together.nodes = append(together.infos, info), append(together.nodes, remote)
	}
	return together, true
}

// find returns a pod that runs on another node than the candidate, and that node.
func (v *verifier) find(removable wire.Removable) (fwk.PodInfo, fwk.NodeInfo) {
	node, err := v.handle.SnapshotSharedLister().NodeInfos().Get(removable.Node)
	if err != nil {
		return nil, nil
	}
	for _, info := range node.GetPods() {
		if info.GetPod().UID == types.UID(removable.UID) {
			return info, node
		}
	}
	return nil, nil
}

// dryRun is a copy of one node and of the cycle's state on which pods are removed and put back.
type dryRun struct {
	*verifier
	node  fwk.NodeInfo
	state fwk.CycleState
	last  *fwk.Status // what a plugin of the scheduler answered last
}

func (t *dryRun) remove(ctx context.Context, info fwk.PodInfo) bool {
	if err := t.node.RemovePod(klog.FromContext(ctx), info.GetPod()); err != nil {
		t.last = fwk.AsStatus(err)
		return false
	}
	return t.isSuccess(t.handle.RunPreFilterExtensionRemovePod(ctx, t.state, t.pod, info, t.node))
}

func (t *dryRun) add(ctx context.Context, info fwk.PodInfo) bool {
	t.node.AddPodInfo(info)
	return t.isSuccess(t.handle.RunPreFilterExtensionAddPod(ctx, t.state, t.pod, info, t.node))
}

// removeAll removes what goes together. As upstream, pods on other nodes only leave the cycle's state: the filters look at the
// candidate alone.
func (t *dryRun) removeAll(ctx context.Context, together removal) bool {
	for i, info := range together.infos {
		if node := together.nodes[i]; node != nil {
			if !t.isSuccess(t.handle.RunPreFilterExtensionRemovePod(ctx, t.state, t.pod, info, node)) {
				return false
			}
		} else if !t.remove(ctx, info) {
			return false
		}
	}
	return true
}

func (t *dryRun) addAll(ctx context.Context, together removal) bool {
	for i, info := range together.infos {
		if node := together.nodes[i]; node != nil {
			if !t.isSuccess(t.handle.RunPreFilterExtensionAddPod(ctx, t.state, t.pod, info, node)) {
				return false
			}
		} else if !t.add(ctx, info) {
			return false
		}
	}
	return true
}

// fitsBeside reports whether the pod fits while victims on other nodes are still leaving: a domain wider than the node may need
// them gone. It is false where there are none. The trial is of no use afterwards.
func (t *dryRun) fitsBeside(ctx context.Context, going []removal) bool {
	apart := false
	for _, together := range going {
		for i, info := range together.infos {
			node := together.nodes[i]
			if node == nil {
				continue
			}
			if apart = true; !t.isSuccess(t.handle.RunPreFilterExtensionAddPod(ctx, t.state, t.pod, info, node)) {
				return false
			}
		}
	}
	return apart && t.fits(ctx)
}

// fits runs the profile's filters, with the pods nominated to the node and without them.
func (t *dryRun) fits(ctx context.Context) bool {
	return ctx.Err() == nil && t.isSuccess(t.handle.RunFilterPluginsWithNominatedPods(ctx, t.state, t.pod, t.node))
}

func (t *dryRun) isSuccess(status *fwk.Status) (success bool) {
	t.last = status
	return status.IsSuccess()
}

// failure says why the last step failed. What a plugin answers while the context ends says nothing of the node.
func (t *dryRun) failure(ctx context.Context) failure {
	switch {
	case ctx.Err() != nil:
		return failure{cause: causeUnfinished}
	case t.last.IsRejected():
		return failure{cause: causeFilters, plugin: t.last.Plugin()}
	}
	return failure{cause: causeError}
}

// reprieve puts back what goes together and reports whether it may stay. ok is false where the trial is of no use any more.
func (t *dryRun) reprieve(ctx context.Context, together removal) (stays, ok bool) {
	if !t.addAll(ctx, together) {
		return false, false
	}
	if t.fits(ctx) {
		return true, true
	}
	if ctx.Err() != nil {
		return false, false
	}
	return false, t.removeAll(ctx, together)
}
