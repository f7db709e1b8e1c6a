package preempt

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// ineligible returns why a pod may not preempt now, without asking the planner; nil where it may.
func (pl *MakeWay) ineligible(pod *v1.Pod, statuses fwk.NodeToStatusReader, nodes fwk.NodeInfoLister) *preemptResult {
	looked := pl.engine.memory.Retries.Now()
	if pl.mode(pod) == wire.ModeOff {
		pl.engine.memory.Retries.ModeHeld(orders.RefOf(pod), looked)
		return &preemptResult{kind: endOff, message: "mode off"}
	}
	if ended := excluded(pod); ended != nil {
		if ended.kind == endPodGroup && pl.engine.control.HoldsGroups() {
			return &preemptResult{kind: endGroupHeld, message: "groups.preemptors of the policy is hold: nothing is evicted for pods of a scheduling group"}
		}
		if ended.kind != endNever {
			pl.engine.memory.Retries.ModeHeld(orders.RefOf(pod), looked)
		}
		return ended
	}

	cycle := orders.FailedCycle{
		StillThere: func(node string, uid types.UID) bool { return holds(nodes, node, uid) },
		Unresolvable: func(node string) bool {
			_, err := nodes.Get(node)
			return err != nil || statuses.Get(node).Code() == fwk.UnschedulableAndUnresolvable
		},
	}
	pl.engine.inflight.NominatedTo(pod.UID, pod.Status.NominatedNodeName)
	switch why, orderID, node := pl.engine.inflight.Refuse(pod.UID, pl.engine.clock.Now(), cycle); why {
	case orders.RefusedInFlight:
		return &preemptResult{kind: endInFlight, message: fmt.Sprintf("order %s for this pod on node %s is in flight", orderID, node)}
	case orders.RefusedLeaving:
		return &preemptResult{kind: endLeaving, node: node, message: fmt.Sprintf("victims of order %s are still leaving node %s", orderID, node)}
	}
	return pl.waitsForOthersVictims(pod, statuses, nodes)
}

// excluded ends what is not to be planned for whatever the cluster is like.
func excluded(pod *v1.Pod) *preemptResult {
	if minor.InGroup(pod) {
		return &preemptResult{kind: endPodGroup, message: "pods of a scheduling group have no plan in this version of Kubernetes"}
	}
	if pod.Spec.NodeName != "" {
		return &preemptResult{kind: endPlaced, message: "the resize of a pod on its node has no plan"}
	}
	if neverPreempts(pod) {
		return &preemptResult{kind: endNever, message: "not eligible due to preemptionPolicy=Never"}
	}
	return nil
}

func neverPreempts(pod *v1.Pod) bool {
	return pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever
}

// waitsForOthersVictims is upstream's rule for preemptions that this process does not know of: a victim
// on the nominated node is terminating by preemption. Unlike upstream it ends, at the victim's grace
// period and 60 s, since its kubelet may be dead.
func (pl *MakeWay) waitsForOthersVictims(pod *v1.Pod, statuses fwk.NodeToStatusReader, nodes fwk.NodeInfoLister) *preemptResult {
	nominated := pod.Status.NominatedNodeName
	if nominated == "" || statuses.Get(nominated).Code() == fwk.UnschedulableAndUnresolvable {
		return nil
	}
	node, err := nodes.Get(nominated)
	if err != nil {
		return nil
	}
	until := verify.PreemptedUntil(pod, node, pl.engine.clock.Now())
	if until.IsZero() {
		return nil
	}
	pl.engine.memory.Retries.Postpone(orders.RefOf(pod), until)
	return &preemptResult{kind: endLeaving, message: fmt.Sprintf("a pod preempted on node %s is still terminating", nominated)}
}

// holds reports whether the cycle's snapshot has a pod on a node.
func holds(nodes fwk.NodeInfoLister, node string, uid types.UID) bool {
	info, err := nodes.Get(node)
	if err != nil {
		return false
	}
	for _, pod := range info.GetPods() {
		if pod.GetPod().UID == uid {
			return true
		}
	}
	return false
}

// recalled is what earlier cycles, orders and answers mean for a pod's next attempt.
type recalled struct {
	wait      *preemptResult            // why the pod waits; nil: a plan may be asked for, with the fields below
	potential ask.Potential             // the nodes where preemption may help
	failed    map[string]verify.Failure // nodes that failed verification in cycles before
	full      bool                      // the columns are set aside: a refusal was wrong
}

// recall asks every memory of earlier attempts once: whether the pod waits, and what its plan leaves out. A pod that
// waits is tried again when the cause has ended. O(what is remembered of the pod + names in the potential nodes).
func (pl *MakeWay) recall(pod *v1.Pod, mode string, possible ask.Potential, nodes fwk.NodeInfoLister) recalled {
	if mode == wire.ModeEnforce {
		if end := pl.ordersShut(pod); end != nil {
			return recalled{wait: end}
		}
	}
	pl.engine.planner.History.Needed(pod, possible)
	return recalled{potential: possible, failed: pl.failedBefore(pod, nodes), full: pl.engine.verified.samples.Full(pl.engine.clock.Now(), pod.UID)}
}

// failedBefore returns the nodes that failed verification for pods of a pod's class and have not changed since.
func (pl *MakeWay) failedBefore(pod *v1.Pod, nodes fwk.NodeInfoLister) map[string]verify.Failure {
	memory, now := pl.engine.verified.failures, pl.engine.clock.Now()
	if memory.IsEmpty(now) {
		return map[string]verify.Failure{}
	}
	return memory.Of(now, verify.ClassOf(pod), func(node string) (int64, bool) { return generationOf(nodes, node) })
}

// remembers reports whether an earlier attempt may change a pod's next plan.
func (e *engine) remembers(pod types.UID) bool {
	return e.inflight.Has(pod) || e.planner.LatePods.Keeps(pod) || e.verified.samples.Full(e.clock.Now(), pod)
}

// generationOf is that of the scheduler's view of a node: any change of the node or its pods makes another.
func generationOf(nodes fwk.NodeInfoLister, node string) (generation int64, ok bool) {
	info, err := nodes.Get(node)
	if err != nil {
		return 0, false
	}
	return info.GetGeneration(), true
}

// ordersShut ends an attempt whose order would probably not be carried out; nil where one may be tried.
func (pl *MakeWay) ordersShut(pod *v1.Pod) *preemptResult {
	asked := pl.engine.memory.Retries.Now()
	why, until := pl.engine.memory.OrdersHeldBack(pod.Namespace)
	if why == "" {
		return nil
	}
	pl.engine.memory.Retries.Refuse(orders.RefOf(pod), asked, until, []wire.Dependency{{Kind: memory.KindOrders}})
	kind := endNoEvictor
	switch why {
	case memory.NotStored:
		kind = endNotStored
	case memory.RefusedForAll, memory.RefusedForNamespace:
		kind = endBreakerOpen
	}
	return &preemptResult{kind: kind, message: why.String() + "; an order is tried now and then"}
}
