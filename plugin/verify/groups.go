package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/wire"
)

// GroupPlacement is a plan by which the scheduler's own algorithm placed the group.
type GroupPlacement struct {
	Places      []wire.OrderMember // from the algorithm's assignments
	Victims     []Victim
	Awaited     []Awaited
	Terminating []*v1.Pod // are being deleted anyway, and their room is needed
}

// NeedsNothing reports whether nothing has to go for the group.
func (g *GroupPlacement) NeedsNothing() bool {
	return len(g.Victims)+len(g.Awaited)+len(g.Terminating) == 0
}

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
	*GroupVerifier
	minor.GroupTrial
	pins    *Pins
	planned map[string]bool // the nodes of the plan
}

// GroupVerifier checks plans for a pod group in one cycle with the scheduler's own algorithm.
type GroupVerifier struct {
	Handle    fwk.Handle
	Cycle     minor.GroupCycle
	Group     minor.Group
	Classes   [][]*v1.Pod // the members by class, in the order in which the scheduler places them
	Priority  int32
	MustPlace int
	Now       time.Time
	// Remover and limited are those of a verifier.
	Remover func(orderID string, uid types.UID) string
	Limited bool
}

// Verify runs the scheduler's own algorithm for the group once, with every member held to its planned node, and without the planned
// victims and what is leaving anyhow. Then it offers those back that were not needed. The snapshot and the nominations of the members
// are as before when it returns, in any case. An error is a misfit where the plan is why.
func (a *GroupVerifier) Verify(ctx context.Context, plan *wire.GroupPlan) (verified *GroupPlacement, err error) {
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
	for _, pod := range a.Group.Waiting {
		a.Handle.DeleteNominatedPodIfExists(pod)
	}

	t := &groupTrial{GroupVerifier: a, GroupTrial: session, pins: held, planned: planned}
	verified = &GroupPlacement{}
	removed, err := t.removeAll(ctx, plan, verified)
	if err != nil {
		return nil, err
	}
	ctx = WithPins(ctx, held)
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
		verified.Places = append(verified.Places, wire.OrderMember{
			Namespace: one.Pod.Namespace, Name: one.Pod.Name, UID: string(one.Pod.UID), Node: one.Node, NodeUID: string(node.Node().UID),
		})
	}
	return verified, nil
}

// pin holds members to the nodes of a plan: those of a class are equal, and take its places in the order in which they are placed.
func (a *GroupVerifier) pin(plan *wire.GroupPlan) (*Pins, map[string]bool, error) {
	held := &Pins{nodes: make(map[types.UID]string, len(a.Group.Waiting))}
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
	for _, pod := range a.Group.Waiting {
		if pod.Status.NominatedNodeName == "" {
			continue
		}
		if info, err := framework.NewPodInfo(pod); err == nil {
			a.Handle.AddNominatedPod(klog.FromContext(ctx), info, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: pod.Status.NominatedNodeName})
		}
	}
}

// outgoing is what leaves together in a trial: a pod by itself, or all of a unit, with the nodes they are on.
type outgoing struct {
	infos   []fwk.PodInfo
	nodes   []string
	victims []Victim // of the plan; none where it is leaving anyhow
	awaited *Awaited // by another order
}

// violates reports whether a budget is violated by its going.
func (o *outgoing) violates() bool {
	return slices.ContainsFunc(o.victims, func(v Victim) bool { return v.Violating })
}

// removeAll takes the planned victims out of the snapshot, what the plan awaits, and on the plan's nodes all that is being deleted
// anyway. A planner's word alone makes no pod go: each is there, of lower priority, and no member.
func (t *groupTrial) removeAll(ctx context.Context, plan *wire.GroupPlan, verified *GroupPlacement) ([]*outgoing, error) {
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
			return nil, &Misfit{Message: "a planned victim has left its node"}
		}
		if !t.mayGo(info.GetPod(), v.Rule) {
			return nil, &Misfit{Message: "a planned victim may not be evicted for this group"}
		}
		if why := t.closesNothing(&v); why != nil {
			return nil, why
		}
		out := units[v.Unit]
		if v.Unit == "" || out == nil {
			out = &outgoing{}
			removed = append(removed, out)
			units[v.Unit] = out
		}
		out.infos, out.nodes = append(out.infos, info), append(out.nodes, v.Node)
		out.victims = append(out.victims, Victim{Pod: info.GetPod(), Violating: v.PDBViolating, Unit: v.Unit})
		delete(on(v.Node), types.UID(v.UID))
	}
	awaited := map[types.UID]string{}
	for _, one := range plan.Awaited {
		awaited[types.UID(one.UID)] = t.Remover(one.OrderID, types.UID(one.UID))
	}
	for node := range t.planned {
		for uid, info := range on(node) {
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
		for i, info := range out.infos {
			if err := t.Remove(ctx, info.GetPod(), out.nodes[i]); err != nil {
				return nil, fmt.Errorf("remove pod %s from the snapshot: %w", info.GetPod().Name, err)
			}
		}
	}
	return removed, nil
}

// leaving returns a pod that goes without the group's order; nil for one that stays. `orderID`: of the order that removes it.
func (t *groupTrial) leaving(info fwk.PodInfo, node, orderID string) *outgoing {
	pod := info.GetPod()
	out := &outgoing{infos: []fwk.PodInfo{info}, nodes: []string{node}}
	switch {
	case terminating(pod, t.Now) && !t.isOwn(pod):
	case orderID != "":
		out.awaited = &Awaited{Pod: pod, OrderID: orderID}
	default:
		return nil
	}
	return out
}

// mayGo is the plugin's own check of a rule that the planner names; see verifier.mayRemove.
func (t *groupTrial) mayGo(pod *v1.Pod, rule string) bool {
	if overdue(pod, t.Now) {
		return false
	}
	switch rule {
	case RuleLowerPriority:
		return corev1helpers.PodPriority(pod) < t.Priority
	case ruleLowerGroupPriority:
		return minor.InGroup(pod) && !t.isOwn(pod)
	}
	return false
}

// isOwn reports whether a pod is a member of the group itself.
func (t *groupTrial) isOwn(pod *v1.Pod) bool {
	return pod.Namespace == t.Group.Namespace && minor.GroupName(pod) == t.Group.Name
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
	if status.IsSuccess() && len(placed) >= t.MustPlace {
		return nil
	}
	if !status.IsSuccess() && !status.IsRejected() {
		return fmt.Errorf("place the group: %w", status.AsError())
	}
	for _, pod := range t.Group.Waiting {
		if node := t.pins.nodes[pod.UID]; node != "" && !placed[pod.UID] {
			return &Misfit{Node: node, Failure: Failure{Cause: CauseFilters}, Message: fmt.Sprintf("a member does not pass the scheduler's filters on node %s without the planned victims", node)}
		}
	}
	return &Misfit{Message: "the scheduler does not place the group as planned: " + status.Message()}
}
