//go:build kube136

package plugin

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// frameworkOptions are those that every framework of a test has.
func frameworkOptions(_ *cache.Snapshot) []frameworkruntime.Option {
	return []frameworkruntime.Option{
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
	}
}

// Pop takes the next pod.
func (q minorQueue) Pop() (*v1.Pod, error) {
	next, err := q.queue.Pop(klog.FromContext(q.ctx))
	if err != nil {
		return nil, err
	}
	q.queue.Done(next.Pod.UID)
	return next.Pod, nil
}
