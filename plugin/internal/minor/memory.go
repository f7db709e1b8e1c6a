//go:build !kube135

package minor

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreemptWaiting stops a pod that waits at Permit, and reports whether it did. The pod is tried again at once: a
// rejected one would count as unschedulable and wait for an event.
func PreemptWaiting(waiting fwk.WaitingPod, plugin, message string) bool {
	return waiting.Preempt(plugin, message)
}

// InPreBind reports whether a pod is in its binding cycle and not bound yet.
func InPreBind(handle fwk.Handle, uid types.UID) bool { return handle.GetPodInPreBind(uid) != nil }

// CancelInPreBind stops a pod in its binding cycle, and reports whether it did.
func CancelInPreBind(handle fwk.Handle, uid types.UID, reason string) bool {
	binding := handle.GetPodInPreBind(uid)
	return binding != nil && binding.CancelPod(reason)
}

// Recorder is the handle's recorder of events, with a logger.
func Recorder(handle fwk.Handle, logger klog.Logger) events.EventRecorder {
	return handle.EventRecorder().WithLogger(logger)
}

// InGroup reports whether a pod is a member of a pod group.
func InGroup(pod *v1.Pod) bool { return pod.Spec.SchedulingGroup != nil }
