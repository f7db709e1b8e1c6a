//go:build !kube136 && !kube135

package minortest

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// FrameworkOptions are those that every framework of a test has.
func FrameworkOptions(snapshot *cache.Snapshot) []frameworkruntime.Option {
	return []frameworkruntime.Option{
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		frameworkruntime.WithMutableSnapshotLister(snapshot),
	}
}

// Queue is a scheduling queue.
type Queue struct {
	ctx   context.Context
	queue *queue.PriorityQueue
}

// NewQueue makes a queue that sorts by less.
func NewQueue(ctx context.Context, less fwk.LessFunc) Queue {
	return Queue{ctx, queue.NewTestQueue(ctx, less)}
}

// Add puts a pod into the queue.
func (q Queue) Add(pod *v1.Pod) { q.queue.Add(q.ctx, pod) }

// Update lets the queue know a pod as it is now.
func (q Queue) Update(old, pod *v1.Pod) { q.queue.Update(q.ctx, old, pod) }

// Pop takes the next pod.
func (q Queue) Pop() (*v1.Pod, error) {
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

// Enqueue puts a pod into a scheduling queue.
func Enqueue(ctx context.Context, to queue.SchedulingQueue, pod *v1.Pod) { to.Add(ctx, pod) }
