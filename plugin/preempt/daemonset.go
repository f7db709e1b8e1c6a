package preempt

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// daemonSetNode returns the one node that a DaemonSet has bound its pod to, empty where it is no such pod: a
// DaemonSet controls it, and every required term of its node affinity names that node by a field, as the
// DaemonSet controller writes it.
func daemonSetNode(pod *v1.Pod) string {
	affinity := pod.Spec.Affinity
	if !ofDaemonSet(pod) || affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	node := ""
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		named := nodeNamed(term)
		if named == "" || node != "" && node != named {
			return ""
		}
		node = named
	}
	return node
}

// nodeNamed returns the node that a term names by a field; empty where it names none, or more than one.
func nodeNamed(term v1.NodeSelectorTerm) string {
	node := ""
	for _, field := range term.MatchFields {
		if field.Key != metav1.ObjectNameField || field.Operator != v1.NodeSelectorOpIn || len(field.Values) != 1 {
			continue
		}
		if node != "" && node != field.Values[0] {
			return ""
		}
		node = field.Values[0]
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
// equal one only where a DaemonSet has bound the other to this node, and then never a DaemonSet's own.
func mayDisplace(pod, victim *v1.Pod, node string) bool {
	own, other := corev1helpers.PodPriority(pod), corev1helpers.PodPriority(victim)
	return other < own || other == own && daemonSetNode(pod) == node && !ofDaemonSet(victim)
}
