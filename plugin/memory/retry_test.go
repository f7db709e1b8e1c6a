package memory

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"makeway.dev/makeway/plugin/wire"
)

// unknownPod is an informer that has no pod.
func unknownPod(wire.PodRef) *v1.Pod { return nil }

// retriesOf is the retries of pods that the informer has, and a function that makes one: of a namespace, a number and a priority. A
// higher number is younger.
func retriesOf(clock clock.PassiveClock) (*Retries, func(namespace string, number int, priority int32) wire.PodRef) {
	known, began := map[wire.PodRef]*v1.Pod{}, clock.Now()
	r := NewRetries(clock, func(ref wire.PodRef) *v1.Pod { return known[ref] })
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
		r.TryAt(pod("tenant", 5000-i, 1), now.Now())
	}
	critical := pod("system", 9999, 2_000_000_000)
	r.TryAt(critical, now.Now())

	first := r.Due(3, false)

	if want := []wire.PodRef{critical, pod("tenant", 1, 1), pod("tenant", 2, 1)}; !slices.Equal(first, want) {
		t.Errorf("%v, not %v", first, want)
	}
}

func TestPodsThatAreDueAgainAndAgainDoNotKeepAYoungerOneFromBeingTried(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	r, pod := retriesOf(now)
	for i := range 2 * RetryBurst {
		r.Refuse(pod("tenant", i, 1), r.Now(), time.Time{}, steadyClass)
	}
	young := pod("other", 9999, 1)
	r.Refuse(young, r.Now(), time.Time{}, steadyClass)

	tried := map[wire.PodRef]int{}
	for range 3 {
		r.Changed(KindPriorityClass, "", "steady")
		for _, p := range r.Due(RetryBurst, false) {
			tried[p]++
		}
		now.SetTime(now.Now().Add(retryInterval))
	}

	if tried[young] != 1 {
		t.Errorf("a pod was tried %d times in as many looks as take all pods", tried[young])
	}
}

// limitOf is what a refusal for the limit of orders depends on; namespace: that of the orders that have to end.
func limitOf(namespace string) []wire.Dependency {
	return []wire.Dependency{{Kind: KindOrders, Namespace: namespace, Name: OrderLimit}}
}

func TestAsManyPodsAreTriedAsOrdersHaveEndedTheMostImportantFirst(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	r, pod := retriesOf(now)
	inAMinute := now.Now().Add(time.Minute)
	for i := range 5 {
		r.Refuse(pod("a", i, 1), r.Now(), inAMinute, limitOf(""))
	}
	r.Refuse(pod("b", 9, 2), r.Now(), inAMinute, limitOf(""))
	if due := r.Due(RetryBurst, false); len(due) != 0 {
		t.Fatalf("due though no order has ended: %v", due)
	}

	r.OrderEnded("a", false)
	r.OrderEnded("", false)

	if due := r.Due(RetryBurst, true); !slices.Equal(due, []wire.PodRef{pod("b", 9, 2), pod("a", 0, 1)}) {
		t.Errorf("due: %v", due)
	}
	r.Forget("b9")
	if due := r.Due(RetryBurst, false); len(due) != 0 {
		t.Errorf("due though no more orders have ended: %v", due)
	}
	r.OrdersCarried()
	if due := r.Due(RetryBurst, false); len(due) != 0 {
		t.Errorf("due since evictors are at work: %v", due)
	}
	now.SetTime(inAMinute)
	if due := r.Due(RetryBurst, false); len(due) != 5 {
		t.Errorf("not all are due when the time has come: %v", due)
	}
}

func TestATurnThatIsNotUsedIsTheNextPodsWithTheNextOrderThatEnds(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	r, pod := retriesOf(now)
	first, second := pod("a", 1, 1), pod("b", 2, 1)
	for _, p := range []wire.PodRef{first, second} {
		r.Refuse(p, r.Now(), now.Now().Add(time.Hour), limitOf(""))
	}
	for _, want := range []wire.PodRef{first, second, first} {
		now.SetTime(now.Now().Add(time.Millisecond)) // turns wait for no interval

		r.OrderEnded("", false)

		if due := r.Due(RetryBurst, true); !slices.Equal(due, []wire.PodRef{want}) {
			t.Errorf("due: %v, want %v", due, want)
		}
	}
}

func TestAnImportantPodThatComesToNoCycleTakesOneTurnAsOthersDo(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	r, pod := retriesOf(now)
	stuck, others := pod("a", 1, 9), []wire.PodRef{pod("b", 2, 1), pod("b", 3, 1)}
	for _, p := range append(others, stuck) {
		r.Refuse(p, r.Now(), now.Now().Add(time.Hour), limitOf(""))
	}
	turn := func() []wire.PodRef {
		r.OrderEnded("", false)
		return r.Due(RetryBurst, true)
	}

	for i, want := range []wire.PodRef{stuck, others[0], others[1], stuck} {
		if due := turn(); !slices.Equal(due, []wire.PodRef{want}) {
			t.Errorf("turn %d: %v, want %v", i, due, want)
		}
	}

	r.Refuse(others[0], r.Now(), now.Now().Add(time.Hour), limitOf(""))
	r.Refuse(stuck, r.Now(), now.Now().Add(time.Hour), limitOf(""))
	if due := turn(); !slices.Equal(due, []wire.PodRef{stuck}) {
		t.Errorf("after a cycle: %v", due)
	}
}

func TestPodsOfANamespaceThatHasItsShareWaitForItsOwnOrders(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	r, pod := retriesOf(now)
	later := now.Now().Add(time.Hour)
	for i := range 3 {
		r.Refuse(pod("a", i, 3), r.Now(), later, limitOf(""))
	}
	r.Refuse(pod("b", 1, 1), r.Now(), later, limitOf(""))
	r.OrderEnded("", false)
	r.Due(RetryBurst, false)
	for i := range 3 {
		r.Refuse(pod("a", i, 3), r.Now(), later, limitOf("a"))
	}

	r.OrderEnded("", false)

	if due := r.Due(RetryBurst, false); !slices.Equal(due, []wire.PodRef{pod("b", 1, 1)}) {
		t.Errorf("due: %v", due)
	}
	r.Forget("b1")
	r.OrderEnded("c", false)
	if due := r.Due(RetryBurst, false); len(due) != 0 {
		t.Errorf("due for another namespace's order: %v", due)
	}
	r.OrderEnded("a", false)
	if due := r.Due(RetryBurst, false); !slices.Equal(due, []wire.PodRef{pod("a", 1, 3)}) {
		t.Errorf("due: %v", due)
	}
}

func TestAPodThatLateAnswersRefuseAgainAndAgainIsTriedLaterEachTime(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	r := NewRetries(now, unknownPod)
	triedAfter := func() (waited time.Duration) {
		for len(r.Due(RetryBurst, false)) == 0 {
			now.SetTime(now.Now().Add(time.Second))
			waited += time.Second
		}
		return waited
	}

	for i, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		r.RefuseLate(waiting, r.Now(), time.Time{}, nil)
		if waited := triedAfter(); waited != want {
			t.Errorf("refusal %d: tried after %s, not %s", i, waited, want)
		}
	}
	r.RefuseLate(waiting, r.Now(), now.Now().Add(7*time.Second), nil)
	if waited := triedAfter(); waited != 7*time.Second {
		t.Errorf("the refusal's own time: tried after %s", waited)
	}
	r.Refuse(waiting, r.Now(), now.Now().Add(time.Second), nil)
	triedAfter()
	if r.Count() != 0 {
		t.Error("it is remembered after an answer in time")
	}
	r.RefuseLate(waiting, r.Now(), time.Time{}, nil)
	if waited := triedAfter(); waited != 10*time.Second {
		t.Errorf("after an answer in time: tried after %s", waited)
	}
}

func TestARefusedPodIsDueWhenATolerationEnds(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	retries := NewRetries(now, unknownPod)
	ends := now.Now().Add(90 * time.Second)
	retries.Refuse(waiting, 0, ends, steadyClass)

	now.SetTime(ends.Add(-time.Millisecond))
	if due := retries.Due(RetryBurst, false); len(due) != 0 {
		t.Fatalf("due before the toleration ends: %v", due)
	}
	now.SetTime(ends)
	if due := retries.Due(RetryBurst, false); len(due) != 1 {
		t.Fatalf("due when the toleration ends: %v", due)
	}
	if due := retries.Due(RetryBurst, false); len(due) != 0 {
		t.Fatalf("its time is used up, and yet it is due: %v", due)
	}
}

func TestPodsThatWereNotAskedForAreDueTogetherWhenThePlannerMayBeAsked(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	retries := NewRetries(now, unknownPod)
	probe := now.Now().Add(2 * time.Second)
	const pods = 7
	for number := range pods {
		pod := wire.PodRef{Namespace: "default", Name: "waiting", UID: fmt.Sprint(number)}
		for range 5 { // however often it was tried meanwhile
			retries.TryAt(pod, probe)
		}
	}

	now.SetTime(probe.Add(-time.Millisecond))
	if due := retries.Due(RetryBurst, false); len(due) != 0 {
		t.Fatalf("due before the planner may be asked: %v", due)
	}
	now.SetTime(probe)
	if due := retries.Due(1, false); len(due) != 1 {
		t.Fatalf("due as a probe: %v", due)
	}
	if due := retries.Due(RetryBurst, false); len(due) != pods-1 {
		t.Fatalf("due after that: %v", due)
	}
}

func TestATryAtATimeIsNoPlanThatCouldNotBeHad(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	retries := NewRetries(now, unknownPod)
	uid := types.UID(waiting.UID)

	for range 3 { // sooner one after the other than a refused pod is activated
		retries.TryAt(waiting, now.Now())
		if due := retries.Due(RetryBurst, false); len(due) != 1 {
			t.Fatalf("due: %v", due)
		}
	}
	if failures := retries.Unplanned(uid); failures != 0 {
		t.Errorf("%d plans could not be had, though none was asked for", failures)
	}

	retries.PlanUnavailable(waiting, time.Time{})
	retries.TryAt(waiting, now.Now())

	if failures := retries.Unplanned(uid); failures != 1 {
		t.Errorf("%d plans could not be had, not one", failures)
	}
}

func TestAChangeThatComesBetweenQuestionAndRefusalIsNotLost(t *testing.T) {
	object := func(name string) []wire.Dependency {
		return []wire.Dependency{{Kind: KindPDB, Namespace: "shop", Name: name}}
	}
	for name, test := range map[string]struct {
		meanwhile func(*Retries)
		dependsOn []wire.Dependency
		want      int
	}{
		"none":            {func(*Retries) {}, object("web"), 0},
		"it":              {func(r *Retries) { r.Changed(KindPDB, "shop", "web") }, object("web"), 1},
		"it, then others": {func(r *Retries) { r.Changed(KindPDB, "shop", "web"); r.Changed(KindPDB, "shop", "db") }, object("web"), 1},
		"another":         {func(r *Retries) { r.Changed(KindPDB, "shop", "db") }, object("web"), 0},
		"the policy":      {func(r *Retries) { r.Changed(KindConfigMap, "", "") }, []wire.Dependency{{Kind: KindConfigMap, Name: "makeway-policy"}}, 1},
		"more than are remembered": {func(r *Retries) {
			for range maxChanges + 1 {
				r.Changed(KindPDB, "shop", "db")
			}
		}, object("web"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testclock.NewFakePassiveClock(time.Now())
			retries := NewRetries(clock, unknownPod)
			retries.Changed(KindPDB, "shop", "web")

			asked := retries.Now()
			test.meanwhile(retries)
			retries.Refuse(waiting, asked, clock.Now().Add(time.Hour), test.dependsOn)

			if due := retries.Due(RetryBurst, false); len(due) != test.want {
				t.Errorf("%d pods are due, want %d", len(due), test.want)
			}
		})
	}
}

func TestRefusedPodsOfOneNamespaceDoNotKeepOthersFromBeingTriedAgain(t *testing.T) {
	for name, refuse := range map[string]func(*Retries, wire.PodRef){
		"by objects alone":  func(r *Retries, p wire.PodRef) { r.ModeHeld(p, r.Now()) },
		"by a late time":    func(r *Retries, p wire.PodRef) { r.Postpone(p, r.clock.Now().Add(time.Hour)) },
		"without a planner": func(r *Retries, p wire.PodRef) { r.PlanUnavailable(p, r.clock.Now().Add(time.Hour)) },
	} {
		for kind, remember := range map[string]func(*Retries, wire.PodRef){
			"try at":      func(r *Retries, p wire.PodRef) { r.TryAt(p, r.clock.Now().Add(time.Second)) },
			"unreachable": func(r *Retries, p wire.PodRef) { r.PlanUnavailable(p, time.Time{}) },
		} {
			now := testclock.NewFakePassiveClock(time.Now())
			r := NewRetries(now, unknownPod)
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
			now.SetTime(now.Now().Add(PlanUnavailableMax))

			if due := r.Due(RetryBurst, false); len(due) != 1 || due[0] != of("other", 0) {
				t.Errorf("%s, %s: due: %v", name, kind, due)
			}
			if r.Count() != maxRefused-1 && r.Count() != maxRefused {
				t.Errorf("%s, %s: %d are remembered", name, kind, r.Count())
			}
		}
	}
}
