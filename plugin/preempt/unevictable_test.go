package preempt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

const forbidden = `403 Forbidden: pods "a" is forbidden: ValidatingAdmissionPolicy 'keep' denied request: this pod may not be deleted`

// equalVictims is a world in which p fits n1 without a or without b, and whose planner takes the first that it is not asked to
// leave out.
func equalVictims(t *testing.T) (*world, *v1.Pod) {
	t.Helper()
	p := pod("p", "", high, medium).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", low, medium).Obj(), pod("b", "n1", low, medium).Obj(), pod("c", "n1", high, small).Obj())
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		left := slices.DeleteFunc([]string{"a", "b"}, func(uid string) bool { return slices.Contains(request.RefusedVictims, uid) })
		if len(left) == 0 {
			return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: "NotEnoughRoom", Message: "too little room"}}, nil
		}
		return &wire.PlanReply{Candidates: []wire.Candidate{candidate("n1", append([]string{"!" + left[0]}, left[1:]...)...)}}, nil
	}
	return w, p
}

// failedOutcome is that of an order whose victims could not be evicted.
func failedOutcome(order *wire.EvictionOrder, reason string) *wire.Outcome {
	outcome := &wire.Outcome{
		OrderID: order.OrderID, Kind: "pod", ClusterUID: order.ClusterUID, Epoch: order.Fence.Epoch, Result: wire.ResultFailed, Reason: "delete-refused", Evictor: "test",
		StartedAt: order.CreatedAt, FinishedAt: wire.At(time.Now()), PreemptorUID: order.Preemptor.UID, Node: order.Node,
	}
	for _, v := range order.Victims {
		outcome.Victims = append(outcome.Victims, wire.VictimOutcome{Namespace: v.Namespace, Name: v.Name, UID: v.UID, Result: victimFailed, Reason: reason, Message: forbidden})
	}
	return outcome
}

// fails ends an order whose victims could not be evicted.
func (w *world) fails(order *wire.EvictionOrder, reason string) {
	w.t.Helper()
	w.show(st.MakePod().Namespace("default").Name(order.Preemptor.Name).UID(order.Preemptor.UID).Priority(high).Req(medium).SchedulerName("default-scheduler").Obj(), "")
	w.tell(failedOutcome(order, reason))
	w.eventually("the order is given up", func() bool { return w.entry("p") == nil })
}

func TestWhereOneOfTwoEqualVictimsCannotBeEvictedTheOtherGoesNext(t *testing.T) {
	w, p := equalVictims(t)
	expectVictims(t, w.nominated(p, "n1"), "a")
	w.show(p, "n1")
	w.fails(w.order(1), "Forbidden")

	expectVictims(t, w.nominated(p, "n1"), "b")

	if last := w.bus.requests[len(w.bus.requests)-1]; !slices.Equal(last.RefusedVictims, []string{"a"}) {
		t.Errorf("the planner is asked to leave out %v", last.RefusedVictims)
	}
}

func TestAnOrderIsNotRevertedBeforeItsVictimsAreKnownAsImpossibleToEvict(t *testing.T) {
	w, p := equalVictims(t)
	w.nominated(p, "n1")
	w.show(p, "n1")
	order, engine := w.order(1), w.plugin.engine
	engine.unevictable.mu.Lock() // they cannot be noted yet
	w.tell(failedOutcome(order, "Forbidden"))
	w.eventually("the order has failed", func() bool {
		entry := w.entry("p")
		return entry == nil || entry.Phase.Reverts()
	})

	engine.inflight.NominatedTo("p", "")
	activations, _ := engine.inflight.Due(time.Now().Add(orders.RevertWait))

	if entry := w.entry("p"); len(activations) > 0 || entry == nil || entry.Phase != orders.Reverting {
		t.Errorf("activations %+v, entry %+v", activations, entry)
	}
	engine.unevictable.mu.Unlock()
	w.eventually("the order is given up", func() bool { return w.entry("p") == nil })
}

func TestAVictimThatCannotBeEvictedIsNotTakenThoughThePlannerNamesItAgain(t *testing.T) {
	w, p := equalVictims(t)
	w.bus.plan = answers(candidate("n1", "!a", "b"))
	w.plugin.engine.unevictable.take("p", "default", []wire.VictimOutcome{{UID: "a", Result: victimFailed, Reason: "Forbidden"}})

	expectVictims(t, w.nominated(p, "n1"), "b")
}

func TestAPodWhoseVictimsCannotBeEvictedSaysWhyAndIsTriedAgainLater(t *testing.T) {
	w, p := equalVictims(t)
	for _, uid := range []string{"a", "b"} {
		w.plugin.engine.unevictable.take("p", "default", []wire.VictimOutcome{{Namespace: "default", Name: uid, UID: uid, Result: victimFailed, Reason: "Forbidden", Message: forbidden}})
	}

	_, status := w.cycle(p)

	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "2 pods are left out for now, as impossible to evict: 403 Forbidden") ||
		!strings.Contains(status.Message(), "this pod may not be deleted") {
		t.Errorf("status %v", status)
	}
	w.plugin.engine.retry.mu.Lock()
	defer w.plugin.engine.retry.mu.Unlock()
	entry := w.plugin.engine.retry.pods["p"]
	if entry == nil || time.Until(entry.at) < unevictableInitial/2 || time.Until(entry.at) > unevictableInitial {
		t.Errorf("tried again at %+v", entry)
	}
}

func TestHowLongAVictimIsLeftOut(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	for name, test := range map[string]struct {
		outcome wire.VictimOutcome
		want    []time.Duration
	}{
		"refused by the API server":   {wire.VictimOutcome{Result: victimFailed, Reason: "Forbidden"}, []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute}},
		"spared by the evictor":       {wire.VictimOutcome{Result: victimExempt, Reason: "protected"}, []time.Duration{10 * time.Second, 20 * time.Second}},
		"kept by its budget for now":  {wire.VictimOutcome{Result: victimFailed, Reason: "budget"}, []time.Duration{10 * time.Second, 20 * time.Second}},
		"not deleted in time":         {wire.VictimOutcome{Result: victimFailed, Reason: "server-error"}, []time.Duration{0, 0}},
		"deleted before another fail": {wire.VictimOutcome{Result: "deleted"}, []time.Duration{0}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newUnevictable(clock)
			test.outcome.UID = "a"
			for _, want := range test.want {
				news := r.take("p", "default", []wire.VictimOutcome{test.outcome})
				victims, until, _ := r.of("p")
				if want == 0 {
					if news != 0 || len(victims) != 0 {
						t.Fatalf("left out: %v", victims)
					}
					continue
				}
				if news != 1 || len(victims) != 1 || until.Sub(clock.Now()) != want {
					t.Fatalf("%d new; left out for %s, want %s", news, until.Sub(clock.Now()), want)
				}
				if again := r.take("p", "default", nil); again != 0 {
					t.Errorf("%d new of none", again)
				}
				clock.SetTime(until)
			}
		})
	}
}

func TestAVictimThatFailsThoughItWasLeftOutIsTheNodesFault(t *testing.T) {
	r := newUnevictable(clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)))
	failed := []wire.VictimOutcome{{UID: "a", Result: victimFailed, Reason: "Forbidden"}}
	r.take("p", "default", failed)

	if news := r.take("p", "default", failed); news != 0 {
		t.Errorf("%d new", news)
	}
}

func TestAsManyVictimsAreLeftOutAsARequestMayName(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	r := newUnevictable(clock)
	for i := range 3 * wire.MostRefusedVictims {
		clock.SetTime(clock.Now().Add(time.Millisecond))
		r.take("p", "default", []wire.VictimOutcome{{UID: fmt.Sprintf("%03d", i), Result: victimFailed, Reason: "Forbidden"}})
	}

	victims, _, _ := r.of("p")
	if len(victims) != wire.MostRefusedVictims || victims[0] != fmt.Sprintf("%03d", 2*wire.MostRefusedVictims) {
		t.Errorf("%d, from %s", len(victims), victims[0])
	}
}

func TestTheCauseOfAConditionNamesNoVictim(t *testing.T) {
	cause := causeOf(wire.VictimOutcome{Name: "payroll-0", Message: `403 Forbidden: pods "payroll-0" is forbidden: ` + strings.Repeat("x", 500)}, "")

	if strings.Contains(cause, "payroll") || len(cause) > maxCauseBytes+len("…") || !strings.HasPrefix(cause, "403 Forbidden") {
		t.Errorf("%q", cause)
	}
}

func TestTheCauseOfAConditionTellsOfAnotherNamespaceNoMoreThanAStatus(t *testing.T) {
	for message, want := range map[string]string{
		`403 Forbidden: pods "payroll-0" is forbidden: policy payroll-stays of team payroll denied request`: "403 Forbidden",
		"pod-group: payroll/month goes whole or not at all, and the order lacks payroll/month-3":            "pod-group",
		"hard-budget: PodDisruptionBudget payroll/payroll allows no more":                                   "pod-group",
	} {
		cause := causeOf(wire.VictimOutcome{Namespace: "payroll", Name: "payroll-0", Result: victimExempt, Reason: "pod-group", Message: message}, "shop")
		if cause != want {
			t.Errorf("%q, want %q", cause, want)
		}
	}
}
