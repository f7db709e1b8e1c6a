package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/wire"
)

// Misfit is a member that the algorithm did not place on the node of its plan. Without a node the plan is of no use as it is.
type Misfit struct {
	Node string
	Failure
	Message string
}

// Error implements error.
func (m *Misfit) Error() string { return m.Message }

// groupTrial is one trial of a plan, on the cycle's snapshot while it is changed.
type groupTrial struct {
	dryRun
	group   *GroupVerifier
	session minor.GroupTrial
	pins    *Pins
	planned map[string]bool // the nodes of the plan
}

// GroupVerifier checks plans for a pod group in one cycle with the scheduler's own algorithm.
type GroupVerifier struct {
	Verifier  // of the member that is placed first; the cycle's state is not the group's
	Cycle     minor.GroupCycle
	Classes   [][]*v1.Pod // the members by class, in the order in which the scheduler places them
	Waiting   []*v1.Pod   // all of them
	MustPlace int
}

// offerBackTime bounds how long planned victims are offered back in one cycle. What is not offered back leaves, as planned.
const offerBackTime = 200 * time.Millisecond

// Verify runs the scheduler's own algorithm for the group once, with every member held to its planned node, and without the planned
// victims and what is leaving anyway. Then it offers those back that were not needed: first what is being deleted anyway, then what
// violates a budget, then the most important. The snapshot and the nominations of the members are as before when it returns, in any case.
// An error is a misfit where the plan is why.
func (a *GroupVerifier) Verify(ctx context.Context, plan *wire.GroupPlan) (verified *Candidate, err error) {
	held, planned, err := a.pin(plan)
	if err != nil {
		return nil, err
	}
	session, err := a.Cycle.Begin()
	if err != nil {
		return nil, fmt.Errorf("change the snapshot: %w", err)
	}
	defer func() {
		if ended := session.End(); ended != nil {
			verified, err = nil, errors.Join(err, fmt.Errorf("restore the snapshot: %w", ended))
		}
	}()
	// Filters count what is nominated at the same priority: a member on the node where its mate was nominated would be refused.
	defer a.renominate(ctx)
	for _, pod := range a.Waiting {
		a.Handle.DeleteNominatedPodIfExists(pod)
	}

	t := &groupTrial{dryRun: dryRun{Verifier: &a.Verifier, board: session}, group: a, session: session, pins: held, planned: planned}
	t.known = t.isKnown
	removed, err := t.removeAll(ctx, plan)
	if err != nil {
		return nil, err
	}
	ctx = WithPins(ctx, held)
	var status *fwk.Status
	t.members, status = session.Place(ctx)
	if err := t.judge(ctx, t.members, status); err != nil {
		return nil, err
	}
	slices.SortStableFunc(removed, compareRemovals)
	verified = &Candidate{}
	if _, err := t.settle(ctx, removed, time.Now().Add(offerBackTime), verified); err != nil {
		return nil, err
	}
	return verified, nil
}

// pin holds members to the nodes of a plan: those of a class are equal, and take its places in the order in which they are placed.
func (a *GroupVerifier) pin(plan *wire.GroupPlan) (*Pins, map[string]bool, error) {
	held := &Pins{nodes: make(map[types.UID]string, len(a.Waiting)), placed: sets.New[types.UID]()}
	planned := map[string]bool{}
	next := make([]int, len(a.Classes))
	for _, place := range plan.Placements {
		if place.MemberClass < 0 || place.MemberClass >= int64(len(a.Classes)) {
			return nil, nil, &Misfit{Message: fmt.Sprintf("the plan names class %d of %d", place.MemberClass, len(a.Classes))}
		}
		pods := a.Classes[place.MemberClass]
		at := &next[place.MemberClass]
		if place.Count < 0 || place.Count > int64(len(pods)-*at) {
			return nil, nil, &Misfit{Message: fmt.Sprintf("the plan places more members of class %d than wait", place.MemberClass)}
		}
		for _, pod := range pods[*at : *at+int(place.Count)] {
			held.nodes[pod.UID] = place.Node
		}
		*at += int(place.Count)
		planned[place.Node] = true
	}
	if len(held.nodes) < a.MustPlace {
		return nil, nil, &Misfit{Message: fmt.Sprintf("the plan places %d members, and %d must be", len(held.nodes), a.MustPlace)}
	}
	return held, planned, nil
}

// renominate enters the members into the nominator as the API has them.
func (a *GroupVerifier) renominate(ctx context.Context) {
	for _, pod := range a.Waiting {
		if pod.Status.NominatedNodeName == "" {
			continue
		}
		if info, err := framework.NewPodInfo(pod); err == nil {
			a.Handle.AddNominatedPod(klog.FromContext(ctx), info, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: pod.Status.NominatedNodeName})
		}
	}
}

// removeAll takes the planned victims out of the snapshot, what the plan awaits, and on the plan's nodes all that is being deleted
// anyway. A planner's word alone makes no pod go: each is there, of lower priority, and no member.
func (t *groupTrial) removeAll(ctx context.Context, plan *wire.GroupPlan) (removed []*removal, err error) {
	there := &cluster{nodes: t.Nodes(), pods: map[string]map[types.UID]fwk.PodInfo{}}
	for i := range plan.Victims {
		if why := t.closesNothing(&plan.Victims[i]); why != nil {
			return nil, why
		}
	}
	for _, block := range inUnits(plan.Victims) {
		out, why := t.removal(block, "", there)
		if why != "" {
			return nil, &Misfit{Message: "a planned victim " + why}
		}
		for i, info := range out.infos {
			delete(there.on(out.nodes[i]), info.GetPod().UID)
		}
		removed = append(removed, out)
	}
	awaited := t.awaited(plan.Awaited)
	for node := range t.planned {
		for uid, info := range there.on(node) {
			if out := t.leaving(info, node, awaited[uid]); out != nil {
				removed = append(removed, out)
			}
			delete(awaited, uid)
		}
	}
	elsewhere, err := t.awaitedElsewhere(awaited)
	if err != nil {
		return nil, err
	}
	removed = append(removed, elsewhere...)
	for _, out := range removed {
		if err := t.take(ctx, out, nil); err != nil {
			return nil, fmt.Errorf("remove pod %s from the snapshot: %w", out.infos[0].GetPod().Name, err)
		}
	}
	return removed, nil
}

// judge finds out whether the group was placed, and else which member was not: the first one that has a node by the plan and got
// none. What the algorithm says while the time ends tells nothing of a node.
func (t *groupTrial) judge(ctx context.Context, assignments []minor.Assignment, status *fwk.Status) error {
	for _, one := range assignments {
		if t.pins.nodes[one.Pod.UID] != one.Node {
			return fmt.Errorf("member %s was placed on node %s and is planned on another", one.Pod.Name, one.Node)
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the group was not placed in time: %w", ctx.Err())
	}
	if status.IsSuccess() && len(assignments) >= t.group.MustPlace {
		return nil
	}
	if !status.IsSuccess() && !status.IsRejected() {
		return fmt.Errorf("place the group: %w", status.AsError())
	}
	for _, pod := range t.group.Waiting {
		if node := t.pins.nodes[pod.UID]; node != "" && !t.pins.placed.Has(pod.UID) {
			return &Misfit{Node: node, Failure: Failure{Cause: CauseFilters}, Message: fmt.Sprintf("a member does not pass the scheduler's filters on node %s without the planned victims", node)}
		}
	}
	return &Misfit{Message: "the scheduler does not place the group as planned: " + status.Message()}
}

// isKnown reports whether the group is placed with what was put back there. The members' states do not tell where PreFilter left a
// plugin out for what was gone then, as InterPodAffinity is without a pod whose anti-affinity is against them: only there the
// algorithm is run once more. O(classes · PreFilter).
func (t *groupTrial) isKnown(ctx context.Context) (bool, error) {
	for _, class := range t.group.Classes {
		at := slices.IndexFunc(t.members, func(one minor.Assignment) bool {
			return slices.ContainsFunc(class, func(pod *v1.Pod) bool { return pod.UID == one.Pod.UID })
		})
		if at < 0 {
			continue
		}
		one := t.members[at]
		state, _, status := t.group.Cycle.Filters(WithPins(ctx, &Pins{Probe: true}), one.Pod)
		if status.IsSuccess() && state.GetSkipFilterPlugins().IsSuperset(one.State.GetSkipFilterPlugins()) {
			continue
		}
		again, status := t.session.Place(ctx)
		err := t.judge(ctx, again, status)
		if why := (*Misfit)(nil); errors.As(err, &why) {
			return false, nil
		}
		return err == nil, err
	}
	return true, nil
}

// compareRemovals orders what is offered back.
func compareRemovals(a, b *removal) int {
	pa, pb := a.infos[0].GetPod(), b.infos[0].GetPod()
	return cmp.Or(
		first(len(a.victims) == 0, len(b.victims) == 0), first(a.violates(), b.violates()),
		cmp.Compare(corev1helpers.PodPriority(pb), corev1helpers.PodPriority(pa)), cmp.Compare(pa.UID, pb.UID),
	)
}

// closesNothing returns why a victim that goes by itself may not; nil where it may. One on a node of no member goes for a domain, in which
// its node is, and one of the plan's.
func (t *groupTrial) closesNothing(v *wire.Removable) error {
	if v.Unit != "" || t.planned[v.Node] && v.Closes == nil {
		return nil
	}
	if v.Closes == nil || !t.isIn(v.Node, v.Closes) {
		return &Misfit{Message: "a planned victim is on a node without members, and in no domain that it keeps closed"}
	}
	for node := range t.planned {
		if t.isIn(node, v.Closes) {
			return nil
		}
	}
	return &Misfit{Message: "a planned victim keeps a domain closed to which no member comes"}
}

// awaitedElsewhere returns awaited pods that leave and run on none of the plan's nodes: they keep a domain closed, as victims may.
// `awaited`: the order that removes each, empty for what is terminating. O(all pods) where there are any.
func (t *groupTrial) awaitedElsewhere(awaited map[types.UID]string) ([]*removal, error) {
	if len(awaited) == 0 {
		return nil, nil
	}
	nodes, err := t.Nodes().List()
	if err != nil {
		return nil, err
	}
	var found []*removal
	for _, node := range nodes {
		for _, info := range node.GetPods() {
			orderID, told := awaited[info.GetPod().UID]
			if !told {
				continue
			}
			if out := t.leaving(info, node.Node().Name, orderID); out != nil {
				found = append(found, out)
			}
		}
	}
	return found, nil
}

// isIn reports whether a node is in a domain.
func (t *groupTrial) isIn(name string, domain *wire.ClosedDomain) bool {
	info, err := t.Nodes().Get(name)
	if err != nil {
		return false
	}
	value, labelled := info.Node().Labels[domain.Key]
	return labelled && value == domain.Value
}
