//go:build !kube135 && !kube136

package plugin

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	fwk "k8s.io/kube-scheduler/framework"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"makeway.dev/makeway/plugin/orders"
)

// BenchmarkADeleteWithGatedPods is how long the deletion of a pod holds the scheduling queue's lock while 1,000 preemptors are gated, that
// NodeResourcesFit has rejected before.
func BenchmarkADeleteWithGatedPods(b *testing.B) {
	const gated = 1000
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard)))
	ctx := klog.NewContext(context.Background(), logger)
	w := buildWorld(b, ctx, setup{}, []*v1.Node{node("n1")})
	queue := queueWith(b, ctx, w.plugin)
	f := w.plugin.engine.inflight
	for i := range gated {
		p := pod(fmt.Sprintf("p%d", i), "", high, small).Obj()
		queue.Add(ctx, p)
		entity, err := queue.Pop(logger)
		if err != nil {
			b.Fatal(err)
		}
		info := entity.(*framework.QueuedPodInfo)
		info.UnschedulablePlugins.Insert(names.NodeResourcesFit)
		if err := queue.AddUnschedulablePodIfNotPresent(logger, info, queue.SchedulingCycle()); err != nil {
			b.Fatal(err)
		}
		f.Begin(&orders.Order{OrderID: fmt.Sprintf("o%d", i), Node: "n1", Preemptor: orders.RefOf(p), Removal: orders.Removal{Victims: []types.UID{"victim"}}, OpensAt: time.Now().Add(time.Hour)})
	}
	victim := pod("victim", "n1", low, small).Obj()
	deleted := func() {
		queue.MoveAllToActiveOrBackoffQueue(logger, framework.EventAssignedPodDelete, victim, nil, nil)
	}
	deleted() // it would bring them to a cycle: PreEnqueue holds them
	if _, summary := queue.PendingPods(); len(queue.UnschedulablePods()) != gated || len(queue.PodsInActiveQ()) != 0 {
		b.Fatal(summary)
	}

	for b.Loop() {
		deleted()
	}
}

// queueWith is kube-scheduler's own queue, of a profile with NodeResourcesFit's hint and the plugin.
func queueWith(b *testing.B, ctx context.Context, pl *MakeWay) *internalqueue.PriorityQueue {
	b.Helper()
	hints := internalqueue.QueueingHintMap{}
	for _, event := range []fwk.ClusterEvent{framework.EventAssignedPodDelete} {
		hints[event] = append(hints[event], &internalqueue.QueueingHintFunction{
			PluginName:     names.NodeResourcesFit,
			QueueingHintFn: func(klog.Logger, *v1.Pod, any, any) (fwk.QueueingHint, error) { return fwk.Queue, nil },
		})
	}
	registered, err := pl.EventsToRegister(ctx)
	if err != nil {
		b.Fatal(err)
	}
	for _, event := range registered {
		for _, one := range framework.UnrollPodEvent(event.Event) {
			hints[one] = append(hints[one], &internalqueue.QueueingHintFunction{PluginName: Name, QueueingHintFn: event.QueueingHintFn})
		}
	}
	profile := "default-scheduler"
	anyOrder := func(fwk.QueuedEntityInfo, fwk.QueuedEntityInfo) bool { return false }
	return internalqueue.NewTestQueue(ctx, anyOrder,
		internalqueue.WithQueueingHintMapPerProfile(internalqueue.QueueingHintMapPerProfile{profile: hints}),
		internalqueue.WithPreEnqueuePluginMap(map[string]map[string]fwk.PreEnqueuePlugin{profile: {Name: pl}}),
	)
}
