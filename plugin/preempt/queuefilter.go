package preempt

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/control"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/queuegate"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// queueGate keeps queues at or below their max. Besides quotaReserver and control.Limits it is what a pod's
// way through the scheduler asks and tells it.
type queueGate interface {
	orders.QuotaReserver
	control.Limits
	// Decided is closed once it is known whether there are limits.
	Decided() <-chan struct{}
	// Reconsider lets pods that wait be looked at again: modes have changed.
	Reconsider()

	// Admit reports why a pod is not to come to a cycle now; nil where it may.
	Admit(pod *v1.Pod, profileMode string) *queuegate.Rejection
	// Check reports why a pod is kept out in its cycle, and notes it in the cycle's state; nil where it passes.
	Check(state fwk.CycleState, pod *v1.Pod, profileMode string) *queuegate.Rejection
	// CheckLate is what Check has found, or finds now where another plugin has rejected the pod before.
	CheckLate(state fwk.CycleState, pod *v1.Pod, profileMode string) *queuegate.Rejection
	// QueueOf is the queue that a pod counts in; ok is false where no limits are in force.
	QueueOf(pod *v1.Pod) (path string, ok bool)
	// HasMax reports whether a max bounds that queue, or one above it.
	HasMax(pod *v1.Pod) bool

	// Reserve takes a place for a pod; it reports why there is none left.
	Reserve(pod *v1.Pod, profileMode string) *queuegate.Rejection
	Unreserve(uid types.UID)
	// CycleFailed notes that a cycle has failed for another reason than the gate, or that the pod is bound.
	CycleFailed(uid types.UID)
	// PreemptionTried notes that a cycle has found no victims whose eviction makes room in the pod's queue.
	PreemptionTried(uid types.UID)
	// AllowCycle lets a pod whose queue is full come to a cycle once more.
	AllowCycle(uid types.UID)

	// PodChanged and PodDeleted tell of pods as the informer shows them.
	PodChanged(pod *v1.Pod)
	PodDeleted(uid types.UID)

	// Run activates pods that fit, and writes the conditions of those that are held, until the context ends.
	Run(ctx context.Context, process queuegate.Process)
}

// gateProcess is the engine as the gate knows it.
type gateProcess struct{ *engine }

func (p gateProcess) Handle() fwk.Handle              { return p.handle }
func (p gateProcess) Leads(ctx context.Context) bool  { return p.leadership.Now(ctx) }
func (p gateProcess) Pending(ref wire.PodRef) *v1.Pod { return p.pending(ref) }
func (p gateProcess) InFlight(uid types.UID) bool     { return p.inflight.Has(uid) }

func (p gateProcess) Recorder(pod *v1.Pod) events.EventRecorder { return p.recorder(pod) }

func (p gateProcess) StoredOrderLives(ctx context.Context, uid types.UID) bool {
	return p.store.StoredOrderLives(ctx, uid)
}

// errGatePanic lets a pod be tried again after a back-off: neither past the gate nor shut out.
var errGatePanic = errors.New("makeway: a panic was recovered in the queue gate, see the scheduler's log")

// PreFilter keeps a pod out whose queue, or one above it, has no room. Unschedulable where pods within the
// full queue may make room, so that PostFilter asks for a plan; else UnschedulableAndUnresolvable. Skip
// where the pod may pass, so that nothing else here costs anything in its cycle.
func (pl *MakeWay) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (result *fwk.PreFilterResult, status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "pre_filter", func() { status = fwk.AsStatus(errGatePanic) })
	if trial := verify.PinsOf(ctx); trial != nil {
		return trial.PreFilter(pod)
	}
	pl.engine.leadership.Leads.Store(true)
	if pl.engine.control.QueuesHold(pl.args.Mode, corev1helpers.PodPriority(pod), pod.Namespace) {
		awaitDecision(ctx, pl.engine.gate)
	}
	if rejected := pl.engine.gate.Check(state, pod, pl.args.Mode); rejected != nil {
		return nil, rejected.Status()
	}
	pl.noteBegin(state, pod)
	pl.startPrefetch(state, pod)
	return nil, fwk.NewStatus(fwk.Skip)
}

// awaitDecision lets the first cycle of a process wait until it is known whether there are limits: see
// control.Run, which decides in less than that. A standby knows before it leads.
func awaitDecision(ctx context.Context, gate queueGate) {
	select {
	case <-gate.Decided():
		return
	default:
	}
	timer := time.NewTimer(control.DecisionWait)
	defer timer.Stop()
	select {
	case <-gate.Decided():
	case <-timer.C:
	case <-ctx.Done():
	}
}

// PreFilterExtensions implements PreFilterPlugin.
func (pl *MakeWay) PreFilterExtensions() fwk.PreFilterExtensions { return pl }

// RemovePod lets a removal in a dry run free quota.
func (pl *MakeWay) RemovePod(ctx context.Context, state fwk.CycleState, _ *v1.Pod, removed fwk.PodInfo, _ fwk.NodeInfo) (status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "remove_pod", func() { status = fwk.AsStatus(errGatePanic) })
	if rejected := queuegate.RejectionOf(state); rejected != nil {
		rejected.RemovePod(removed.GetPod().UID)
	}
	return nil
}

// AddPod takes that back.
func (pl *MakeWay) AddPod(ctx context.Context, state fwk.CycleState, _ *v1.Pod, added fwk.PodInfo, _ fwk.NodeInfo) (status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "add_pod", func() { status = fwk.AsStatus(errGatePanic) })
	if rejected := queuegate.RejectionOf(state); rejected != nil {
		rejected.AddPod(added.GetPod().UID)
	}
	return nil
}

// Filter reports, in a dry run, whether the removed pods have made room, and in a trial of a group whether the node is the member's.
// In an ordinary cycle it is never asked: a pod that passes the gate skips it, and one that is kept out has no node looked at.
func (pl *MakeWay) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) (status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "filter", func() { status = fwk.AsStatus(errGatePanic) })
	if trial := verify.PinsOf(ctx); trial != nil {
		return trial.Filter(pod, node)
	}
	rejected := queuegate.RejectionOf(state)
	if rejected == nil || rejected.Fits() {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, rejected.Message())
}

// SignPod lets the scheduler go on reusing results for like pods: without it batching ends for the whole
// profile. PreFilter is asked for every pod, batched or not; pods of different queues are told apart all
// the same, since the gate may answer differently for them. It runs under the scheduling queue's lock.
func (pl *MakeWay) SignPod(ctx context.Context, pod *v1.Pod) (fragments []fwk.SignFragment, status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "sign_pod", func() { fragments, status = nil, fwk.NewStatus(fwk.Unschedulable) })
	path, ok := pl.engine.gate.QueueOf(pod)
	if !ok {
		return nil, nil
	}
	return []fwk.SignFragment{{Key: Name + ".queue", Value: path}}, nil
}

// dataOf is what a cycle's state keeps under a key, the zero value where it keeps nothing.
func dataOf[T fwk.StateData](state fwk.CycleState, key fwk.StateKey) (data T) {
	if state == nil {
		return data
	}
	kept, err := state.Read(key)
	if err != nil {
		return data
	}
	data, _ = kept.(T)
	return data
}
