package preempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/queuegate"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// errGroupTooLarge says that no question can be asked about a group.
var errGroupTooLarge = errors.New("the group is too large to be planned for")

// memberClass is members that are equal in all that the planner looks at, and the nodes where removing pods may help them.
type memberClass struct {
	pods      []*v1.Pod // in the order in which the scheduler places them
	potential potential
}

// memberClasses puts a group's members into classes. Members differ by an index in their labels, for example those of a Job,
// and labels that no member's own rules name do not count: what others' rules make of them, the scheduler's filters tell. Nor do
// the names of claims that leave their pods the same nodes, as reach says: each member of a StatefulSet has claims of its own.
// O(members · size of a pod).
func memberClasses(members []*v1.Pod, reach func(namespace, claim string) string) ([]*memberClass, error) {
	if len(members) > wire.MostMembers {
		return nil, fmt.Errorf("%w: %d of its members wait, at most %d are planned for", errGroupTooLarge, len(members), wire.MostMembers)
	}
	named := labelsNamed(members)
	byKey := map[string]*memberClass{}
	var classes []*memberClass
	for _, pod := range members {
		key, err := wire.Encode(likeness(pod, named, reach))
		if err != nil {
			return nil, fmt.Errorf("encode member: %w", err)
		}
		class := byKey[string(key)]
		if class == nil {
			if len(classes) == wire.MostMemberClasses {
				return nil, fmt.Errorf("%w: its members are of more than %d kinds", errGroupTooLarge, wire.MostMemberClasses)
			}
			class = &memberClass{}
			byKey[string(key)] = class
			classes = append(classes, class)
		}
		class.pods = append(class.pods, pod)
	}
	return classes, nil
}

// likeness is what two members of one class have in common.
func likeness(pod *v1.Pod, named map[string]bool, reach func(namespace, claim string) string) *v1.Pod {
	like := project(pod)
	for _, volume := range like.Spec.Volumes {
		if claim := volume.PersistentVolumeClaim; claim != nil {
			claim.ClaimName = reach(pod.Namespace, claim.ClaimName)
		}
	}
	like.ObjectMeta = metav1.ObjectMeta{Namespace: pod.Namespace, Labels: map[string]string{}, Annotations: like.Annotations}
	for key := range named {
		if value, ok := pod.Labels[key]; ok {
			like.Labels[key] = value
		}
	}
	like.Status = v1.PodStatus{}
	return like
}

// labelsNamed are the keys of labels that affinity, anti-affinity or spread of any member looks at, and those that name a queue.
// O(members · their rules).
func labelsNamed(members []*v1.Pod) map[string]bool {
	named := map[string]bool{}
	for _, label := range queuegate.QueueLabels() {
		named[label] = true
	}
	selector := func(s *metav1.LabelSelector) {
		if s == nil {
			return
		}
		for key := range s.MatchLabels {
			named[key] = true
		}
		for _, expression := range s.MatchExpressions {
			named[expression.Key] = true
		}
	}
	terms := func(terms []v1.PodAffinityTerm) {
		for i := range terms {
			selector(terms[i].LabelSelector)
			for _, key := range slices.Concat(terms[i].MatchLabelKeys, terms[i].MismatchLabelKeys) {
				named[key] = true
			}
		}
	}
	for _, pod := range members {
		if affinity := pod.Spec.Affinity; affinity != nil {
			if affinity.PodAffinity != nil {
				terms(affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			}
			if affinity.PodAntiAffinity != nil {
				terms(affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			}
		}
		for i := range pod.Spec.TopologySpreadConstraints {
			selector(pod.Spec.TopologySpreadConstraints[i].LabelSelector)
			for _, key := range pod.Spec.TopologySpreadConstraints[i].MatchLabelKeys {
				named[key] = true
			}
		}
	}
	return named
}

// findNodes runs the scheduler's filters for one member of each class on every node: those that answer UnschedulableAndUnresolvable
// are out whatever pods go. The cycle hands in no statuses of its own. O(classes · nodes · filters).
func (pl *MakeWay) findNodes(ctx context.Context, cycle minor.GroupCycle, classes []*memberClass) error {
	all, err := pl.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return err
	}
	ctx = verify.WithPins(ctx, &verify.Pins{Probe: true})
	for _, class := range classes {
		state, only, status := cycle.Filters(ctx, class.pods[0])
		switch {
		case status.Code() == fwk.UnschedulableAndUnresolvable:
			continue
		case status.IsRejected():
			class.potential = potential{count: len(all), nodes: wire.NodeSelection{AllBut: true}}
			continue
		case !status.IsSuccess():
			return fmt.Errorf("filters of member %s: %w", class.pods[0].Name, status.AsError())
		}
		helps := make([]bool, len(all))
		pl.handle.Parallelizer().Until(ctx, len(all), func(i int) {
			if only != nil && !only[all[i].Node().Name] {
				return
			}
			status := pl.handle.RunFilterPlugins(ctx, state, class.pods[0], all[i])
			helps[i] = status.IsSuccess() || status.Code() == fwk.Unschedulable
		}, Name)
		if ctx.Err() != nil {
			return fmt.Errorf("filters of member %s: %w", class.pods[0].Name, ctx.Err())
		}
		chosen := make([]fwk.NodeInfo, 0, len(all))
		for i, node := range all {
			if helps[i] {
				chosen = append(chosen, node)
			}
		}
		class.potential = potential{count: len(chosen), nodes: selectNodes(all, chosen)}
	}
	return nil
}

// groupRequest builds the question about a group. Nominations are without those of its members, which a plan replaces.
// O(nodes + nominations + orders + members).
func (a *groupAttempt) groupRequest() (*wire.GroupPlanRequest, error) {
	clusterUID, err := a.engine.clusterUID()
	if err != nil {
		return nil, err
	}
	request := &wire.GroupPlanRequest{
		APIVersion:          wire.APIVersion,
		RequestID:           wire.NewRequestID(a.engine.clock.Now()),
		ClusterUID:          clusterUID,
		Mode:                a.mode,
		TimeoutMilliseconds: a.args.GroupPlanTimeout.Milliseconds(),
		Profile:             a.Profile(),
		Group: wire.GroupPreemptor{
			Namespace: a.group.Namespace, Name: a.group.Name, UID: string(a.group.UID), Priority: a.priority,
		},
		MustPlace:      int64(a.mustPlace),
		Topology:       a.group.Topology,
		LiveOrders:     a.engine.inflight.Live(),
		Seen:           a.engine.seen.all(),
		RefusedVictims: a.refused,
	}
	for i, class := range a.classes {
		raw, err := wire.Encode(project(class.pods[0]))
		if err != nil {
			return nil, fmt.Errorf("encode member: %w", err)
		}
		nodes := class.potential.without(a.leftOut[i], a.handle.SnapshotSharedLister().NodeInfos()).nodes
		asked := wire.MemberClass{Pod: raw, Count: int64(len(class.pods)), Nodes: nodes}
		if at := slices.IndexFunc(request.Classes, func(other wire.MemberClass) bool {
			return other.SameNodesAs == nil && len(nodes.Names) > 0 && other.Nodes.AllBut == nodes.AllBut && slices.Equal(other.Nodes.Names, nodes.Names)
		}); at >= 0 {
			same := int64(at)
			asked.Nodes, asked.SameNodesAs = wire.NodeSelection{}, &same
		}
		request.Classes = append(request.Classes, asked)
	}
	for _, pod := range a.group.Placed {
		request.Placed = append(request.Placed, orders.PlacementOf(pod, pod.Spec.NodeName))
	}
	slices.SortFunc(request.Placed, func(a, b wire.Placement) int { return strings.Compare(a.UID, b.UID) })
	members := a.members()
	isMember := func(place wire.Placement) bool { return members[types.UID(place.UID)] != nil }
	request.Nominations, request.Assumed = a.engine.placements.Lists(a.engine.inflight.Nominated(), "")
	request.Nominations = slices.DeleteFunc(request.Nominations, isMember)
	request.Assumed = slices.DeleteFunc(request.Assumed, isMember)
	return request, nil
}

// askPlan asks what would have to go for the group.
func (a *groupAttempt) askPlan(ctx context.Context) (*wire.GroupPlanReply, error) {
	request, err := a.groupRequest()
	if err != nil {
		return nil, err
	}
	return a.send(ctx, request)
}

func (a *groupAttempt) send(ctx context.Context, request *wire.GroupPlanRequest) (*wire.GroupPlanReply, error) {
	return askPlanner(ctx, a.MakeWay, inquiry[wire.GroupPlanReply]{
		subject: a.engine.subjects.PlanGroup, request: request, id: request.RequestID,
		timeout: a.args.GroupPlanTimeout.Duration, breaker: a.engine.groupBreaker,
		decode: wire.DecodeGroupPlanReply, idOf: func(reply *wire.GroupPlanReply) string { return reply.RequestID },
	})
}

// members are those that wait, by UID.
func (a *groupAttempt) members() map[types.UID]*v1.Pod {
	members := make(map[types.UID]*v1.Pod, len(a.group.Waiting))
	for _, pod := range a.group.Waiting {
		members[pod.UID] = pod
	}
	return members
}

// mustPlaceOf is how many of a group's members have to get a node: a gang's minCount but for those that have one, and one at least.
func mustPlaceOf(group minor.Group) int { return max(1, group.MinCount-len(group.Placed)) }

// priorityOf is that of a group's members, which kube-scheduler sees to be the group's.
func priorityOf(group minor.Group) int32 { return corev1helpers.PodPriority(group.Waiting[0]) }
