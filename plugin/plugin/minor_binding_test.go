//go:build !kube135

package minortest

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// JoinGroup makes a pod a member of a pod group.
func JoinGroup(pod *v1.Pod, group string) {
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
}

// InPreBind puts a pod into its binding cycle.
func InPreBind(_ *testing.T, f framework.Framework, uid types.UID, cancel func(error)) {
	f.AddPodInPreBind(uid, cancel)
}

// Prebound puts a pod into its binding cycle, too late for it to be stopped.
func Prebound(t *testing.T, f framework.Framework, uid types.UID) {
	t.Helper()
	InPreBind(t, f, uid, func(error) {})
	f.GetPodInPreBind(uid).MarkPrebound()
}

// WaitAtPermit has a pod wait for a plugin of the Permit point.
func WaitAtPermit(_ *testing.T, f framework.Framework, pod *v1.Pod, plugin string) {
	f.AddWaitingPod(pod, map[string]time.Duration{plugin: time.Hour})
}
