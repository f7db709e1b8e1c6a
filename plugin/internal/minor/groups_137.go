//go:build !kube136 && !kube135

package minor

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"makeway.dev/makeway/plugin/internal/informing"
)

var _ fwk.PodGroupPostFilterPlugin = &struct {
	GroupPlugin
	fwk.Plugin
}{}

// GroupPlugin is what a plugin embeds to make room for pod groups.
type GroupPlugin struct {
	handle  fwk.Handle
	preempt PreemptForGroup
}

// NewGroupPlugin has a plugin asked to make room for a group that was not placed.
func NewGroupPlugin(handle fwk.Handle, preempt PreemptForGroup) GroupPlugin {
	return GroupPlugin{handle, preempt}
}

// PodGroupPostFilter implements fwk.PodGroupPostFilterPlugin.
func (p GroupPlugin) PodGroupPostFilter(ctx context.Context, state fwk.PodGroupCycleState, info fwk.PodGroupInfo, place fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	nodes, status := p.preempt(ctx, &groupCycle{handle: p.handle, state: state, info: info, place: place})
	if !status.IsSuccess() {
		return nil, status
	}
	// kube-scheduler takes a result for granted where the status is Success.
	result := &fwk.PodGroupPostFilterResult{NominatingInfos: make(map[types.NamespacedName]*fwk.NominatingInfo, len(nodes))}
	for member, node := range nodes {
		result.NominatingInfos[member] = &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: node}
	}
	return result, status
}

// groupCycle is a cycle of kube-scheduler's.
type groupCycle struct {
	handle fwk.Handle
	state  fwk.PodGroupCycleState
	info   fwk.PodGroupInfo
	place  fwk.PodGroupSchedulingFunc
}

// State implements GroupCycle.
func (c *groupCycle) State() GroupState { return c.state }

// Group implements GroupCycle.
func (c *groupCycle) Group() Group {
	group := Group{Namespace: c.info.GetNamespace(), Name: c.info.GetName(), Waiting: c.info.GetUnscheduledPods()}
	object := c.info.GetPodGroup()
	if c.info.GetType() == fwk.CompositePodGroupKeyType || object == nil {
		group.Composite = true
		return group
	}
	group.UID = object.UID
	group.NeverPreempts = neverPreempts(object, group.Waiting, utilfeature.DefaultFeatureGate.Enabled(features.PodGroupPreemptionPolicy))
	if gang := object.Spec.SchedulingPolicy.Gang; gang != nil {
		group.MinCount = int(gang.MinCount)
	}
	if constraints := object.Spec.SchedulingConstraints; constraints != nil && utilfeature.DefaultFeatureGate.Enabled(features.TopologyAwareWorkloadScheduling) {
		for _, one := range constraints.Topology {
			group.Topology = append(group.Topology, one.Key)
		}
	}
	if state, err := c.handle.SnapshotSharedLister().PodGroupStates().Get(group.Namespace, group.Name); err == nil {
		group.Placed = state.ScheduledPods()
	}
	return group
}

// neverPreempts reports whether no room is made for a group. counts: its own preemptionPolicy does, whatever those of its pods are.
// Source: resolvePreemptionPolicy in kube-scheduler's framework/preemption.
func neverPreempts(group *schedulingv1beta1.PodGroup, waiting []*v1.Pod, counts bool) bool {
	if counts {
		return ptr.Deref(group.Spec.PreemptionPolicy, "") == schedulingv1beta1.PreemptNever
	}
	return slices.ContainsFunc(waiting, func(pod *v1.Pod) bool {
		return ptr.Deref(pod.Spec.PreemptionPolicy, "") == v1.PreemptNever
	})
}

// Filters implements GroupCycle.
func (c *groupCycle) Filters(ctx context.Context, member *v1.Pod) (fwk.CycleState, sets.Set[string], *fwk.Status) {
	runner, ok := c.handle.(framework.Framework)
	if !ok {
		return nil, nil, fwk.AsStatus(fmt.Errorf("a handle of type %T runs no PreFilter plugins", c.handle))
	}
	state, placement := framework.NewCycleState(), framework.NewCycleState()
	placement.SetPodGroupSchedulingCycle(c.state)
	state.SetPodGroupSchedulingCycle(c.state)
	state.SetPlacementCycleState(placement)
	result, status, _ := runner.RunPreFilterPlugins(ctx, state, member)
	if !status.IsSuccess() || result.AllNodes() {
		return state, nil, status
	}
	return state, result.NodeNames, nil
}

// Begin implements GroupCycle.
func (c *groupCycle) Begin() (GroupTrial, error) {
	snapshot := c.handle.MutableSnapshotSharedLister()
	if err := snapshot.StartMutations(); err != nil {
		return nil, err
	}
	return &groupTrial{handle: c.handle, snapshot: snapshot, place: c.place}, nil
}

// groupTrial is kube-scheduler's snapshot in a mutation session.
type groupTrial struct {
	handle   fwk.Handle
	snapshot fwk.MutableSnapshotSharedLister
	place    fwk.PodGroupSchedulingFunc
}

// Nodes implements GroupTrial.
func (t *groupTrial) Nodes() fwk.NodeInfoLister { return t.snapshot.NodeInfos() }

// Remove implements GroupTrial.
func (t *groupTrial) Remove(ctx context.Context, pod *v1.Pod, node string) error {
	return t.snapshot.RemovePod(klog.FromContext(ctx), pod, node)
}

// Add implements GroupTrial.
func (t *groupTrial) Add(pod fwk.PodInfo, node string) error { return t.snapshot.AddPod(pod, node) }

// Place implements GroupTrial.
func (t *groupTrial) Place(ctx context.Context) ([]Assignment, *fwk.Status) {
	proposed, status := t.place(ctx)
	if proposed == nil {
		return nil, status
	}
	assignments := make([]Assignment, 0, len(proposed.ProposedAssignments))
	for _, one := range proposed.ProposedAssignments {
		if one.GetNodeName() != "" {
			assignments = append(assignments, Assignment{Pod: one.GetPod(), Info: one.GetPodInfo(), Node: one.GetNodeName(), State: one.GetCycleState()})
		}
	}
	return assignments, status
}

// Assume implements GroupTrial.
func (t *groupTrial) Assume(ctx context.Context, member Assignment) *fwk.Status {
	if err := t.snapshot.AddPod(member.Info, member.Node); err != nil {
		return fwk.AsStatus(err)
	}
	status := t.handle.RunReservePluginsReserve(ctx, member.State, member.Pod, member.Node)
	if !status.IsSuccess() {
		if err := t.Forget(ctx, member); err != nil {
			return fwk.AsStatus(err)
		}
	}
	return status
}

// Forget implements GroupTrial.
func (t *groupTrial) Forget(ctx context.Context, member Assignment) error {
	t.handle.RunReservePluginsUnreserve(ctx, member.State, member.Pod, member.Node)
	return t.snapshot.RemovePod(klog.FromContext(ctx), member.Pod, member.Node)
}

// End implements GroupTrial.
func (t *groupTrial) End() error { return t.snapshot.EndMutations() }

// GroupName is the name of the pod group that a pod is a member of; empty where it is of none that is placed as one.
func GroupName(pod *v1.Pod) string {
	return ptr.Deref(ptr.Deref(pod.Spec.SchedulingGroup, v1.PodSchedulingGroup{}).PodGroupName, "")
}

// StateOfGroup is that of the group with which a pod comes to its cycle; nil where it comes by itself.
func StateOfGroup(state fwk.CycleState) GroupState { return state.GetPodGroupSchedulingCycle() }

// GangSize returns how many pods a gang has, and how many it needs for the scheduler to try it; 0 and 0 where that is not known, or
// the group is no gang. It locks the scheduler's cache.
func GangSize(handle fwk.Handle, namespace, name string) (there, needed int) {
	groups := handle.PodGroupManager()
	group, err := groups.PodGroups().Get(namespace, name)
	if err != nil || group.Spec.SchedulingPolicy.Gang == nil {
		return 0, 0
	}
	state, err := groups.PodGroupStates().Get(namespace, name)
	if err != nil {
		return 0, 0
	}
	return state.AllPodsCount(), int(group.Spec.SchedulingPolicy.Gang.MinCount)
}

// GroupReference names a PodGroup in an Event.
func GroupReference(namespace, name string, uid types.UID) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: schedulingv1beta1.SchemeGroupVersion.String(), Kind: "PodGroup", Namespace: namespace, Name: name, UID: uid}
}

// WatchGroups reports every PodGroup that was deleted, and returns what reports whether all are known. Where the scheduler places no
// groups, nothing is watched.
func WatchGroups(ctx context.Context, factory informers.SharedInformerFactory, deleted func(types.UID)) (cache.InformerSynced, error) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload) {
		return func() bool { return true }, nil
	}
	changed := func(_, _ *schedulingv1beta1.PodGroup) {}
	return informing.Watch(ctx, factory.Scheduling().V1beta1().PodGroups().Informer(), changed, func(group *schedulingv1beta1.PodGroup) { deleted(group.UID) })
}
