//go:build kube136

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// countsAsMakeWay tells that pods that are being resized count as in makeway.
const countsAsMakeWay = false

// kindsOfGroups: for one pod that preempts, this version takes pods one by one whatever their group says.
var kindsOfGroups []string

// groups are none here.
type groups struct{}

func setGates() error { return nil }

func answerGangs(io.Reader, io.Writer) error {
	return errors.New("this version has no preemption for pod groups")
}

func (m *maker) makeGroups() { m.c.groups = groups{} }

func (m *maker) join(*v1.Pod) {}

// snapshotOf makes the snapshot of a scheduling cycle, and what else the framework needs of it.
func snapshotOf(_ context.Context, c *Case, placed []*v1.Pod) (*internalcache.Snapshot, []frameworkruntime.Option, error) {
	return internalcache.NewSnapshot(placed, c.Nodes), nil, nil
}

// newEvaluator is that of DefaultPreemption, with a total order of victims.
func newEvaluator(ctx context.Context, handle framework.Framework) (*preemption.Evaluator, error) {
	args := &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 100, MinCandidateNodesAbsolute: 1}
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	plugin, err := defaultpreemption.New(ctx, args, handle, features)
	if err != nil {
		return nil, fmt.Errorf("DefaultPreemption: %w", err)
	}
	plugin.MoreImportantPod = totally(plugin.MoreImportantPod)
	return plugin.Evaluator, nil
}

// totally makes an order total. Equally important pods come in any order upstream, and those that have not
// started in the order of two readings of the clock; by UID, as makeway has it, there is one answer.
func totally(moreImportant defaultpreemption.MoreImportantPodFunc) defaultpreemption.MoreImportantPodFunc {
	return func(a, b *v1.Pod) bool {
		unstarted := a.Status.StartTime == nil && b.Status.StartTime == nil
		samePriority := corev1helpers.PodPriority(a) == corev1helpers.PodPriority(b)
		if samePriority && (unstarted || (!moreImportant(a, b) && !moreImportant(b, a))) {
			return a.UID < b.UID
		}
		return moreImportant(a, b)
	}
}
