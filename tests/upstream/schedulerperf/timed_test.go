//go:build !kube136

package schedulerperf

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	makeway "makeway.dev/makeway/plugin/plugin"
)

// timedDefault is DefaultPreemption under a name that the in-tree registry does not have.
const timedDefault = "TimedDefaultPreemption"

// upstreamSample is what DefaultPreemption looks at by default: a tenth of the nodes, and at least 100.
var upstreamSample = config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100}

// timedMakeWay and timedDefaultPreemption are the plugins as they are, with a watch on PostFilter and
// PodGroupPostFilter. What MakeWay does in
// PreFilter, where it may ask ahead, counts as its PostFilter's.
type timedMakeWay struct {
	*makeway.MakeWay
	*stopwatch
	before time.Duration // the last PreFilter, of the same pod: scheduling cycles come one after the other
}

type timedDefaultPreemption struct {
	*defaultpreemption.DefaultPreemption
	*stopwatch
}

func newTimedMakeWay(ctx context.Context, args runtime.Object, handle fwk.Handle, recorder *recorder) (fwk.Plugin, error) {
	plugin, err := makeway.New(ctx, args, handle)
	if err != nil {
		return nil, err
	}
	made, ok := plugin.(*makeway.MakeWay)
	if !ok {
		return nil, fmt.Errorf("the plugin is a %T", plugin)
	}
	return &timedMakeWay{MakeWay: made, stopwatch: &stopwatch{handle, recorder}}, recorder.follow(handle)
}

func newTimedDefault(ctx context.Context, handle fwk.Handle, recorder *recorder) (fwk.Plugin, error) {
	args := upstreamSample
	plugin, err := defaultpreemption.New(ctx, &args, handle, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	if err != nil {
		return nil, err
	}
	return &timedDefaultPreemption{plugin, &stopwatch{handle, recorder}}, recorder.follow(handle)
}

// Name implements Plugin.
func (*timedDefaultPreemption) Name() string { return timedDefault }

func (p *timedMakeWay) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	start := time.Now()
	defer func() { p.before = time.Since(start) }()
	return p.MakeWay.PreFilter(ctx, state, pod, nodes)
}

func (p *timedMakeWay) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	return p.time(ctx, p.MakeWay, state, pod, statuses, p.before)
}

func (p *timedDefaultPreemption) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	return p.time(ctx, p.DefaultPreemption, state, pod, statuses, 0)
}

func (p *timedMakeWay) PodGroupPostFilter(ctx context.Context, state fwk.PodGroupCycleState, info fwk.PodGroupInfo, place fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	defer p.timeGroup(time.Now())
	return p.MakeWay.PodGroupPostFilter(ctx, state, info, place)
}

func (p *timedDefaultPreemption) PodGroupPostFilter(ctx context.Context, state fwk.PodGroupCycleState, info fwk.PodGroupInfo, place fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	defer p.timeGroup(time.Now())
	return p.DefaultPreemption.PodGroupPostFilter(ctx, state, info, place)
}

// stopwatch times PostFilter and PodGroupPostFilter, and tells apart PostFilter's calls that looked at nodes.
type stopwatch struct {
	handle   fwk.Handle
	recorder *recorder
}

func (s *stopwatch) time(ctx context.Context, plugin fwk.PostFilterPlugin, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader, before time.Duration) (*fwk.PostFilterResult, *fwk.Status) {
	start := time.Now()
	result, status := plugin.PostFilter(ctx, state, pod, statuses)
	took := before + time.Since(start)
	// A call without a result was turned away: the pod's victims are still leaving, or it may not preempt.
	// One without potential nodes had nothing to look at.
	potential, err := statuses.NodesForStatusCode(s.handle.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	planned := err == nil && result != nil && len(potential) > 0
	s.recorder.postFilter(took, planned, status.IsSuccess())
	return result, status
}

func (s *stopwatch) timeGroup(start time.Time) {
	s.recorder.podGroupPostFilter(time.Since(start))
}
