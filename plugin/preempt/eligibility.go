package preempt

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

// ineligible returns why a pod may not preempt now, without asking the planner; nil where it may.
func (pl *MakeWay) ineligible(pod *v1.Pod, statuses fwk.NodeToStatusReader, nodes fwk.NodeInfoLister) *preemptResult {
	looked := pl.engine.retry.now()
	if pl.mode(pod) == wire.ModeOff {
		pl.engine.retry.modeHeld(refOf(pod), looked)
		return &preemptResult{kind: endOff, message: "mode off"}
	}
	if ended := excluded(pod); ended != nil {
		return ended
	}

	stillThere := func(node string, uid types.UID) bool { return holds(nodes, node, uid) }
	now := pl.engine.clock.Now()
	switch kind, orderID, node := pl.engine.inflight.refuse(pod.UID, now, stillThere); kind {
	case endInFlight:
		return &preemptResult{kind: kind, message: fmt.Sprintf("order %s for this pod on node %s is in flight", orderID, node)}
	case endLeaving:
		return &preemptResult{kind: kind, message: fmt.Sprintf("victims of order %s are still leaving node %s", orderID, node)}
	}
	return pl.waitsForOthersVictims(pod, statuses, nodes)
}

// excluded ends what is not to be planned for whatever the cluster is like.
func excluded(pod *v1.Pod) *preemptResult {
	if pod.Spec.SchedulingGroup != nil {
		return &preemptResult{kind: endPodGroup, message: "pods of a scheduling group are left to kube-scheduler's own preemption"}
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
	now := pl.engine.clock.Now()
	var until time.Time
	for _, info := range node.GetPods() {
		other := info.GetPod()
		if !mayDisplace(pod, other, nominated) || !terminatingByPreemption(other) {
			continue
		}
		if deadline := other.DeletionTimestamp.Add(leavingSlack); !overdue(other, now) && deadline.After(until) {
			until = deadline
		}
	}
	if until.IsZero() {
		return nil
	}
	pl.engine.retry.postpone(refOf(pod), until)
	return &preemptResult{kind: endLeaving, message: fmt.Sprintf("a pod preempted on node %s is still terminating", nominated)}
}

// terminatingByPreemption reports whether a pod is being deleted because a scheduler preempted it.
func terminatingByPreemption(pod *v1.Pod) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == v1.DisruptionTarget {
			return condition.Status == v1.ConditionTrue && condition.Reason == v1.PodReasonPreemptionByScheduler
		}
	}
	return false
}

// overdue reports whether a pod that is being deleted should have left: its deletionTimestamp, which is when
// the grace period ends, is more than a minute ago. Its kubelet may be dead.
func overdue(pod *v1.Pod, now time.Time) bool {
	return pod.DeletionTimestamp != nil && !now.Before(pod.DeletionTimestamp.Add(leavingSlack))
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

func refOf(pod *v1.Pod) wire.PodRef {
	return wire.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
}
