//go:build kube136 || kube135

package minor

import (
	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Queued is what the scheduling queue sorts: a pod.
type Queued = fwk.QueuedPodInfo

// PriorityOf is the priority by which the queue sorts.
func PriorityOf(queued Queued) int32 {
	return corev1helpers.PodPriority(queued.GetPodInfo().GetPod())
}

// PodOf is the pod that is queued.
func PodOf(queued Queued) *v1.Pod { return queued.GetPodInfo().GetPod() }
