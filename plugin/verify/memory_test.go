package verify

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestEachCauseIsSaidWithTheNumberOfItsNodes(t *testing.T) {
	failed := map[string]Failure{"gone": {Cause: CauseNodeGone}}
	for i := range 12 {
		failed[fmt.Sprint(i)] = Failure{CauseFilters, "VolumeBinding"}
	}
	for i := range 3 {
		failed[fmt.Sprint("many", i)] = Failure{Cause: CauseTooMany}
	}

	want := "12 node(s) failed the scheduler's filters (VolumeBinding) with all removable pods gone, 3 node(s) needed more victims than are allowed, 1 node(s) no longer existed"
	if got := Summary(failed); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWhatFailedIsForgottenWithTimeAndWhereTheNodeChanges(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	memory := NewFailures()
	generations := map[string]int64{"a": 1, "b": 1}
	of := func() map[string]Failure {
		return memory.Of(clock.Now(), "p", func(node string) (int64, bool) { g, ok := generations[node]; return g, ok })
	}
	memory.Add(clock.Now(), "p", "a", Failure{Cause: CauseFilters}, 1)
	memory.Add(clock.Now(), "p", "b", Failure{Cause: CauseFilters}, 1)
	if len(of()) != 2 {
		t.Fatalf("%v", of())
	}

	generations["a"]++
	if failed := of(); len(failed) != 1 || failed["b"].Cause != CauseFilters {
		t.Errorf("after a change of a: %v", failed)
	}
	clock.SetTime(clock.Now().Add(failureMemory))
	if failed := of(); len(failed) != 0 || memory.classes["p"] != nil || memory.total != 0 {
		t.Errorf("%s later: %v, %d in all", failureMemory, failed, memory.total)
	}
}

func TestVerificationOfAllPodsTakesAFifthOfAnyMinuteAndOneTry(t *testing.T) {
	const try = time.Second
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	budget := Budget{}
	type spell struct{ from, to time.Time }
	var spells []spell
	// A pod of another class comes every 100 ms, and each takes as long as it may.
	for end := clock.Now().Add(5 * time.Minute); clock.Now().Before(end); clock.SetTime(clock.Now().Add(100 * time.Millisecond)) {
		if !budget.IsOpen(clock.Now()) {
			continue
		}
		from := clock.Now()
		clock.SetTime(from.Add(try))
		budget.Spent(clock.Now(), try)
		spells = append(spells, spell{from, clock.Now()})
	}

	if len(spells) < 50 {
		t.Errorf("%d tries in five minutes: the share is not used", len(spells))
	}
	for _, first := range spells {
		var took time.Duration
		for _, one := range spells {
			if from, to := one.from, one.to; !from.Before(first.from) && from.Before(first.from.Add(time.Minute)) {
				took += to.Sub(from)
			}
		}
		if most := time.Minute/share + try; took > most {
			t.Fatalf("%s of the minute from %s on, want at most %s", took, first.from, most)
		}
	}
}

func TestPodsOfOneClassShareWhatFailedAndOthersDoNot(t *testing.T) {
	replica := func(name string) *v1.Pod {
		p := pod(name, "", high, large).Label("app", "web").Label("apps.kubernetes.io/pod-index", name).Obj()
		p.Spec.Hostname = name
		p.Spec.Volumes = []v1.Volume{{Name: "kube-api-access-" + name}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "kube-api-access-" + name}}
		return p
	}
	of := ClassOf(replica("a"))
	for name, test := range map[string]struct {
		change func(*v1.Pod)
		same   bool
	}{
		"another replica":                    {change: func(*v1.Pod) {}, same: true},
		"another request":                    {change: func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = nil }},
		"another label":                      {change: func(p *v1.Pod) { p.Labels["app"] = "db" }},
		"another annotation":                 {change: func(p *v1.Pod) { p.Annotations = map[string]string{"device": "a100"} }},
		"another claim":                      {change: func(p *v1.Pod) { p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}} }},
		"another priority":                   {change: func(p *v1.Pod) { p.Spec.Priority = nil }},
		"a namespace of the same name space": {change: func(p *v1.Pod) { p.Namespace = "other" }},
	} {
		t.Run(name, func(t *testing.T) {
			p := replica("b")
			test.change(p)

			if same := ClassOf(p) == of; same != test.same {
				t.Errorf("of one class: %t, want %t", same, test.same)
			}
		})
	}
}

func TestWhatIsRememberedOfFailedNodesIsBounded(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	memory := NewFailures()
	for i := range 3 * maxFailures {
		if i%1000 == 0 {
			clock.SetTime(clock.Now().Add(time.Millisecond))
		}
		memory.Add(clock.Now(), fmt.Sprint(i/1000), fmt.Sprint(i), Failure{Cause: CauseFilters}, 1)
	}

	if memory.total > maxFailures || len(memory.classes) > maxFailures/1000+1 {
		t.Errorf("%d nodes of %d pods", memory.total, len(memory.classes))
	}
	if memory.classes["0"] != nil || memory.classes[fmt.Sprint(3*maxFailures/1000-1)] == nil {
		t.Error("the latest are not the ones that are kept")
	}
}
