package preempt

import (
	"fmt"
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
	retries.refuse(waiting, 0, ends, steadyClass)

	now.SetTime(ends.Add(-time.Millisecond))
	if due := retries.due(retryBurst); len(due) != 0 {
		t.Fatalf("due before the toleration ends: %v", due)
	}
	now.SetTime(ends)
	if due := retries.due(retryBurst); len(due) != 1 {
		t.Fatalf("due when the toleration ends: %v", due)
	}
	if due := retries.due(retryBurst); len(due) != 0 {
		t.Fatalf("its time is used up, and yet it is due: %v", due)
	}
}

func TestARefusedPodIsDueWhenAPriorityClassThatItDependsOnChanges(t *testing.T) {
	w := newWorld(t, setup{}, nil)
	engine := w.plugin.engine
	engine.retry.refuse(waiting, engine.retry.now(), time.Time{}, steadyClass)
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
	if due := engine.retry.due(retryBurst); len(due) != 0 {
		t.Fatalf("due for a class that it does not depend on: %v", due)
	}
	engine.seen = newSeenVersions()
	create("steady")
	deadline := time.Now().Add(10 * time.Second)
	for len(engine.retry.due(retryBurst)) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the pod is not due")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestARefusedPodIsDueWhenThePolicyThatItDependsOnChanges(t *testing.T) {
	w := newWorld(t, setup{}, nil)
	retry, stream := w.plugin.engine.retry, at(1)
	w.tells(enforcing(1, func(s *wire.ControlState) { s.PolicyRevision = "first" }), stream)
	retry.refuse(waiting, retry.now(), time.Time{}, []wire.Dependency{{Kind: kindConfigMap, Namespace: "makeway-system", Name: "makeway-policy"}})

	w.tells(enforcing(2, func(s *wire.ControlState) { s.PolicyRevision = "first" }), stream)
	if due := retry.due(retryBurst); len(due) != 0 {
		t.Fatalf("due though the policy is the same: %v", due)
	}
	w.tells(enforcing(3, func(s *wire.ControlState) { s.PolicyRevision = "second" }), stream)
	if due := retry.due(retryBurst); len(due) != 1 {
		t.Fatalf("due after the policy has changed: %v", due)
	}
}

func TestPodsThatWereNotAskedForAreDueTogetherWhenThePlannerMayBeAsked(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	retries := newRetries(now)
	probe := now.Now().Add(2 * time.Second)
	const pods = 7
	for number := range pods {
		pod := wire.PodRef{Namespace: "default", Name: "waiting", UID: fmt.Sprint(number)}
		for range 5 { // however often it was tried meanwhile
			retries.tryAt(pod, probe)
		}
	}

	now.SetTime(probe.Add(-time.Millisecond))
	if due := retries.due(retryBurst); len(due) != 0 {
		t.Fatalf("due before the planner may be asked: %v", due)
	}
	now.SetTime(probe)
	if due := retries.due(1); len(due) != 1 {
		t.Fatalf("due as a probe: %v", due)
	}
	if due := retries.due(retryBurst); len(due) != pods-1 {
		t.Fatalf("due after that: %v", due)
	}
}

func TestAChangeThatComesBetweenQuestionAndRefusalIsNotLost(t *testing.T) {
	object := func(name string) []wire.Dependency {
		return []wire.Dependency{{Kind: kindPDB, Namespace: "shop", Name: name}}
	}
	for name, test := range map[string]struct {
		meanwhile func(*retries)
		dependsOn []wire.Dependency
		want      int
	}{
		"none":            {func(*retries) {}, object("web"), 0},
		"it":              {func(r *retries) { r.changed(kindPDB, "shop", "web") }, object("web"), 1},
		"it, then others": {func(r *retries) { r.changed(kindPDB, "shop", "web"); r.changed(kindPDB, "shop", "db") }, object("web"), 1},
		"another":         {func(r *retries) { r.changed(kindPDB, "shop", "db") }, object("web"), 0},
		"the policy":      {func(r *retries) { r.policyChanged() }, []wire.Dependency{{Kind: kindConfigMap, Name: "makeway-policy"}}, 1},
		"more than are remembered": {func(r *retries) {
			for range maxChanges + 1 {
				r.changed(kindPDB, "shop", "db")
			}
		}, object("web"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testclock.NewFakePassiveClock(time.Now())
			retries := newRetries(clock)
			retries.changed(kindPDB, "shop", "web")

			asked := retries.now()
			test.meanwhile(retries)
			retries.refuse(waiting, asked, clock.Now().Add(time.Hour), test.dependsOn)

			if due := retries.due(retryBurst); len(due) != test.want {
				t.Errorf("%d pods are due, want %d", len(due), test.want)
			}
		})
	}
}

func TestRefusedPodsOfOneNamespaceDoNotKeepOthersFromBeingTriedAgain(t *testing.T) {
	for name, refuse := range map[string]func(*retries, wire.PodRef){
		"by objects alone":  func(r *retries, p wire.PodRef) { r.modeHeld(p, r.now()) },
		"by a late time":    func(r *retries, p wire.PodRef) { r.postpone(p, r.clock.Now().Add(time.Hour)) },
		"without a planner": func(r *retries, p wire.PodRef) { r.planUnavailable(p, r.clock.Now().Add(time.Hour)) },
	} {
		for kind, remember := range map[string]func(*retries, wire.PodRef){
			"try at":      func(r *retries, p wire.PodRef) { r.tryAt(p, r.clock.Now().Add(verifyPause)) },
			"unreachable": func(r *retries, p wire.PodRef) { r.planUnavailable(p, time.Time{}) },
		} {
			now := testclock.NewFakePassiveClock(time.Now())
			r := newRetries(now)
			of := func(namespace string, i int) wire.PodRef {
				name := fmt.Sprint(namespace, i)
				return wire.PodRef{Namespace: namespace, Name: name, UID: name}
			}
			for i := range maxRefused {
				refuse(r, of("tenant", i))
			}

			remember(r, of("other", 0))
			for i := range 10 {
				refuse(r, of("tenant", maxRefused+i))
			}
			now.SetTime(now.Now().Add(planUnavailableMax))

			if due := r.due(retryBurst); len(due) != 1 || due[0] != of("other", 0) {
				t.Errorf("%s, %s: due: %v", name, kind, due)
			}
			if r.count() != maxRefused-1 && r.count() != maxRefused {
				t.Errorf("%s, %s: %d are remembered", name, kind, r.count())
			}
		}
	}
}
