//go:build !kube136 && !kube135

package plugin

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

// frameworkOptions are those that every framework of a test has.
func frameworkOptions(snapshot *cache.Snapshot) []frameworkruntime.Option {
	return []frameworkruntime.Option{
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		frameworkruntime.WithMutableSnapshotLister(snapshot),
	}
}

// minorQueue is a scheduling queue.
type minorQueue struct {
	ctx   context.Context
	queue *queue.PriorityQueue
}

// newMinorQueue makes a queue that sorts by less.
func newMinorQueue(ctx context.Context, less fwk.LessFunc) minorQueue {
	return minorQueue{ctx, queue.NewTestQueue(ctx, less)}
}

// Add puts a pod into the queue.
func (q minorQueue) Add(pod *v1.Pod) { q.queue.Add(q.ctx, pod) }

// Update lets the queue know a pod as it is now.
func (q minorQueue) Update(old, pod *v1.Pod) { q.queue.Update(q.ctx, old, pod) }

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

// enqueue puts a pod into a scheduling queue.
func enqueue(ctx context.Context, to queue.SchedulingQueue, pod *v1.Pod) { to.Add(ctx, pod) }
