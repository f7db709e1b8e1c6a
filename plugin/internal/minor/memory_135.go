//go:build kube135

package minor

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreemptWaiting rejects a pod that waits at Permit, as this version's own preemption does: the pod counts as
// unschedulable then. Whether it came too late is not told.
func PreemptWaiting(waiting fwk.WaitingPod, plugin, message string) bool {
	waiting.Reject(plugin, message)
	return true
}

// InPreBind reports false: this version does not tell which pods are in their binding cycle.
func InPreBind(fwk.Handle, types.UID) bool { return false }

// CancelInPreBind reports false: this version cannot stop a binding cycle, and the pod has to be deleted.
func CancelInPreBind(fwk.Handle, types.UID, string) bool { return false }

// Recorder is the handle's recorder of events; it takes no logger in this version.
func Recorder(handle fwk.Handle, _ klog.Logger) events.EventRecorder { return handle.EventRecorder() }

// InGroup reports whether a pod is a member of a pod group.
func InGroup(pod *v1.Pod) bool { return pod.Spec.WorkloadRef != nil }
