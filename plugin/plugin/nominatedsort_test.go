package plugin

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

func TestOfPodsOfOnePriorityNominatedOnesGoFirst(t *testing.T) {
	metrics.Register()
	_, ctx := ktesting.NewTestContext(t)
	scheduling := newMinorQueue(ctx, NominatedSort{}.Less)
	pod := func(name string, priority int32) *v1.Pod {
		return st.MakePod().Namespace("default").Name(name).UID(name).Priority(priority).Obj()
	}
	waiting := pod("nominated while it waits", 100)
	for _, one := range []*v1.Pod{
		pod("lower, first", 99), pod("first", 100), pod("second", 100), waiting, pod("higher, last", 101),
	} {
		scheduling.Add(one)
	}
	lower := pod("lower, nominated", 99)
	lower.Status.NominatedNodeName = "n2"
	scheduling.Add(lower)
	nominated := waiting.DeepCopy()
	nominated.Status.NominatedNodeName = "n1"
	scheduling.Update(waiting, nominated)

	for _, want := range []string{
		"higher, last", "nominated while it waits", "first", "second", "lower, nominated", "lower, first",
	} {
		got, err := scheduling.Pop()
		if err != nil {
			t.Fatal(err)
		}
		if got.Name != want {
			t.Errorf("got %q, want %q", got.Name, want)
		}
	}
}
