package plugin

import (
	"testing"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/wire"
)

func TestARefusedPodIsDueWhenAPriorityClassThatItDependsOnChanges(t *testing.T) {
	w := newWorld(t, setup{}, nil)
	engine := w.plugin.engine
	engine.memory.Retries.Refuse(waiting, engine.memory.Retries.Now(), time.Time{}, steadyClass)
	create := func(name string) {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"}}
		if _, err := w.client.SchedulingV1().PriorityClasses().Create(w.ctx, class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(10 * time.Second)
		for engine.planner.Seen.All()[ask.ResourcePriorityClasses] != 7 {
			if time.Now().After(deadline) {
				t.Fatalf("PriorityClass %s is not seen", name)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}

	create("another")
	if due := engine.memory.Retries.Due(memory.RetryBurst, false); len(due) != 0 {
		t.Fatalf("due for a class that it does not depend on: %v", due)
	}
	engine.planner.Seen = ask.NewSeen()
	create("steady")
	deadline := time.Now().Add(10 * time.Second)
	for len(engine.memory.Retries.Due(memory.RetryBurst, false)) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the pod is not due")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestARefusedPodIsDueWhenThePolicyThatItDependsOnChanges(t *testing.T) {
	w := newWorld(t, setup{}, nil)
	retry, stream := w.plugin.engine.memory.Retries, at(1)
	w.tells(enforcing(1, func(s *wire.ControlState) { s.PolicyRevision = "first" }), stream)
	refuse := func() {
		retry.Refuse(waiting, retry.Now(), time.Time{}, []wire.Dependency{{Kind: memory.KindConfigMap, Namespace: "makeway-system", Name: "makeway-policy"}})
	}

	refuse()
	w.tells(enforcing(2, func(s *wire.ControlState) { s.PolicyRevision, s.Pods = "first", 30 }), stream)
	if due := retry.Due(memory.RetryBurst, false); len(due) != 0 {
		t.Fatalf("due though the policy is the same: %v", due)
	}
	for number, changed := range []func(*wire.ControlState){
		func(s *wire.ControlState) { s.PolicyRevision = "second" },
		func(s *wire.ControlState) { s.QueuesRevision = "first" },
		func(s *wire.ControlState) { s.TolerationsRevision = "17" },
	} {
		w.tells(enforcing(int64(3+number), changed), stream)
		if due := retry.Due(memory.RetryBurst, false); len(due) != 1 {
			t.Fatalf("due after change %d: %v", number, due)
		}
		retry.Forget(types.UID(waiting.UID))
		refuse()
	}
}

var (
	waiting     = wire.PodRef{Namespace: "default", Name: "waiting", UID: "waiting"}
	steadyClass = []wire.Dependency{{Kind: memory.KindPriorityClass, Name: "steady"}}
)
