// Package plugin is the kube-scheduler plugin MakeWay: it asks the planner what would have to go for a
// pod to fit, verifies the answer with the scheduler's own filters, nominates the pod, commits an
// eviction order to a stream, and holds the pod until its victims have left.
//
// Enable it at multiPoint, before DefaultPreemption where the profile has that, and at postFilter after DynamicResources. A second
// plugin, NominatedSort, may order the scheduling queue.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/queues"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// Name is the plugin's name in the registry and in configurations.
const Name = "MakeWay"

// MakeWay is the plugin of one profile. What profiles share is in the engine.
type MakeWay struct {
	minor.GroupPlugin
	args   *MakeWayArgs
	handle fwk.Handle
	engine *engine

	// Profile names the filters of the profile as plan requests carry them. The framework knows its filters only after every plugin is made.
	Profile func() wire.Profile
}

var (
	_ fwk.PostFilterPlugin  = &MakeWay{}
	_ fwk.PreEnqueuePlugin  = &MakeWay{}
	_ fwk.PreFilterPlugin   = &MakeWay{}
	_ fwk.FilterPlugin      = &MakeWay{}
	_ fwk.SignPlugin        = &MakeWay{}
	_ fwk.ReservePlugin     = &MakeWay{}
	_ fwk.EnqueueExtensions = &MakeWay{}
)

// New makes the plugin of one profile, whose filters have their default arguments. It does not wait for NATS. Everything that
// it starts ends with the context.
func New(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	return NewWith(ctx, object, handle, nil)
}

// NewWith makes the plugin of one profile, as New does, with the arguments that the scheduler builds its profiles with.
func NewWith(ctx context.Context, object runtime.Object, handle fwk.Handle, profileArgs ask.ProfileArgs) (fwk.Plugin, error) {
	args, err := decodeArgs(object)
	if err != nil {
		return nil, err
	}
	logger := klog.LoggerWithName(klog.FromContext(ctx), Name)
	engine, err := engineFor(klog.NewContext(ctx, logger), args, handle)
	if err != nil {
		return nil, err
	}
	logger.Info("plugin_configured", "profile", handle.ProfileName(), "mode", args.Mode, "subject_prefix", args.SubjectPrefix,
		"plan_timeout", args.PlanTimeout.Duration, "max_candidates", args.MaxCandidates, "not_after", args.NotAfter.Duration, "identity", engine.identity)
	pl := &MakeWay{args: args, handle: handle, engine: engine, Profile: sync.OnceValue(func() wire.Profile { return profileOf(handle, profileArgs) })}
	pl.GroupPlugin = minor.NewGroupPlugin(handle, pl.preemptForGroup)
	return pl, nil
}

// profileOf names the filters of a profile, where its handle tells them.
func profileOf(handle fwk.Handle, args ask.ProfileArgs) wire.Profile {
	if lister, ok := handle.(framework.Framework); ok {
		return ask.ProfileOf(lister, args)
	}
	return wire.Profile{Name: handle.ProfileName()}
}

// Name implements Plugin.
func (pl *MakeWay) Name() string { return Name }

// EventsToRegister implements EnqueueExtensions. There are none: the queue passes over a pod that is gated by a plugin without events
// in O(1) for each event of the cluster, under its lock. What PreEnqueue waits for comes from the pod informer and from the streams,
// and then the pod is activated.
func (pl *MakeWay) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

// PreEnqueue holds a pod whose order is in flight. It runs under the scheduling queue's lock.
func (pl *MakeWay) PreEnqueue(ctx context.Context, pod *v1.Pod) (status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "pre_enqueue", func() { status = nil })
	group := types.NamespacedName{Namespace: pod.Namespace, Name: minor.GroupName(pod)}
	if orderID, where, closed := pl.engine.inflight.Gate(pod.UID, group, pl.engine.clock.Now()); closed {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("makeway: waiting for pods on %s to leave (order %s)", where, orderID))
	}
	return nil
}

// Reserve notes that a pod is assumed, which no API object shows.
func (pl *MakeWay) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) (status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "reserve", func() { status = nil })
	if trial := verify.PinsOf(ctx); trial != nil {
		trial.Reserve(pod)
		return nil
	}
	pl.engine.inflight.Cycled(pod.UID) // its place is reserved, and no longer held
	pl.engine.placements.Assume(pod, nodeName)
	pl.finishPrefetch(state)
	return nil
}

// Unreserve notes that it is not. For a victim that was waiting or being bound this is how it leaves:
// the scheduler takes it out of its cache right after.
func (pl *MakeWay) Unreserve(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	defer goroutines.RecoverPanic(ctx, "unreserve", nil)
	if trial := verify.PinsOf(ctx); trial != nil {
		trial.Unreserve(pod)
		return
	}
	pl.engine.placements.Unassume(pod.UID)
	pl.engine.inflight.Deleted(pod.UID, pl.engine.clock.Now())
}

// keptOut reports whether its queue keeps a pod out of every node in this cycle.
func keptOut(statuses fwk.NodeToStatusReader, nodes fwk.NodeInfoLister) bool {
	all, err := nodes.List()
	if err != nil || len(all) == 0 {
		return false
	}
	status := statuses.Get(all[0].Node().Name)
	return status != nil && status.Plugin() == queues.Name
}

// errPanic lets a pod be tried again after a back-off.
var errPanic = errors.New("makeway: a panic was recovered, see the scheduler's log")

// PreFilter notes that the cycle has begun, and may ask for a plan ahead. Skip, so that nothing else here costs anything in the cycle.
// In a trial of a group it names the member's node.
func (pl *MakeWay) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (result *fwk.PreFilterResult, status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "pre_filter", func() { status = fwk.NewStatus(fwk.Skip) })
	if trial := verify.PinsOf(ctx); trial != nil {
		return trial.PreFilter(pod)
	}
	pl.engine.leadership.Leads.Store(true)
	if group := minor.StateOfGroup(state); group != nil && cycleOf(group).began.IsZero() {
		group.Write(cycleKey, &cycle{began: time.Now()})
	}
	state.Write(cycleKey, &cycle{began: time.Now(), prefetch: pl.startPrefetch(pod)})
	return nil, fwk.NewStatus(fwk.Skip)
}

// PreFilterExtensions implements PreFilterPlugin.
func (pl *MakeWay) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter reports, in a trial of a group, whether the node is the member's. In an ordinary cycle it is never asked, since PreFilter skips
// it.
func (pl *MakeWay) Filter(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) (status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "filter", func() { status = fwk.AsStatus(errPanic) })
	if trial := verify.PinsOf(ctx); trial != nil {
		return trial.Filter(pod, node)
	}
	return nil
}

// SignPod lets the scheduler go on reusing results for like pods: without it batching ends for the whole profile.
func (pl *MakeWay) SignPod(context.Context, *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, nil
}

// NominatedSortName is the name of NominatedSort in the registry and in configurations.
const NominatedSortName = "NominatedSort"

// NominatedSort orders the scheduling queue as PrioritySort does, but for this: of pods of the same priority
// those nominated to a node go first. Room has been made for them, or is reserved.
//
// PrioritySort puts a pod that comes back behind all that have not been tried yet. Where many preemptors come
// together the room made for the first stays empty until the last has preempted, and each cycle has to count
// with every nomination until then, on a copy of its node. It may stand in place of PrioritySort, in every
// profile; MakeWay does not depend on it.
//
// A pod's nomination changes by an update of the pod, after which the queue puts it into its place anew.
type NominatedSort struct{}

var _ fwk.QueueSortPlugin = NominatedSort{}

// NewNominatedSort makes the plugin of one profile; it has no arguments.
func NewNominatedSort(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return NominatedSort{}, nil
}

// Name implements Plugin.
func (NominatedSort) Name() string { return NominatedSortName }

// Less reports whether a pod is tried before another; a pod group that is queued as one is nominated nowhere. It runs under the queue's lock.
func (NominatedSort) Less(one, other minor.Queued) bool {
	if mine, theirs := minor.PriorityOf(one), minor.PriorityOf(other); mine != theirs {
		return mine > theirs
	}
	if mine, theirs := nominated(minor.PodOf(one)), nominated(minor.PodOf(other)); mine != theirs {
		return mine
	}
	return one.GetTimestamp().Before(other.GetTimestamp())
}

func nominated(pod *v1.Pod) bool { return pod != nil && pod.Status.NominatedNodeName != "" }
