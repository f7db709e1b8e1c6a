//go:build kube135

package plugin

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// joinGroup makes a pod a member of a pod group.
func joinGroup(pod *v1.Pod, group string) {
	pod.Spec.WorkloadRef = &v1.WorkloadReference{Name: group, PodGroup: group}
}

// inPreBind skips the test: this version does not tell of binding cycles.
func inPreBind(t *testing.T, _ framework.Framework, _ types.UID, _ func(error)) {
	t.Skip("this version of Kubernetes does not tell which pods are in their binding cycle")
}

// prebound skips the test, as inPreBind.
func prebound(t *testing.T, f framework.Framework, uid types.UID) { inPreBind(t, f, uid, nil) }

// waitAtPermit skips the test: only Permit plugins have pods wait in this version.
func waitAtPermit(t *testing.T, _ framework.Framework, _ *v1.Pod, _ string) {
	t.Skip("in this version of Kubernetes only plugins have pods wait at Permit")
}

// frameworkOptions are those that every framework of a test has.
func frameworkOptions(*cache.Snapshot) []frameworkruntime.Option { return nil }

// minorQueue is a scheduling queue.
type minorQueue struct {
	logger klog.Logger
	queue  *queue.PriorityQueue
}

// newMinorQueue makes a queue that sorts by less.
func newMinorQueue(ctx context.Context, less fwk.LessFunc) minorQueue {
	return minorQueue{klog.FromContext(ctx), queue.NewTestQueue(ctx, less)}
}

// Add puts a pod into the queue.
func (q minorQueue) Add(pod *v1.Pod) { q.queue.Add(q.logger, pod) }

// Update lets the queue know a pod as it is now.
func (q minorQueue) Update(old, pod *v1.Pod) { q.queue.Update(q.logger, old, pod) }

// Pop takes the next pod.
func (q minorQueue) Pop() (*v1.Pod, error) {
	next, err := q.queue.Pop(q.logger)
	if err != nil {
		return nil, err
	}
	q.queue.Done(next.Pod.UID)
	return next.Pod, nil
}

// enqueue puts a pod into a scheduling queue.
func enqueue(ctx context.Context, to queue.SchedulingQueue, pod *v1.Pod) {
	to.Add(klog.FromContext(ctx), pod)
}
