package queues

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/trial"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/streams"
)

// Name is the plugin's name in the registry and in configurations.
const Name = "MakeWayQueues"

// Plugin is MakeWayQueues in one profile. What profiles share is in the scheduler. Enable it at multiPoint, and at postFilter before
// every plugin that makes room.
type Plugin struct {
	*scheduler
	mode string // the profile's own
}

var (
	_ fwk.PreEnqueuePlugin  = &Plugin{}
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
	_ fwk.ReservePlugin     = &Plugin{}
	_ fwk.PostFilterPlugin  = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
)

// New makes the plugin of one profile. It does not wait for NATS. Everything that it starts ends with the context.
func New(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	args, err := decodeArgs(object)
	if err != nil {
		return nil, err
	}
	logger := klog.LoggerWithName(klog.FromContext(ctx), Name)
	shared, err := schedulerFor(klog.NewContext(ctx, logger), args, handle)
	if err != nil {
		return nil, err
	}
	logger.Info("plugin_configured", "profile", handle.ProfileName(), "mode", args.Mode, "subject_prefix", args.SubjectPrefix, "when_unknown", args.WhenUnknown)
	return shared.profile(args.Mode, handle), nil
}

// NewWith makes the plugin of a scheduler's first profile over given streams, and starts it.
func NewWith(ctx context.Context, args *MakeWayQueuesArgs, handle fwk.Handle, clock clock.WithTicker, records streams.Records) (*Plugin, error) {
	shared := newScheduler(ctx, args, handle, clock, records)
	if err := shared.start(ctx); err != nil {
		return nil, err
	}
	return shared.profile(args.Mode, handle), nil
}

// Name implements Plugin.
func (pl *Plugin) Name() string { return Name }

// Gate is what counts and holds.
func (pl *Plugin) Gate() *Gate { return pl.gate }

// Take puts a control state in effect, as the plugin's follower does.
func (pl *Plugin) Take(ctx context.Context, r natsbus.Record) { pl.control.Take(ctx, r) }

// EventsToRegister implements EnqueueExtensions. There are none: the queue passes over a pod that is gated by a plugin without events
// in O(1) for each event of the cluster, under its lock. What PreEnqueue waits for comes from the pod informer and from the control
// state, and then the pod is activated.
func (pl *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

// PreEnqueue holds a pod that its queue has no room for. It runs under the scheduling queue's lock.
func (pl *Plugin) PreEnqueue(ctx context.Context, pod *v1.Pod) (status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "pre_enqueue", func() { status = nil })
	if rejected := pl.gate.Admit(pod, pl.mode); rejected != nil {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, rejected.Message())
	}
	return nil
}

// errGatePanic lets a pod be tried again after a back-off: neither past the gate nor shut out.
var errGatePanic = errors.New("makeway: a panic was recovered in the queue gate, see the scheduler's log")

// PreFilter keeps a pod out whose queue, or one above it, has no room. Unschedulable where pods within the
// full queue may make room, so that PostFilter plugins look for some; else UnschedulableAndUnresolvable. Skip
// where the pod may pass, so that nothing else here costs anything in its cycle.
func (pl *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (result *fwk.PreFilterResult, status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "pre_filter", func() { status = fwk.AsStatus(errGatePanic) })
	if trial.In(ctx) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	pl.leadership.Leads.Store(true)
	if rejected := pl.gate.Check(state, pod, pl.mode); rejected != nil {
		return nil, rejected.Status()
	}
	return nil, fwk.NewStatus(fwk.Skip)
}

// PreFilterExtensions implements PreFilterPlugin.
func (pl *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return pl }

// RemovePod lets a removal in a dry run free quota.
func (pl *Plugin) RemovePod(ctx context.Context, state fwk.CycleState, _ *v1.Pod, removed fwk.PodInfo, _ fwk.NodeInfo) (status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "remove_pod", func() { status = fwk.AsStatus(errGatePanic) })
	if rejected, _ := RejectionOf(state); rejected != nil {
		rejected.RemovePod(removed.GetPod().UID)
	}
	return nil
}

// AddPod takes that back.
func (pl *Plugin) AddPod(ctx context.Context, state fwk.CycleState, _ *v1.Pod, added fwk.PodInfo, _ fwk.NodeInfo) (status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "add_pod", func() { status = fwk.AsStatus(errGatePanic) })
	if rejected, _ := RejectionOf(state); rejected != nil {
		rejected.AddPod(added.GetPod().UID)
	}
	return nil
}

// Filter reports, in a dry run, whether the removed pods have made room. In an ordinary cycle it is never asked: a pod that passes the
// gate skips it, and one that is kept out has no node looked at.
func (pl *Plugin) Filter(ctx context.Context, state fwk.CycleState, _ *v1.Pod, _ fwk.NodeInfo) (status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "filter", func() { status = fwk.AsStatus(errGatePanic) })
	if rejected, _ := RejectionOf(state); rejected != nil && !rejected.Fits() {
		return fwk.NewStatus(fwk.Unschedulable, rejected.Message())
	}
	return nil
}

// SignPod lets the scheduler go on reusing results for like pods: without it batching ends for the whole
// profile. PreFilter is asked for every pod, batched or not; pods of different queues are told apart all
// the same, since the gate may answer differently for them. It runs under the scheduling queue's lock.
func (pl *Plugin) SignPod(ctx context.Context, pod *v1.Pod) (fragments []fwk.SignFragment, status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "sign_pod", func() { fragments, status = nil, fwk.NewStatus(fwk.Unschedulable) })
	path, ok := pl.gate.QueueOf(pod)
	if !ok {
		return nil, nil
	}
	return []fwk.SignFragment{{Key: Name + ".queue", Value: path}}, nil
}

// Reserve takes a pod's place in its queue. It rejects where the queue has filled since PreFilter looked, with pods that another
// scheduler has bound.
func (pl *Plugin) Reserve(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) (status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "reserve", func() { status = nil })
	if trial.In(ctx) {
		return nil
	}
	if rejected := pl.gate.Reserve(pod, pl.mode); rejected != nil {
		return fwk.NewStatus(fwk.Unschedulable, rejected.Message())
	}
	return nil
}

// Unreserve gives the place back.
func (pl *Plugin) Unreserve(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	defer goroutines.RecoverPanic(ctx, "unreserve", nil)
	if !trial.In(ctx) {
		pl.gate.Unreserve(pod.UID)
	}
}

// PostFilter ends the chain for a pod whose queue no eviction within it gives room; no plugin may make room on a node for it. It
// notes the end of the cycle, unless a plugin after it does, and leaves other pods to those: their dry runs ask Filter.
func (pl *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader) (result *fwk.PostFilterResult, status *fwk.Status) {
	status = fwk.NewStatus(fwk.Unschedulable)
	defer goroutines.RecoverPanic(ctx, "post_filter", nil)
	rejected := pl.gate.CheckLate(state, pod, pl.mode)
	ends := rejected != nil && !rejected.VictimsMayHelp()
	if rejected != nil || pl.gate.orderLives.Load() == nil {
		pl.gate.Tried(pod.UID)
	}
	pl.Pending(refOf(pod)) // it may have gone meanwhile
	if ends {
		return framework.NewPostFilterResultWithNominatedNode(""),
			fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "makeway: no pods that could be evicted would make room in its queue")
	}
	return nil, status
}
