//go:build kube135

package minor

import (
	"context"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

var _ preemption.Interface = &choosing{}

// NewDefaultPreemption makes kube-scheduler's DefaultPreemption under another name, whose victims selectVictims chooses.
// Pods of a group are victims one by one.
func NewDefaultPreemption(ctx context.Context, name string, args *config.DefaultPreemptionArgs, handle, clientHandle fwk.Handle, selectVictims SelectVictims) (*defaultpreemption.DefaultPreemption, error) {
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	upstream, err := defaultpreemption.New(ctx, args, clientHandle, features)
	if err != nil {
		return nil, err
	}
	preempt := upstream.Evaluator.PreemptPod // it deletes with the client of clientHandle
	upstream.Evaluator = preemption.NewEvaluator(name, handle, &choosing{upstream, selectVictims}, features.EnableAsyncPreemption)
	upstream.Evaluator.PreemptPod = preempt
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

// BreaksGroup reports false: in this version no group goes whole or not at all.
func BreaksGroup(*v1.Pod) bool { return false }

// HoldsGroups reports false: in this version kube-scheduler makes room for pods of a group one by one.
func HoldsGroups() bool { return false }

// MoreImportantPod is the order in which DefaultPreemption keeps pods.
func MoreImportantPod(upstream *defaultpreemption.DefaultPreemption) func(a, b *v1.Pod) bool {
	return upstream.MoreImportantPod
}

// GuardDeletes has each delete of a victim done by guard, which may refuse.
func GuardDeletes(upstream *defaultpreemption.DefaultPreemption, guard func(ctx context.Context, eviction Eviction, evict func(context.Context) error) error) {
	preempt := upstream.Evaluator.PreemptPod
	upstream.Evaluator.PreemptPod = func(ctx context.Context, c preemption.Candidate, preemptor, victim *v1.Pod, pluginName string) error {
		eviction := Eviction{Node: c.Name(), Victims: c.Victims().Pods, Victim: victim, Preemptors: []*v1.Pod{preemptor}}
		return guard(ctx, eviction, func(ctx context.Context) error { return preempt(ctx, c, preemptor, victim, pluginName) })
	}
}

// IsPreempting reports whether victims of a pod are being deleted.
func IsPreempting(upstream *defaultpreemption.DefaultPreemption, preemptor types.UID) bool {
	return upstream.Evaluator.IsPodRunningPreemption(preemptor)
}
