package queues

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/control"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/informing"
	"makeway.dev/makeway/plugin/internal/perscheduler"
	"makeway.dev/makeway/plugin/internal/pluginargs"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/streams"
	"makeway.dev/makeway/plugin/wire"
)

// scheduler is what the profiles of one scheduler share. Its goroutines end with the context of New.
type scheduler struct {
	args       *MakeWayQueuesArgs
	handle     fwk.Handle // the first profile's; queue and nominator are the same for all
	pods       corelisters.PodLister
	gate       *Gate
	control    *control.Control
	leadership *streams.Leadership
	recorders  map[string]events.EventRecorder // by profile; complete before anything runs
}

var schedulers perscheduler.Registry[*scheduler]

// schedulerFor returns what a scheduler's profiles share, made and started where this is its first profile.
func schedulerFor(ctx context.Context, args *MakeWayQueuesArgs, handle fwk.Handle) (*scheduler, error) {
	shared, _, err := schedulers.Of(ctx, handle.SharedInformerFactory(), func() (*scheduler, error) {
		bus := natsbus.Connect(ctx, args.Options("makeway-scheduler queues "+natsbus.NewIdentity()))
		shared := newScheduler(ctx, args, handle, clock.RealClock{}, bus)
		return shared, shared.start(ctx)
	})
	if err != nil {
		return nil, err
	}
	return shared, pluginargs.Same("MakeWayQueuesArgs", shared.args, args, shared.handle.ProfileName(), handle.ProfileName(), "mode")
}

// newScheduler puts the parts together. It starts nothing.
func newScheduler(ctx context.Context, args *MakeWayQueuesArgs, handle fwk.Handle, clock clock.WithTicker, records streams.Records) *scheduler {
	core := handle.SharedInformerFactory().Core().V1()
	fence := &streams.Fence{Lease: types.NamespacedName(args.Lease), Profile: handle.ProfileName(), Client: handle.ClientSet(), Records: records}
	s := &scheduler{
		args: args, handle: handle, pods: core.Pods().Lister(), recorders: map[string]events.EventRecorder{},
		gate:       GateOf(ctx, handle.SharedInformerFactory()),
		leadership: &streams.Leadership{Fence: fence, Clock: clock},
	}
	s.control = control.New(control.Options{
		Client: handle.ClientSet(), Clock: clock, Exempt: args.ExemptNamespaces,
		BrakeAt: types.NamespacedName(args.BrakeConfigMap), QueuesAt: types.NamespacedName(args.QueuesConfigMap),
		Stream:        control.Stream{Records: records, Subjects: args.Subjects(), Signatures: streams.NewSignatures(args.Signatures, types.NamespacedName(args.KeysConfigMap), handle.ClientSet())},
		Namespaces:    core.Namespaces().Lister(),
		ClassesSynced: func() bool { return true }, // what restricts preemption is not asked here
		Changed:       func(bool) { s.gate.Reconsider() },
	})
	s.gate.mu.Lock()
	s.gate.clock, s.gate.applies, s.gate.passes = clock, s.control.QueuesHold, args.WhenUnknown == whenUnknownPass
	s.gate.mu.Unlock()
	s.gate.none.Store(false)
	s.control.UseLimits(s.gate)
	return s
}

// profile takes in one more profile.
func (s *scheduler) profile(mode string, handle fwk.Handle) *Plugin {
	s.recorders[handle.ProfileName()] = handle.EventRecorder()
	if mode == wire.ModeEnforce {
		s.gate.addProfile(handle.ProfileName())
	}
	return &Plugin{scheduler: s, mode: mode}
}

// start registers informer handlers and starts the goroutines.
func (s *scheduler) start(ctx context.Context) error {
	core := s.handle.SharedInformerFactory().Core().V1()
	pods, err := informing.Watch(ctx, core.Pods().Informer(), func(_, pod *v1.Pod) { s.gate.PodChanged(pod) }, func(pod *v1.Pod) { s.gate.PodDeleted(pod.UID) })
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	if err := s.control.Watch(ctx); err != nil {
		return err
	}
	goroutines.GoRecovered(ctx, "follow", func(ctx context.Context) {
		// Until namespaces are known, one cluster's messages cannot be told from another's. The scheduler has also given its queue to
		// the handle by then.
		if !cache.WaitForCacheSync(ctx.Done(), pods, core.Namespaces().Informer().HasSynced) {
			return
		}
		goroutines.KeepRunning(ctx, "gate", s.runActivations)
		goroutines.KeepRunning(ctx, "queue_conditions", s.runConditionUpdates)
		s.control.Start(ctx)
	})
	return nil
}

// Pending is the pod as the informer has it, where it waits for a node; nil where it is bound or gone. What is kept of a pod that is bound or gone in its queue's line is dropped: that may have been noted
// after the informer had told of it. It must not be called under the gate's lock.
func (s *scheduler) Pending(ref wire.PodRef) *v1.Pod {
	uid := types.UID(ref.UID)
	switch pod, err := s.pods.Pods(ref.Namespace).Get(ref.Name); {
	case err != nil || pod.UID != uid:
		s.gate.PodDeleted(uid)
		return nil
	case pod.Spec.NodeName != "":
		s.gate.CycleFailed(uid)
		return nil
	default:
		return pod
	}
}

// recorder writes Events as the profile of a pod does.
func (s *scheduler) recorder(pod *v1.Pod) events.EventRecorder {
	if recorder := s.recorders[pod.Spec.SchedulerName]; recorder != nil {
		return recorder
	}
	return s.handle.EventRecorder()
}

// gatePause is the least time between two checks of the waiting pods.
const gatePause = 50 * time.Millisecond

// standbyPause is how often a standby checks whether it leads by now.
const standbyPause = time.Second

// runActivations activates pods that were kept out and now fit. Between two checks it pauses, so that a queue
// that empties is checked a few times and not once a pod.
func (s *scheduler) runActivations(ctx context.Context) {
	for ctx.Err() == nil {
		s.activateDue(ctx)
		goroutines.Sleep(ctx, gatePause)
	}
}

// activateDue checks once, waits where nothing is due, and activates.
func (s *scheduler) activateDue(ctx context.Context) {
	defer goroutines.RecoverPanic(ctx, "gate", nil)
	leads := s.leadership.Now(ctx)
	refs, next := s.gate.due(leads)
	if !leads {
		next = goroutines.Sooner(next, s.gate.clock.Now().Add(standbyPause))
	}
	waiting, shut := s.gate.State()
	gateWaiting.Set(float64(waiting))
	gateShut.Set(0)
	if shut {
		gateShut.Set(1)
	}
	if len(refs) > 0 {
		gateActivated.Add(float64(len(refs)))
		pods := make(map[string]*v1.Pod, len(refs))
		for _, ref := range refs {
			if pod := s.Pending(ref); pod != nil {
				pods[ref.Namespace+"/"+ref.Name] = pod
			}
		}
		logger := klog.FromContext(ctx)
		logger.V(2).Info("queue_gate_opened", "pods", len(refs), "waiting", waiting)
		s.handle.Activate(logger, pods)
		return
	}
	goroutines.Wait(ctx, s.gate.clock, next, s.gate.changed)
}
