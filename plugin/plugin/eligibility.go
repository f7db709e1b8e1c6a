package plugin

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// ineligiblePod returns why a pod may not preempt now, without asking the planner; nil where it may.
func (p *preemptor) ineligiblePod(pod *v1.Pod, statuses fwk.NodeToStatusReader, nodes fwk.NodeInfoLister) *preemptResult {
	looked := p.engine.memory.Retries.Now()
	if p.mode == wire.ModeOff {
		return p.modeHeld(looked, endOff, "mode off")
	}
	if ended := excluded(pod); ended != nil {
		switch {
		case ended.kind == endPodGroup && p.engine.control.HoldsGroups():
			return &preemptResult{kind: endGroupHeld, message: "groups.preemptors of the policy is hold: nothing is evicted for pods of a scheduling group"}
		case ended.kind != endNever:
			return p.modeHeld(looked, ended.kind, ended.message)
		}
		return ended
	}

	cycle := orders.FailedCycle{
		StillThere: func(node string, uid types.UID) bool { return holds(nodes, node, uid) },
		Unresolvable: func(node string) bool {
			_, err := nodes.Get(node)
			return err != nil || statuses.Get(node).Code() == fwk.UnschedulableAndUnresolvable
		},
		Beside: p.nominatedBeside(),
	}
	p.engine.inflight.NominatedTo(pod.UID, pod.Status.NominatedNodeName)
	switch why, orderID, node := p.engine.inflight.Refuse(pod.UID, p.engine.clock.Now(), cycle); why {
	case orders.RefusedInFlight:
		return &preemptResult{kind: endInFlight, message: fmt.Sprintf("order %s for this pod on node %s is in flight", orderID, node)}
	case orders.RefusedLeaving:
		return &preemptResult{kind: endLeaving, node: node, message: fmt.Sprintf("victims of order %s are still leaving node %s", orderID, node)}
	case orders.RefusedBeside:
		return &preemptResult{kind: endLeaving, node: node, message: fmt.Sprintf("order %s made room on node %s; %s", orderID, node, leavingBeside)}
	}
	return p.waitsForOthersVictims(func(node string) bool { return statuses.Get(node).Code() != fwk.UnschedulableAndUnresolvable })
}

// leavingBeside is why a preemptor waits whose room is there: kube-scheduler's filters count in the pods that are nominated beside it.
const leavingBeside = "victims of pods that are nominated beside it are still leaving"

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

// classesAwaited is how long after the start pods wait for PriorityClasses to be read; where they may not be listed,
// nothing is delayed after that. classesRetry is when such a pod is tried again.
const (
	classesAwaited = 10 * time.Second
	classesRetry   = time.Second
)

// delayedUntil is the moment from which on a pod may preempt, by its PriorityClass, and why; zero where nothing delays it. An annotation
// that cannot be read delays nothing: the planner warns of it.
func (e *engine) delayedUntil(pod *v1.Pod) (until time.Time, why string) {
	name, now := pod.Spec.PriorityClassName, e.clock.Now()
	if name == "" {
		return time.Time{}, ""
	}
	if !e.cluster.classesSynced() {
		if now.Before(e.cluster.started.Add(classesAwaited)) {
			return now.Add(classesRetry), "the PriorityClasses have not been read yet"
		}
		return time.Time{}, ""
	}
	class, err := e.cluster.classes.Get(name)
	if err != nil {
		return time.Time{}, ""
	}
	delay, err := memory.DelayOf(class)
	if err != nil || delay == 0 {
		return time.Time{}, ""
	}
	if until = e.memory.Delays.Of(pod, now).Add(delay); !now.Before(until) {
		return time.Time{}, ""
	}
	return until, fmt.Sprintf("PriorityClass %s has %s %s", name, memory.PreemptionDelay, class.Annotations[memory.PreemptionDelay])
}

// delayed ends an attempt of a pod whose class lets it wait before it preempts; nil where it may preempt now. The pod is tried again
// when the delay is over, or when its class changes.
func (p *preemptor) delayed() *preemptResult {
	pod, looked := p.pods[0], p.engine.memory.Retries.Now()
	until, why := p.engine.delayedUntil(pod)
	if until.IsZero() {
		return nil
	}
	p.engine.memory.Retries.Refuse(p.one(), looked, until, []wire.Dependency{{Kind: memory.KindPriorityClass, Name: pod.Spec.PriorityClassName}})
	return &preemptResult{kind: endDelayed, message: fmt.Sprintf("preemption is delayed until %s: %s", until.UTC().Format(time.RFC3339), why)}
}
