//go:build !kube136 && !kube135

package plugin

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// frameworkOptions are those that every framework of a test has.
func frameworkOptions(snapshot *cache.Snapshot) []frameworkruntime.Option {
	return []frameworkruntime.Option{
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		frameworkruntime.WithMutableSnapshotLister(snapshot),
	}
}

// Pop takes the next pod.
func (q minorQueue) Pop() (*v1.Pod, error) {
	next, err := q.queue.Pop(klog.FromContext(q.ctx))
	if err != nil {
		return nil, err
	}
	one, ok := next.(*framework.QueuedPodInfo)
	if !ok {
		return nil, fmt.Errorf("%T is no pod", next)
	}
	pod := one.Pod
	q.queue.Done(pod.UID)
	return pod, nil
}
