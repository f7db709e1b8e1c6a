package bridge

import (
	"testing"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"makeway.dev/makeway/plugin/wire"
)

var (
	waiting     = wire.PodRef{Namespace: "default", Name: "waiting", UID: "waiting"}
	steadyClass = []wire.Dependency{{Kind: kindPriorityClass, Name: "steady"}}
)

func TestARefusedPodIsDueWhenATolerationEnds(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	retries := newRetries(now)
	ends := now.Now().Add(90 * time.Second)
	retries.refuse(waiting, ends, steadyClass)

	now.SetTime(ends.Add(-time.Millisecond))
	if due := retries.due(); len(due) != 0 {
		t.Fatalf("due before the toleration ends: %v", due)
	}
	now.SetTime(ends)
	if due := retries.due(); len(due) != 1 {
		t.Fatalf("due when the toleration ends: %v", due)
	}
	if due := retries.due(); len(due) != 0 {
		t.Fatalf("its time is used up, and yet it is due: %v", due)
	}
}

func TestARefusedPodIsDueWhenAPriorityClassThatItDependsOnChanges(t *testing.T) {
	w := newWorld(t, setup{}, nil)
	engine := w.plugin.engine
	engine.retry.refuse(waiting, time.Time{}, steadyClass)
	create := func(name string) {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"}}
		if _, err := w.client.SchedulingV1().PriorityClasses().Create(w.ctx, class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(10 * time.Second)
		for engine.seen.all()[resourcePriorityClasses] != 7 {
			if time.Now().After(deadline) {
				t.Fatalf("PriorityClass %s is not seen", name)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}

	create("another")
	if due := engine.retry.due(); len(due) != 0 {
		t.Fatalf("due for a class that it does not depend on: %v", due)
	}
	engine.seen = newSeen()
	create("steady")
	deadline := time.Now().Add(10 * time.Second)
	for len(engine.retry.due()) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the pod is not due")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
