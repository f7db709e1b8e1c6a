//go:build kube136 || kube135

package minor

import (
	"context"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Idle keeps a scheduler from scheduling anything: it is never told of a pod. Call it before the scheduler runs.
func Idle(ctx context.Context, sched *scheduler.Scheduler) {
	sched.NextPod = func(klog.Logger) (*framework.QueuedPodInfo, error) {
		<-ctx.Done()
		return nil, nil
	}
}
