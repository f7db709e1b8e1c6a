//go:build kube136

package minor

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

var _ preemption.Interface = &choosing{}

// NewDefaultPreemption makes kube-scheduler's DefaultPreemption under another name, whose victims selectVictims chooses.
// Pods of a group are victims one by one, and pods preempt one by one, whatever the feature gates.
func NewDefaultPreemption(ctx context.Context, name string, args *config.DefaultPreemptionArgs, handle, clientHandle fwk.Handle, selectVictims SelectVictims) (*defaultpreemption.DefaultPreemption, error) {
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	features.EnableWorkloadAwarePreemption = false
	upstream, err := defaultpreemption.New(ctx, args, clientHandle, features)
	if err != nil {
		return nil, err
	}
	upstream.Evaluator = preemption.NewEvaluator(name, handle, &choosing{upstream, selectVictims}, upstream.Executor)
	return upstream, nil
}

// choosing is DefaultPreemption with its choice of victims under selectVictims.
type choosing struct {
	*defaultpreemption.DefaultPreemption
	selectVictims SelectVictims
}

// SelectVictimsOnNode implements preemption.Interface. Nodes are looked at in parallel.
func (c *choosing) SelectVictimsOnNode(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo, budgets []*policyv1.PodDisruptionBudget) ([]*v1.Pod, int, *fwk.Status) {
	return c.selectVictims(ctx, node, c.MoreImportantPod, func(goes func(*v1.Pod) bool) ([]*v1.Pod, int, *fwk.Status) {
		own := *c.DefaultPreemption
		own.IsEligiblePod = func(_ fwk.NodeInfo, victim fwk.PodInfo, _ *v1.Pod) bool { return goes(victim.GetPod()) }
		return own.SelectVictimsOnNode(ctx, state, pod, node, budgets)
	})
}

// BreaksGroup reports whether kube-scheduler's own preemption may take a pod of a group that goes whole or not at all by itself:
// this version takes single pods whatever the mode of their group is.
func BreaksGroup(victim *v1.Pod) bool { return InGroup(victim) }

// HoldsGroups reports whether nothing makes room for pods of groups: where its gate for that is on, this version of kube-scheduler has
// room made for a group as a whole, and by the plugin that is named DefaultPreemption alone.
func HoldsGroups() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.WorkloadAwarePreemption)
}

// MoreImportantPod is the order in which DefaultPreemption keeps pods.
func MoreImportantPod(upstream *defaultpreemption.DefaultPreemption) func(a, b *v1.Pod) bool {
	return upstream.MoreImportantPod
}

// GuardDeletes has each delete of a victim done by guard, which may refuse.
func GuardDeletes(upstream *defaultpreemption.DefaultPreemption, guard func(ctx context.Context, eviction Eviction, evict func(context.Context) error) error) {
	preempt := upstream.Executor.PreemptPod
	upstream.Executor.PreemptPod = func(ctx context.Context, c preemption.Candidate, preemptor preemption.ExecutorPreemptor, victim *v1.Pod, pluginName string) error {
		eviction := Eviction{Node: c.Name(), Victims: c.Victims().Pods, Victim: victim, Preemptors: slices.Collect(maps.Values(preemptor.Pods()))}
		return guard(ctx, eviction, func(ctx context.Context) error { return preempt(ctx, c, preemptor, victim, pluginName) })
	}
}

// IsPreempting reports whether victims of a pod are being deleted.
func IsPreempting(upstream *defaultpreemption.DefaultPreemption, preemptor types.UID) bool {
	return upstream.Executor.IsPodRunningPreemption(preemptor)
}
