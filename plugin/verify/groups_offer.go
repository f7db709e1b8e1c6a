package verify

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/minor"
)

// offerBackTime bounds how long planned victims are offered back in one cycle. What is not offered back goes, as planned.
const offerBackTime = 200 * time.Millisecond

// offerBack puts back what leaves, one after the other, where all members still pass the filters, and notes the rest: first what
// is being deleted anyway, then what violates a budget, then the most important.
// O(what leaves · members beside it · filters), and all members for what may stay; bounded by offerBackTime. Where the group is not
// placed with what stays, all goes.
func (t *groupTrial) offerBack(ctx context.Context, removed []*outgoing, assignments []minor.Assignment, verified *GroupPlacement) error {
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
			verified.Awaited = append(verified.Awaited, *out.awaited)
		case len(out.victims) == 0:
			verified.Terminating = append(verified.Terminating, out.infos[0].GetPod())
		default:
			verified.Victims = append(verified.Victims, out.victims...)
		}
	}
	return nil
}

// isKnown reports whether the group is placed with what was put back there. The members' states do not tell where PreFilter left a
// plugin out for what was gone then, as InterPodAffinity is without a pod whose anti-affinity is against them: only there the
// algorithm is run once more. O(classes · PreFilter).
func (t *groupTrial) isKnown(ctx context.Context, assignments []minor.Assignment) (bool, error) {
	for _, class := range t.Classes {
		at := slices.IndexFunc(assignments, func(one minor.Assignment) bool {
			return slices.ContainsFunc(class, func(pod *v1.Pod) bool { return pod.UID == one.Pod.UID })
		})
		if at < 0 {
			continue
		}
		one := assignments[at]
		state, _, status := t.Cycle.Filters(WithPins(ctx, &Pins{Probe: true}), one.Pod)
		if status.IsSuccess() && state.GetSkipFilterPlugins().IsSuperset(one.State.GetSkipFilterPlugins()) {
			continue
		}
		again, status := t.Place(ctx)
		err := t.judge(ctx, again, status)
		if why := (*Misfit)(nil); errors.As(err, &why) {
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
	if err := t.tell(ctx, out, beside, t.Handle.RunPreFilterExtensionAddPod); err != nil {
		return false, err
	}
	if stays, err = t.allFit(ctx, beside); stays && err == nil && len(others) > 0 {
		if err := t.tell(ctx, out, others, t.Handle.RunPreFilterExtensionAddPod); err != nil {
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
	return false, t.tell(ctx, out, told, t.Handle.RunPreFilterExtensionRemovePod)
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
		if !t.Handle.RunFilterPluginsWithNominatedPods(ctx, one.State, one.Pod, node).IsSuccess() {
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
