package verify

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"makeway.dev/makeway/plugin/wire"
)

// DaemonSetNode returns the one node that a DaemonSet has bound its pod to, empty where it is no such pod: a
// DaemonSet controls it, and every required term of its node affinity names that node by a field, as the
// DaemonSet controller writes it.
func DaemonSetNode(pod *v1.Pod) string {
	affinity := pod.Spec.Affinity
	if !ofDaemonSet(pod) || affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	node := ""
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		named := false
		for _, field := range term.MatchFields {
			if field.Key != metav1.ObjectNameField || field.Operator != v1.NodeSelectorOpIn || len(field.Values) != 1 {
				continue
			}
			if node != "" && node != field.Values[0] {
				return ""
			}
			node, named = field.Values[0], true
		}
		if !named {
			return ""
		}
	}
	return node
}

// ofDaemonSet reports whether a pod says that a DaemonSet controls it. Whoever may create pods may write that: the
// planner asks the DaemonSet itself, and so does the evictor before it deletes.
func ofDaemonSet(pod *v1.Pod) bool {
	controller := metav1.GetControllerOfNoCopy(pod)
	return controller != nil && controller.Kind == "DaemonSet" && controller.APIVersion == appsv1.SchemeGroupVersion.String()
}

// mayDisplace reports whether a pod may be a victim of another by their priorities: a lower one always, an
// equal one only where a DaemonSet has bound the other to this node.
func mayDisplace(pod, victim *v1.Pod, node string) bool {
	own, other := corev1helpers.PodPriority(pod), corev1helpers.PodPriority(victim)
	return other < own || other == own && DaemonSetNode(pod) == node
}

// terminatingByPreemption reports whether a pod is being deleted because a scheduler preempted it.
func terminatingByPreemption(pod *v1.Pod) bool {
	_, why := podutil.GetPodCondition(&pod.Status, v1.DisruptionTarget)
	return pod.DeletionTimestamp != nil && why != nil && why.Status == v1.ConditionTrue && why.Reason == v1.PodReasonPreemptionByScheduler
}

// PreemptedUntil is until when pods on a node are expected to leave that may be victims of another and were preempted; zero where there is
// none. Upstream waits for them without end.
func PreemptedUntil(pod *v1.Pod, node fwk.NodeInfo, now time.Time) (until time.Time) {
	for _, info := range node.GetPods() {
		other := info.GetPod()
		if !mayDisplace(pod, other, node.Node().Name) || !terminatingByPreemption(other) || overdue(other, now) {
			continue
		}
		if deadline := overdueAt(other); deadline.After(until) {
			until = deadline
		}
	}
	return until
}

// overdue reports whether a pod that is being deleted should have left: its deletionTimestamp, which is when
// the grace period ends, is more than a minute ago. Its kubelet may be dead.
func overdue(pod *v1.Pod, now time.Time) bool {
	return pod.DeletionTimestamp != nil && !now.Before(overdueAt(pod))
}

// overdueAt is from when on a pod that is being deleted is overdue.
func overdueAt(pod *v1.Pod) time.Time { return pod.DeletionTimestamp.Add(wire.LeavingSlack) }

// terminating reports whether a pod is being deleted and still expected to leave.
func terminating(pod *v1.Pod, now time.Time) bool {
	return pod.DeletionTimestamp != nil && now.Before(overdueAt(pod))
}

// LastOverdueAt is when the last of some terminating pods is no longer expected to leave.
func LastOverdueAt(pods []*v1.Pod) (last time.Time) {
	for _, pod := range pods {
		if at := overdueAt(pod); at.After(last) {
			last = at
		}
	}
	return last
}
