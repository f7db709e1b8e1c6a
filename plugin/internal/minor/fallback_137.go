//go:build !kube136 && !kube135

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
	"k8s.io/kubernetes/pkg/scheduler/util"
)

var _ preemption.Interface = &choosing{}

// NewDefaultPreemption makes kube-scheduler's DefaultPreemption under another name, whose victims selectVictims chooses.
// A pod group whose pods may only be disrupted together is one victim, where the feature gates say so.
func NewDefaultPreemption(ctx context.Context, name string, args *config.DefaultPreemptionArgs, handle, clientHandle fwk.Handle, selectVictims SelectVictims) (*defaultpreemption.DefaultPreemption, error) {
	upstream, err := defaultpreemption.New(ctx, args, clientHandle, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
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

// SelectVictimsOnNode implements preemption.Interface. Nodes are looked at in parallel. A pod group that is one victim
// goes where all its pods may, on whatever nodes they are.
func (c *choosing) SelectVictimsOnNode(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo, possible []*preemption.DomainVictim, budgets []*policyv1.PodDisruptionBudget) ([]*v1.Pod, int, *fwk.Status) {
	return c.selectVictims(ctx, node, util.MoreImportantPod, func(goes func(*v1.Pod) bool) ([]*v1.Pod, int, *fwk.Status) {
		own := *c.DefaultPreemption
		own.IsEligiblePod = func(_ fwk.NodeInfo, victim preemption.Victim, _ *v1.Pod) bool {
			for _, info := range victim.Pods() {
				if !goes(info.GetPod()) {
					return false
				}
			}
			return true
		}
		return own.SelectVictimsOnNode(ctx, state, pod, node, possible, budgets)
	})
}

// BreaksGroup reports whether kube-scheduler's own preemption may take a pod of a group that goes whole or not at all by itself:
// this version does so where the gate for groups is off.
func BreaksGroup(victim *v1.Pod) bool {
	return InGroup(victim) && !utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload)
}

// HoldsGroups reports false: in this version plugins of any name make room for a group.
func HoldsGroups() bool { return false }

// MoreImportantPod is the order in which DefaultPreemption keeps pods.
func MoreImportantPod(*defaultpreemption.DefaultPreemption) func(a, b *v1.Pod) bool {
	return util.MoreImportantPod
}

// GuardDeletes has each delete of a victim done by guard, which may refuse.
func GuardDeletes(upstream *defaultpreemption.DefaultPreemption, guard func(ctx context.Context, eviction Eviction, evict func(context.Context) error) error) {
	preempt := upstream.Executor.PreemptPod
	upstream.Executor.PreemptPod = func(ctx context.Context, c preemption.Candidate, preemptor preemption.ExecutorPreemptor, victim *v1.Pod, pluginName string) (bool, error) {
		eviction := Eviction{Node: c.Name(), Victims: c.Victims().Pods, Victim: victim, Preemptors: slices.Collect(maps.Values(preemptor.Pods()))}
		inMemory := false
		err := guard(ctx, eviction, func(ctx context.Context) (err error) {
			inMemory, err = preempt(ctx, c, preemptor, victim, pluginName)
			return err
		})
		return inMemory, err
	}
}

// IsPreempting reports whether victims of a pod are being deleted.
func IsPreempting(upstream *defaultpreemption.DefaultPreemption, preemptor types.UID) bool {
	return upstream.Executor.IsPodRunningPreemption(preemptor)
}
