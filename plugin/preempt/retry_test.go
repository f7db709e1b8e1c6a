package preempt

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"makeway.dev/makeway/plugin/wire"
)

var (
	waiting     = wire.PodRef{Namespace: "default", Name: "waiting", UID: "waiting"}
	steadyClass = []wire.Dependency{{Kind: kindPriorityClass, Name: "steady"}}
)

// unknownPod is an informer that has no pod.
func unknownPod(wire.PodRef) *v1.Pod { return nil }

// retriesOf is the retries of pods that the informer has, and a function that makes one: of a namespace, a number and a priority. A
// higher number is younger.
func retriesOf(clock clock.PassiveClock) (*retries, func(namespace string, number int, priority int32) wire.PodRef) {
	known, began := map[wire.PodRef]*v1.Pod{}, clock.Now()
	r := newRetries(clock, func(ref wire.PodRef) *v1.Pod { return known[ref] })
	return r, func(namespace string, number int, priority int32) wire.PodRef {
		name := fmt.Sprint(namespace, number)
		ref := wire.PodRef{Namespace: namespace, Name: name, UID: name}
		known[ref] = &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(began.Add(time.Duration(number) * time.Second))},
			Spec:       v1.PodSpec{Priority: &priority},
		}
		return ref
	}
}

func TestOfManyRefusedPodsTheMostImportantAndThenTheOldestAreTriedFirst(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	r, pod := retriesOf(now)
	for i := range 5000 {
		r.tryAt(pod("tenant", 5000-i, 1), now.Now())
	}
	critical := pod("system", 9999, systemPriority)
	r.tryAt(critical, now.Now())

	first := r.due(3)

	if want := []wire.PodRef{critical, pod("tenant", 1, 1), pod("tenant", 2, 1)}; !slices.Equal(first, want) {
		t.Errorf("%v, not %v", first, want)
	}
}

func TestPodsThatAreDueAgainAndAgainDoNotKeepAYoungerOneFromBeingTried(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	r, pod := retriesOf(now)
	for i := range 2 * retryBurst {
		r.refuse(pod("tenant", i, 1), r.now(), time.Time{}, steadyClass)
	}
	young := pod("other", 9999, 1)
	r.refuse(young, r.now(), time.Time{}, steadyClass)

	tried := map[wire.PodRef]int{}
	for range 3 {
		r.changed(kindPriorityClass, "", "steady")
		for _, p := range r.due(retryBurst) {
			tried[p]++
		}
		now.SetTime(now.Now().Add(retryInterval))
	}

	if tried[young] != 1 {
		t.Errorf("a pod was tried %d times in as many looks as take all pods", tried[young])
	}
}

func TestPodsThatComeToNoCycleDoNotPassATurnToAndFro(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	r, pod := retriesOf(now)
	later := now.Now().Add(time.Hour)
	heldA, heldB, young := pod("a", 1, 3), pod("a", 2, 3), pod("b", 3, 1)
	for _, p := range []wire.PodRef{heldA, heldB, young} {
		r.refuse(p, r.now(), later, limitOf(""))
	}
	r.orderEnded("")

	var turns []wire.PodRef
	for range 3 {
		turns = append(turns, r.due(retryBurst)...)
		now.SetTime(now.Now().Add(turnLasts))
	}

	if want := []wire.PodRef{heldA, heldB, young}; !slices.Equal(turns, want) {
		t.Errorf("turns of %v, not of %v", turns, want)
	}
}

// limitOf is what a refusal for the limit of orders depends on; namespace: that of the orders that have to end.
func limitOf(namespace string) []wire.Dependency {
	return []wire.Dependency{{Kind: kindOrders, Namespace: namespace, Name: orderLimit}}
}

func TestAsManyPodsAreTriedAsOrdersHaveEndedTheMostImportantFirst(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	r, pod := retriesOf(now)
	inAMinute := now.Now().Add(time.Minute)
	for i := range 5 {
		r.refuse(pod("a", i, 1), r.now(), inAMinute, limitOf(""))
	}
	r.refuse(pod("b", 9, 2), r.now(), inAMinute, limitOf(""))
	if due := r.due(retryBurst); len(due) != 0 {
		t.Fatalf("due though no order has ended: %v", due)
	}

	r.orderEnded("a")
	r.orderEnded("")

	if due := r.dueTurns(retryBurst); !slices.Equal(due, []wire.PodRef{pod("b", 9, 2), pod("a", 0, 1)}) {
		t.Errorf("due: %v", due)
	}
	r.ordered("b9")
	if due := r.due(retryBurst); len(due) != 0 {
		t.Errorf("due though no more orders have ended: %v", due)
	}
	r.ordersCarried()
	if due := r.due(retryBurst); len(due) != 0 {
		t.Errorf("due since evictors are at work: %v", due)
	}
	now.SetTime(inAMinute)
	if due := r.due(retryBurst); len(due) != 5 {
		t.Errorf("not all are due when the time has come: %v", due)
	}
}

func TestATurnThatIsNotUsedIsTheNextPods(t *testing.T) {
	later := time.Now().Add(time.Hour)
	for name, ends := range map[string]func(*retries, wire.PodRef, *testclock.FakePassiveClock){
		"it is bound or gone": func(r *retries, p wire.PodRef, _ *testclock.FakePassiveClock) { r.forget(types.UID(p.UID)) },
		"no room can be made for it": func(r *retries, p wire.PodRef, _ *testclock.FakePassiveClock) {
			r.refuse(p, r.now(), later, steadyClass)
			r.tried(types.UID(p.UID))
		},
		"nothing helps it": func(r *retries, p wire.PodRef, _ *testclock.FakePassiveClock) {
			r.refuse(p, r.now(), time.Time{}, nil)
			r.tried(types.UID(p.UID))
		},
		"it comes to no cycle": func(_ *retries, _ wire.PodRef, now *testclock.FakePassiveClock) {
			now.SetTime(now.Now().Add(turnLasts))
		},
		"its namespace has its share": func(r *retries, p wire.PodRef, _ *testclock.FakePassiveClock) {
			r.refuse(p, r.now(), later, limitOf("a"))
			r.tried(types.UID(p.UID))
		},
	} {
		now := testclock.NewFakePassiveClock(time.Now())
		r, pod := retriesOf(now)
		first, second := pod("a", 1, 3), pod("b", 2, 1)
		for _, p := range []wire.PodRef{first, second} {
			r.refuse(p, r.now(), later, limitOf(""))
		}
		r.orderEnded("")
		if due := r.due(retryBurst); !slices.Equal(due, []wire.PodRef{first}) {
			t.Fatalf("%s: due: %v", name, due)
		}

		ends(r, first, now)

		if due := r.due(retryBurst); len(due) != 1 || due[0] != second {
			t.Errorf("%s: due: %v", name, due)
		}
	}
}

func TestPodsOfANamespaceThatHasItsShareWaitForItsOwnOrders(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	r, pod := retriesOf(now)
	later := now.Now().Add(time.Hour)
	for i := range 3 {
		r.refuse(pod("a", i, 3), r.now(), later, limitOf(""))
	}
	r.refuse(pod("b", 1, 1), r.now(), later, limitOf(""))
	r.orderEnded("")
	r.due(retryBurst)
	r.refuse(pod("a", 0, 3), r.now(), later, limitOf("a"))

	r.tried("a0")

	if due := r.due(retryBurst); !slices.Equal(due, []wire.PodRef{pod("b", 1, 1)}) {
		t.Errorf("due: %v", due)
	}
	r.orderEnded("c")
	if due := r.due(retryBurst); len(due) != 0 {
		t.Errorf("due for another namespace's order: %v", due)
	}
	r.orderEnded("a")
	if due := r.due(retryBurst); !slices.Equal(due, []wire.PodRef{pod("a", 0, 3)}) {
		t.Errorf("due: %v", due)
	}
}

func TestARefusedPodIsDueWhenATolerationEnds(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	retries := newRetries(now, unknownPod)
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
	retries := newRetries(now, unknownPod)
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
			retries := newRetries(clock, unknownPod)
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
			r := newRetries(now, unknownPod)
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
