package preempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// offerBackTime bounds how long planned victims are offered back in one cycle. What is not offered back goes, as planned.
const offerBackTime = 200 * time.Millisecond

// verifiedGroup is a plan by which the scheduler's own algorithm placed the group.
type verifiedGroup struct {
	places      []wire.OrderMember // from the algorithm's assignments
	victims     []victim
	awaited     []awaitedPod
	terminating []*v1.Pod // are being deleted anyway, and their room is needed
}

// needsNothing reports whether nothing has to go for the group.
func (g *verifiedGroup) needsNothing() bool {
	return len(g.victims)+len(g.awaited)+len(g.terminating) == 0
}

// misfit is a member that the algorithm did not place on the node of its plan. Without a node the plan is of no use as it is.
type misfit struct {
	node string
	failure
	message string
}

// Error implements error.
func (m *misfit) Error() string { return m.message }

// groupTrial is one trial of a plan, on the cycle's snapshot while it is changed.
type groupTrial struct {
	*groupAttempt
	minor.GroupTrial
	pins    *pins
	planned map[string]bool // the nodes of the plan
}

// verify runs the scheduler's own algorithm for the group once, with every member held to its planned node, and without the planned
// victims and what is leaving anyhow. Then it offers those back that were not needed. The snapshot and the nominations of the members
// are as before when it returns, in any case. An error is a misfit where the plan is why.
func (a *groupAttempt) verify(ctx context.Context, plan *wire.GroupPlan) (verified *verifiedGroup, err error) {
	start := time.Now()
	defer func() { verificationDuration.Observe(time.Since(start).Seconds()) }()
	held, planned, err := a.pin(plan)
	if err != nil {
		return nil, err
	}
	session, err := a.cycle.Begin()
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
	for _, pod := range a.group.Waiting {
		a.handle.DeleteNominatedPodIfExists(pod)
	}

	t := &groupTrial{groupAttempt: a, GroupTrial: session, pins: held, planned: planned}
	verified = &verifiedGroup{}
	removed, err := t.removeAll(ctx, plan, verified)
	if err != nil {
		return nil, err
	}
	ctx = withPins(ctx, held)
	assignments, status := t.Place(ctx)
	if err := t.judge(ctx, assignments, status); err != nil {
		return nil, err
	}
	if err := t.offerBack(ctx, removed, assignments, verified); err != nil {
		return nil, err
	}
	for _, one := range assignments {
		node, err := t.Nodes().Get(one.Node)
		if err != nil {
			return nil, err
		}
		verified.places = append(verified.places, wire.OrderMember{
			Namespace: one.Pod.Namespace, Name: one.Pod.Name, UID: string(one.Pod.UID), Node: one.Node, NodeUID: string(node.Node().UID),
		})
	}
	return verified, nil
}

// pin holds members to the nodes of a plan: those of a class are equal, and take its places in the order in which they are placed.
func (a *groupAttempt) pin(plan *wire.GroupPlan) (*pins, map[string]bool, error) {
	held := &pins{nodes: make(map[types.UID]string, len(a.group.Waiting))}
	planned := map[string]bool{}
	next := make([]int, len(a.classes))
	for _, place := range plan.Placements {
		if place.MemberClass < 0 || place.MemberClass >= int64(len(a.classes)) {
			return nil, nil, &misfit{message: fmt.Sprintf("the plan names class %d of %d", place.MemberClass, len(a.classes))}
		}
		pods := a.classes[place.MemberClass].pods
		at := &next[place.MemberClass]
		if place.Count < 0 || place.Count > int64(len(pods)-*at) {
			return nil, nil, &misfit{message: fmt.Sprintf("the plan places more members of class %d than wait", place.MemberClass)}
		}
		for _, pod := range pods[*at : *at+int(place.Count)] {
			held.nodes[pod.UID] = place.Node
		}
		*at += int(place.Count)
		planned[place.Node] = true
	}
	if len(held.nodes) < a.mustPlace {
		return nil, nil, &misfit{message: fmt.Sprintf("the plan places %d members, and %d must be", len(held.nodes), a.mustPlace)}
	}
	return held, planned, nil
}

// renominate enters the members into the nominator as the API has them.
func (a *groupAttempt) renominate(ctx context.Context) {
	for _, pod := range a.group.Waiting {
		if pod.Status.NominatedNodeName == "" {
			continue
		}
		if info, err := framework.NewPodInfo(pod); err == nil {
			a.handle.AddNominatedPod(klog.FromContext(ctx), info, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: pod.Status.NominatedNodeName})
		}
	}
}

// outgoing is what leaves together in a trial: a pod by itself, or all of a unit, with the nodes they are on.
type outgoing struct {
	infos   []fwk.PodInfo
	nodes   []string
	victims []victim    // of the plan; none where it is leaving anyhow
	awaited *awaitedPod // by another order
}

// violates reports whether a budget is violated by its going.
func (o *outgoing) violates() bool {
	return slices.ContainsFunc(o.victims, func(v victim) bool { return v.violating })
}

// removeAll takes the planned victims out of the snapshot, those that other orders remove, and on the plan's nodes what is being
// deleted anyway. A planner's word alone makes no pod go: each is there, of lower priority, and no member.
func (t *groupTrial) removeAll(ctx context.Context, plan *wire.GroupPlan, verified *verifiedGroup) ([]*outgoing, error) {
	infos := map[string]map[types.UID]fwk.PodInfo{}
	on := func(node string) map[types.UID]fwk.PodInfo {
		if found, ok := infos[node]; ok {
			return found
		}
		found := map[types.UID]fwk.PodInfo{}
		if info, err := t.Nodes().Get(node); err == nil {
			for _, pod := range info.GetPods() {
				found[pod.GetPod().UID] = pod
			}
		}
		infos[node] = found
		return found
	}
	var removed []*outgoing
	units := map[string]*outgoing{}
	for _, v := range plan.Victims {
		info := on(v.Node)[types.UID(v.UID)]
		if info == nil {
			return nil, &misfit{message: "a planned victim has left its node"}
		}
		if !t.mayGo(info.GetPod(), v.Rule) {
			return nil, &misfit{message: "a planned victim may not be evicted for this group"}
		}
		closes, err := t.closedBy(&v)
		if err != nil {
			return nil, err
		}
		out := units[v.Unit]
		if v.Unit == "" || out == nil {
			out = &outgoing{}
			removed = append(removed, out)
			units[v.Unit] = out
		}
		out.infos, out.nodes = append(out.infos, info), append(out.nodes, v.Node)
		out.victims = append(out.victims, victim{pod: info.GetPod(), rule: v.Rule, violating: v.PDBViolating, unit: v.Unit, closes: closes})
		delete(on(v.Node), types.UID(v.UID))
	}
	awaited := map[types.UID]string{}
	for _, one := range plan.Awaited {
		awaited[types.UID(one.UID)] = t.engine.inflight.remover(one.OrderID, types.UID(one.UID))
	}
	now := t.engine.clock.Now()
	for node := range t.planned {
		for uid, info := range on(node) {
			pod := info.GetPod()
			out := &outgoing{infos: []fwk.PodInfo{info}, nodes: []string{node}}
			switch orderID := awaited[uid]; {
			case terminating(pod, now) && !t.isOwn(pod):
			case orderID != "":
				out.awaited = &awaitedPod{pod: pod, orderID: orderID}
			default:
				continue
			}
			removed = append(removed, out)
		}
	}
	for _, out := range removed {
		for i, info := range out.infos {
			if err := t.Remove(ctx, info.GetPod(), out.nodes[i]); err != nil {
				return nil, fmt.Errorf("remove pod %s from the snapshot: %w", info.GetPod().Name, err)
			}
		}
	}
	return removed, nil
}

// mayGo is the plugin's own check of a rule that the planner names; see verifier.mayRemove.
func (t *groupTrial) mayGo(pod *v1.Pod, rule string) bool {
	if overdue(pod, t.engine.clock.Now()) || slices.Contains(t.refused, string(pod.UID)) {
		return false
	}
	switch rule {
	case ruleLowerPriority:
		return corev1helpers.PodPriority(pod) < t.priority
	case ruleLowerGroupPriority:
		return minor.InGroup(pod) && !t.isOwn(pod)
	}
	return false
}

// isOwn reports whether a pod is a member of the group itself.
func (t *groupTrial) isOwn(pod *v1.Pod) bool {
	return pod.Namespace == t.group.Namespace && minor.GroupName(pod) == t.group.Name
}

// judge finds out whether the group was placed, and else which member was not: the first one that has a node by the plan and got
// none. What the algorithm says while the time ends tells nothing of a node.
func (t *groupTrial) judge(ctx context.Context, assignments []minor.Assignment, status *fwk.Status) error {
	placed := make(map[types.UID]bool, len(assignments))
	for _, one := range assignments {
		if t.pins.nodes[one.Pod.UID] != one.Node {
			return fmt.Errorf("member %s was placed on node %s and is planned on another", one.Pod.Name, one.Node)
		}
		placed[one.Pod.UID] = true
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the group was not placed in time: %w", ctx.Err())
	}
	if status.IsSuccess() && len(placed) >= t.mustPlace {
		return nil
	}
	if !status.IsSuccess() && !status.IsRejected() {
		return fmt.Errorf("place the group: %w", status.AsError())
	}
	for _, pod := range t.group.Waiting {
		if node := t.pins.nodes[pod.UID]; node != "" && !placed[pod.UID] {
			return &misfit{node: node, failure: failure{cause: causeFilters}, message: fmt.Sprintf("a member does not pass the scheduler's filters on node %s without the planned victims", node)}
		}
	}
	return &misfit{message: "the scheduler does not place the group as planned: " + status.Message()}
}

// offerBack puts back what leaves, one after the other, where all members still pass the filters, and notes the rest: first what
// is being deleted anyway, then what violates a budget, then the most important.
// O(what leaves · members beside it · filters), and all members for what may stay; bounded by offerBackTime. Where the group is not
// placed with what stays, all goes.
func (t *groupTrial) offerBack(ctx context.Context, removed []*outgoing, assignments []minor.Assignment, verified *verifiedGroup) error {
	slices.SortStableFunc(removed, compareOutgoing)
	deadline := time.Now().Add(offerBackTime)
	going := make([]*outgoing, 0, len(removed))
	for _, out := range removed {
		stays := false
		if time.Now().Before(deadline) && ctx.Err() == nil {
			var err error
			if stays, err = t.mayStay(ctx, out, assignments); err != nil {
				return err
			}
		}
		if !stays {
			going = append(going, out)
		}
	}
	if len(going) < len(removed) {
		known, err := t.isKnown(ctx, assignments)
		if err != nil {
			return err
		}
		if !known {
			going = removed
		}
	}
	if err := t.markApart(ctx, going, assignments); err != nil {
		return err
	}
	for _, out := range going {
		switch {
		case out.awaited != nil:
			verified.awaited = append(verified.awaited, *out.awaited)
		case len(out.victims) == 0:
			verified.terminating = append(verified.terminating, out.infos[0].GetPod())
		default:
			verified.victims = append(verified.victims, out.victims...)
		}
	}
	return nil
}

// isKnown reports whether the group is placed with what was put back there. The members' states do not tell where PreFilter left a
// plugin out for what was gone then, as InterPodAffinity is without a pod whose anti-affinity is against them: only there the
// algorithm is run once more. O(classes · PreFilter).
func (t *groupTrial) isKnown(ctx context.Context, assignments []minor.Assignment) (bool, error) {
	for _, class := range t.classes {
		at := slices.IndexFunc(assignments, func(one minor.Assignment) bool {
			return slices.ContainsFunc(class.pods, func(pod *v1.Pod) bool { return pod.UID == one.Pod.UID })
		})
		if at < 0 {
			continue
		}
		one := assignments[at]
		state, _, status := t.cycle.Filters(withPins(ctx, &pins{probe: true}), one.Pod)
		if status.IsSuccess() && state.GetSkipFilterPlugins().IsSuperset(one.State.GetSkipFilterPlugins()) {
			continue
		}
		again, status := t.Place(ctx)
		err := t.judge(ctx, again, status)
		if why := (*misfit)(nil); errors.As(err, &why) {
			return false, nil
		}
		return err == nil, err
	}
	return true, nil
}

func compareOutgoing(a, b *outgoing) int {
	first := func(yes, other bool) int {
		switch {
		case yes == other:
			return 0
		case yes:
			return -1
		}
		return 1
	}
	pa, pb := a.infos[0].GetPod(), b.infos[0].GetPod()
	if order := first(len(a.victims) == 0, len(b.victims) == 0); order != 0 {
		return order
	}
	if order := first(a.violates(), b.violates()); order != 0 {
		return order
	}
	if order := int(corev1helpers.PodPriority(pb)) - int(corev1helpers.PodPriority(pa)); order != 0 {
		return order
	}
	return strings.Compare(string(pa.UID), string(pb.UID))
}

// mayStay puts back what leaves together and reports whether all members pass the filters with it, in the order in which they were
// placed; else it is taken out again. Those on its nodes are asked first: what has to go has to go for one of them, nearly always.
func (t *groupTrial) mayStay(ctx context.Context, out *outgoing, assignments []minor.Assignment) (stays bool, err error) {
	beside, others := t.beside(out, assignments)
	for i, info := range out.infos {
		if err := t.Add(info, out.nodes[i]); err != nil {
			return false, err
		}
	}
	told := beside
	if err := t.tell(ctx, out, beside, t.handle.RunPreFilterExtensionAddPod); err != nil {
		return false, err
	}
	if stays, err = t.allFit(ctx, beside); stays && err == nil && len(others) > 0 {
		if err := t.tell(ctx, out, others, t.handle.RunPreFilterExtensionAddPod); err != nil {
			return false, err
		}
		told = assignments
		stays, err = t.allFit(ctx, assignments)
	}
	if err != nil || stays {
		return stays, err
	}
	for i, info := range out.infos {
		if err := t.Remove(ctx, info.GetPod(), out.nodes[i]); err != nil {
			return false, err
		}
	}
	return false, t.tell(ctx, out, told, t.handle.RunPreFilterExtensionRemovePod)
}

// beside divides the members into those that were placed on the nodes of what leaves, and the others.
func (t *groupTrial) beside(out *outgoing, assignments []minor.Assignment) (beside, others []minor.Assignment) {
	on := sets.New(out.nodes...)
	for _, one := range assignments {
		if on.Has(one.Node) {
			beside = append(beside, one)
		} else {
			others = append(others, one)
		}
	}
	return beside, others
}

// tell has the filter states of members know what was put back or taken out: each state is of one member.
func (t *groupTrial) tell(ctx context.Context, out *outgoing, members []minor.Assignment, each tellPod) error {
	nodes := t.Nodes()
	for i, info := range out.infos {
		node, err := nodes.Get(out.nodes[i])
		if err != nil {
			return err
		}
		for _, one := range members {
			if status := each(ctx, one.State, one.Pod, info, node); !status.IsSuccess() {
				return status.AsError()
			}
		}
	}
	return nil
}

// tellPod is RunPreFilterExtensionAddPod or RunPreFilterExtensionRemovePod.
type tellPod = func(ctx context.Context, state fwk.CycleState, member *v1.Pod, pod fwk.PodInfo, node fwk.NodeInfo) *fwk.Status

// allFit reports whether every member passes the filters on its node, with those before it there, as the algorithm placed them.
func (t *groupTrial) allFit(ctx context.Context, assignments []minor.Assignment) (fits bool, err error) {
	var there []minor.Assignment
	defer func() {
		for _, one := range slices.Backward(there) {
			err = errors.Join(err, t.Forget(ctx, one))
		}
	}()
	for _, one := range assignments {
		node, err := t.Nodes().Get(one.Node)
		if err != nil {
			return false, err
		}
		if !t.handle.RunFilterPluginsWithNominatedPods(ctx, one.State, one.Pod, node).IsSuccess() {
			return false, nil
		}
		switch status := t.Assume(ctx, one); {
		case status.IsRejected():
			return false, nil
		case !status.IsSuccess():
			return false, status.AsError()
		}
		there = append(there, one)
	}
	return true, nil
}
