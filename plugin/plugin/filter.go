package plugin

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/queues"
	"makeway.dev/makeway/plugin/verify"
)

// ordersOf is the engine as the queues know it.
type ordersOf struct{ *engine }

func (o ordersOf) InFlight(uid types.UID) bool { return o.inflight.Has(uid) }

func (o ordersOf) StoredOrderLives(ctx context.Context, uid types.UID) bool {
	return o.store.StoredOrderLives(ctx, uid)
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
	pl.noteBegin(state, pod)
	pl.startPrefetch(state, pod)
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
