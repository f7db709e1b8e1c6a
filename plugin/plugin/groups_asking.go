package plugin

import (
	"context"
	"fmt"

	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// findNodes runs the scheduler's filters for one member of each class on every node: those that answer UnschedulableAndUnresolvable
// are out whatever pods go. The cycle hands in no statuses of its own. O(classes · nodes · filters).
func (pl *MakeWay) findNodes(ctx context.Context, cycle minor.GroupCycle, classes []*ask.Class) error {
	all, err := pl.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return err
	}
	ctx = verify.WithPins(ctx, &verify.Pins{Probe: true})
	for _, class := range classes {
		state, only, status := cycle.Filters(ctx, class.Pods[0])
		switch {
		case status.Code() == fwk.UnschedulableAndUnresolvable:
			continue
		case status.IsRejected():
			class.Potential = ask.Potential{Count: len(all), Nodes: wire.NodeSelection{AllBut: true}}
			continue
		case !status.IsSuccess():
			return fmt.Errorf("filters of member %s: %w", class.Pods[0].Name, status.AsError())
		}
		helps := make([]bool, len(all))
		pl.handle.Parallelizer().Until(ctx, len(all), func(i int) {
			if only != nil && !only[all[i].Node().Name] {
				return
			}
			status := pl.handle.RunFilterPlugins(ctx, state, class.Pods[0], all[i])
			helps[i] = status.IsSuccess() || status.Code() == fwk.Unschedulable
		}, Name)
		if ctx.Err() != nil {
			return fmt.Errorf("filters of member %s: %w", class.Pods[0].Name, ctx.Err())
		}
		chosen := make([]fwk.NodeInfo, 0, len(all))
		for i, node := range all {
			if helps[i] {
				chosen = append(chosen, node)
			}
		}
		class.Potential = ask.Potential{Count: len(chosen), Nodes: ask.SelectNodes(all, chosen)}
	}
	return nil
}

// question is the group's.
func (a *groupAttempt) question() ask.GroupQuestion {
	return ask.GroupQuestion{
		Group: a.group, Priority: a.priority, MustPlace: a.mustPlace, Mode: a.mode, Classes: a.classes, LeftOut: a.leftOut,
		Nodes: a.handle.SnapshotSharedLister().NodeInfos(),
	}
}

// exchange returns what asks about the group and waits for the answer.
func (a *groupAttempt) exchange() (ask.Exchange[wire.GroupPlanReply], error) {
	known, err := a.engine.view("")
	if err != nil {
		return nil, err
	}
	request, err := a.question().Request(ask.How{Now: a.engine.clock.Now(), Timeout: max(a.args.GroupPlanTimeout.Duration, ask.AnsweredWithin), Profile: a.Profile()}, known)
	if err != nil {
		return nil, err
	}
	return a.engine.planner.PlanGroup(request)
}

// mustPlaceOf is how many of a group's members have to get a node: a gang's minCount but for those that have one, and one at least.
func mustPlaceOf(group minor.Group) int { return max(1, group.MinCount-len(group.Placed)) }

// priorityOf is that of a group's members, which kube-scheduler sees to be the group's.
func priorityOf(group minor.Group) int32 { return corev1helpers.PodPriority(group.Waiting[0]) }
