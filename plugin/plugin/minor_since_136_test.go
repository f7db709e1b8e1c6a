//go:build !kube135

package plugin

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
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

// enqueue puts a pod into a scheduling queue.
func enqueue(ctx context.Context, to queue.SchedulingQueue, pod *v1.Pod) { to.Add(ctx, pod) }
