//go:build !kube136

package main

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

const (
	podGroups       = "pod-groups"       // groups of both modes, and their parents
	groupPriorities = "group-priorities" // pods of another priority than their group
)

// countsAsMakeWay tells that pods that are being resized count as in makeway.
const countsAsMakeWay = true

var kindsOfGroups = []string{podGroups, groupPriorities}

// groups are those of a cluster.
type groups struct {
	PodGroups          []*schedulingv1beta1.PodGroup           `json:"podGroups,omitempty"`
	CompositePodGroups []*schedulingv1alpha3.CompositePodGroup `json:"compositePodGroups,omitempty"`
}

// setGates turns on what makes a group one victim.
func setGates() error {
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{
		string(features.GenericWorkload): true, string(features.TopologyAwareWorkloadScheduling): true,
		string(features.CompositePodGroup): true,
	})
}

// makeGroups adds trees of groups to each namespace, none deeper than the API allows.
func (m *maker) makeGroups() {
	if !m.has(podGroups) {
		return
	}
	for _, namespace := range namespaces {
		var parents []*schedulingv1alpha3.CompositePodGroup
		depth := map[string]int{}
		for i := range m.IntN(4) {
			group := &schedulingv1alpha3.CompositePodGroup{ObjectMeta: groupMeta(namespace, fmt.Sprint("tree-", i))}
			group.Spec.Priority = m.groupPriority()
			depth[group.Name] = 1
			if parent := pick(m.Rand, append(parents, nil)...); parent != nil && depth[parent.Name] < schedulingv1beta1.WorkloadMaxTreeDepth-1 {
				group.Spec.ParentCompositePodGroupName = new(parent.Name)
				depth[group.Name] = depth[parent.Name] + 1
			}
			switch m.IntN(3) {
			case 0:
				group.Spec.DisruptionMode = &schedulingv1alpha3.CompositeDisruptionMode{All: &schedulingv1alpha3.AllCompositeDisruptionMode{}}
			case 1:
				group.Spec.DisruptionMode = &schedulingv1alpha3.CompositeDisruptionMode{Single: &schedulingv1alpha3.SingleCompositeDisruptionMode{}}
			}
			parents = append(parents, group)
		}
		m.c.CompositePodGroups = append(m.c.CompositePodGroups, parents...)
		for i := range m.IntN(5) {
			group := &schedulingv1beta1.PodGroup{ObjectMeta: groupMeta(namespace, fmt.Sprint("group-", i))}
			group.Spec.Priority = m.groupPriority()
			if parent := pick(m.Rand, append(parents, nil)...); parent != nil {
				group.Spec.ParentCompositePodGroupName = new(parent.Name)
			}
			switch m.IntN(4) {
			case 0, 1:
				group.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
			case 2:
				group.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{Single: &schedulingv1beta1.SingleDisruptionMode{}}
			}
			m.c.PodGroups = append(m.c.PodGroups, group)
		}
	}
}

func groupMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name)}
}

func (m *maker) groupPriority() *int32 {
	return pick(m.Rand, nil, new(int32(-100)), new(int32(0)), new(int32(10)), new(int32(10)), new(int32(99)), new(int32(100)), new(int32(2000)))
}

// join makes some pods members of a group of their namespace, at the priority of its root but for group-priorities.
func (m *maker) join(pod *v1.Pod) {
	// makeway takes no system-critical pod for less than it is.
	if !m.has(podGroups) || m.chance(3) || pod.Spec.Priority != nil && *pod.Spec.Priority > scheduling.HighestUserDefinablePriority {
		return
	}
	own := slices.DeleteFunc(slices.Clone(m.c.PodGroups), func(g *schedulingv1beta1.PodGroup) bool { return g.Namespace != pod.Namespace })
	if len(own) == 0 {
		return
	}
	group := pick(m.Rand, own...)
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new(group.Name)}
	if m.has(groupPriorities) {
		return
	}
	priority, parent := group.Spec.Priority, group.Spec.ParentCompositePodGroupName
	for parent != nil {
		i := slices.IndexFunc(m.c.CompositePodGroups, func(g *schedulingv1alpha3.CompositePodGroup) bool {
			return g.Namespace == pod.Namespace && g.Name == *parent
		})
		priority, parent = m.c.CompositePodGroups[i].Spec.Priority, m.c.CompositePodGroups[i].Spec.ParentCompositePodGroupName
	}
	pod.Spec.Priority = priority
}

// snapshotOf makes the snapshot of a scheduling cycle, and what else the framework needs of it.
func snapshotOf(ctx context.Context, c *Case, placed []*v1.Pod) (*internalcache.Snapshot, []frameworkruntime.Option, error) {
	logger := klog.FromContext(ctx)
	cache := internalcache.New(ctx, nil, true, true)
	for _, node := range c.Nodes {
		cache.AddNode(logger, node)
	}
	for _, group := range c.CompositePodGroups {
		cache.AddCompositePodGroup(logger, group)
	}
	for _, group := range c.PodGroups {
		cache.AddPodGroup(group)
	}
	for _, pod := range placed {
		if err := cache.AddPod(logger, pod); err != nil {
			return nil, nil, err
		}
	}
	snapshot := internalcache.NewEmptySnapshot()
	if err := cache.UpdateSnapshot(logger, snapshot); err != nil {
		return nil, nil, err
	}
	return snapshot, []frameworkruntime.Option{
		frameworkruntime.WithMutableSnapshotLister(snapshot), frameworkruntime.WithPodGroupManager(cache),
	}, nil
}

// newEvaluator is that of DefaultPreemption, with a total order of victims.
func newEvaluator(ctx context.Context, handle framework.Framework) (*preemption.Evaluator, error) {
	args := &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 100, MinCandidateNodesAbsolute: 1}
	plugin, err := defaultpreemption.New(ctx, args, handle, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	if err != nil {
		return nil, fmt.Errorf("DefaultPreemption: %w", err)
	}
	plugin.MoreImportantVictim = totally(plugin.MoreImportantVictim)
	return plugin.Evaluator, nil
}

// totally makes an order total. Equally important victims come in any order upstream, and those that have not
// started in the order of two readings of the clock; by their lowest UID, as makeway has it, there is one answer.
func totally(moreImportant defaultpreemption.MoreImportantVictimFunc) defaultpreemption.MoreImportantVictimFunc {
	return func(a, b preemption.Victim) bool {
		alike := a.Priority() == b.Priority() && a.Type() == b.Type() && len(a.Pods()) == len(b.Pods())
		if alike && (!started(a) && !started(b) || !moreImportant(a, b) && !moreImportant(b, a)) {
			return lowestUID(a) < lowestUID(b)
		}
		return moreImportant(a, b)
	}
}

// started reports whether any pod of a victim has a start; upstream takes the present for one that has none.
func started(victim preemption.Victim) bool {
	for _, pod := range victim.Pods() {
		if pod.GetPod().Status.StartTime != nil {
			return true
		}
	}
	return false
}

func lowestUID(victim preemption.Victim) types.UID {
	var lowest types.UID
	for _, pod := range victim.Pods() {
		if uid := pod.GetPod().UID; lowest == "" || uid < lowest {
			lowest = uid
		}
	}
	return lowest
}
