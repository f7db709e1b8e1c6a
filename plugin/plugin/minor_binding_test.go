//go:build !kube135

package plugin

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// joinGroup makes a pod a member of a pod group.
func joinGroup(pod *v1.Pod, group string) {
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
}

// inPreBind puts a pod into its binding cycle.
func inPreBind(_ *testing.T, f framework.Framework, uid types.UID, cancel func(error)) {
	f.AddPodInPreBind(uid, cancel)
}

// prebound puts a pod into its binding cycle, too late for it to be stopped.
func prebound(t *testing.T, f framework.Framework, uid types.UID) {
	t.Helper()
	inPreBind(t, f, uid, func(error) {})
	f.GetPodInPreBind(uid).MarkPrebound()
}

// waitAtPermit has a pod wait for a plugin of the Permit point.
func waitAtPermit(_ *testing.T, f framework.Framework, pod *v1.Pod, plugin string) {
	f.AddWaitingPod(pod, map[string]time.Duration{plugin: time.Hour})
}
