package queuegate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/wire"
)

// Process is what the gate asks of the process that it runs in. None of it may be called under the gate's lock.
type Process interface {
	// Handle is the scheduler's. Its queue and nominator are the same for all profiles.
	Handle() fwk.Handle
	// Leads reports whether this process schedules pods, or waits for a Lease to do so.
	Leads(ctx context.Context) bool
	// Pending is the pod as the informer has it, where it waits for a node; nil where it is bound or gone.
	Pending(ref wire.PodRef) *v1.Pod
	// Recorder writes Events as the profile of a pod does.
	Recorder(pod *v1.Pod) events.EventRecorder
	// InFlight reports whether a pod has an order in flight.
	InFlight(uid types.UID) bool
	// StoredOrderLives reports whether a pod's last order in the stream, which this process may not have read yet, makes
	// room or keeps it. In doubt it does.
	StoredOrderLives(ctx context.Context, uid types.UID) bool
}

// gatePause is the least time between two checks of the waiting pods.
const gatePause = 50 * time.Millisecond

// standbyPause is how often a standby checks whether it leads by now.
const standbyPause = time.Second

// Run activates pods that were kept out and now fit, and lets the conditions of those that are held say so, until the
// context ends.
func (g *Gate) Run(ctx context.Context, process Process) {
	goroutines.KeepRunning(ctx, "gate", func(ctx context.Context) { g.runActivations(ctx, process) })
	goroutines.KeepRunning(ctx, "queue_conditions", func(ctx context.Context) { g.runConditionUpdates(ctx, process) })
}

// runActivations activates pods that were kept out and now fit. Between two checks it pauses, so that a queue
// that empties is checked a few times and not once a pod.
func (g *Gate) runActivations(ctx context.Context, process Process) {
	for ctx.Err() == nil {
		g.activateDue(ctx, process)
		goroutines.Sleep(ctx, gatePause)
	}
}

// activateDue checks once, waits where nothing is due, and activates.
func (g *Gate) activateDue(ctx context.Context, process Process) {
	defer goroutines.RecoverPanic(ctx, "gate", nil)
	leads := process.Leads(ctx)
	refs, next := g.due(leads)
	if at := g.clock.Now().Add(standbyPause); !leads && (next.IsZero() || at.Before(next)) {
		next = at
	}
	waiting, shut := g.State()
	gateWaiting.Set(float64(waiting))
	gateShut.Set(0)
	if shut {
		gateShut.Set(1)
	}
	if len(refs) > 0 {
		gateActivated.Add(float64(len(refs)))
		pods := make(map[string]*v1.Pod, len(refs))
		for _, ref := range refs {
			if pod := process.Pending(ref); pod != nil {
				pods[ref.Namespace+"/"+ref.Name] = pod
			}
		}
		logger := klog.FromContext(ctx)
		logger.V(2).Info("queue_gate_opened", "pods", len(refs), "waiting", waiting)
		process.Handle().Activate(logger, pods)
		return
	}
	var timer <-chan time.Time
	if !next.IsZero() {
		timer = g.clock.After(max(next.Sub(g.clock.Now()), time.Millisecond))
	}
	select {
	case <-ctx.Done():
	case <-g.changed:
	case <-timer:
	}
}
