//go:build !kube136 && !kube135

package minor

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Queued is what the scheduling queue sorts: a pod, or a whole pod group.
type Queued = fwk.QueuedEntityInfo

// PriorityOf is the priority by which the queue sorts: a group has its own.
func PriorityOf(queued Queued) int32 { return queued.GetPriority() }

// PodOf is the pod that is queued; nil where it is a pod group.
func PodOf(queued Queued) *v1.Pod {
	if one, ok := queued.(*framework.QueuedPodInfo); ok {
		return one.Pod
	}
	return nil
}
