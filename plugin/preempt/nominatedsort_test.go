package preempt

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2/ktesting"
	schedulingqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

func TestOfPodsOfOnePriorityNominatedOnesGoFirst(t *testing.T) {
	metrics.Register()
	logger, ctx := ktesting.NewTestContext(t)
	scheduling := schedulingqueue.NewTestQueue(ctx, NominatedSort{}.Less)
	pod := func(name string, priority int32) *v1.Pod {
		return st.MakePod().Namespace("default").Name(name).UID(name).Priority(priority).Obj()
	}
	waiting := pod("nominated while it waits", 100)
	for _, one := range []*v1.Pod{
		pod("lower, first", 99), pod("first", 100), pod("second", 100), waiting, pod("higher, last", 101),
	} {
		scheduling.Add(ctx, one)
	}
	lower := pod("lower, nominated", 99)
	lower.Status.NominatedNodeName = "n2"
	scheduling.Add(ctx, lower)
	nominated := waiting.DeepCopy()
	nominated.Status.NominatedNodeName = "n1"
	scheduling.Update(ctx, waiting, nominated)

	for _, want := range []string{
		"higher, last", "nominated while it waits", "first", "second", "lower, nominated", "lower, first",
	} {
		got, err := scheduling.Pop(logger)
		if err != nil {
			t.Fatal(err)
		}
		if got.Pod.Name != want {
			t.Errorf("got %q, want %q", got.Pod.Name, want)
		}
		scheduling.Done(got.Pod.UID)
	}
}
