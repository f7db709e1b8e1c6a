package memory

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"makeway.dev/makeway/plugin/wire"
)

func TestHowLongAVictimIsLeftOut(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	for name, test := range map[string]struct {
		outcome wire.VictimOutcome
		want    []time.Duration
	}{
		"refused by the API server":   {wire.VictimOutcome{Result: VictimFailed, Reason: "Forbidden"}, []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute}},
		"spared by the evictor":       {wire.VictimOutcome{Result: victimExempt, Reason: "protected"}, []time.Duration{10 * time.Second, 20 * time.Second}},
		"kept by its budget for now":  {wire.VictimOutcome{Result: VictimFailed, Reason: "budget"}, []time.Duration{10 * time.Second, 20 * time.Second}},
		"not deleted in time":         {wire.VictimOutcome{Result: VictimFailed, Reason: "server-error"}, []time.Duration{0, 0}},
		"deleted before another fail": {wire.VictimOutcome{Result: "deleted"}, []time.Duration{0}},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewUnevictable(clock)
			test.outcome.UID = "a"
			for _, want := range test.want {
				news := r.Take("p", "default", []wire.VictimOutcome{test.outcome})
				victims, until, _ := r.Of("p")
				if want == 0 {
					if news != 0 || len(victims) != 0 {
						t.Fatalf("left out: %v", victims)
					}
					continue
				}
				if news != 1 || len(victims) != 1 || until.Sub(clock.Now()) != want {
					t.Fatalf("%d new; left out for %s, want %s", news, until.Sub(clock.Now()), want)
				}
				if again := r.Take("p", "default", nil); again != 0 {
					t.Errorf("%d new of none", again)
				}
				clock.SetTime(until)
			}
		})
	}
}

func TestAVictimThatFailsThoughItWasLeftOutIsTheNodesFault(t *testing.T) {
	r := NewUnevictable(clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)))
	failed := []wire.VictimOutcome{{UID: "a", Result: VictimFailed, Reason: "Forbidden"}}
	r.Take("p", "default", failed)

	if news := r.Take("p", "default", failed); news != 0 {
		t.Errorf("%d new", news)
	}
}

func TestAsManyVictimsAreLeftOutAsARequestMayName(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	r := NewUnevictable(clock)
	for i := range 3 * wire.MostRefusedVictims {
		clock.SetTime(clock.Now().Add(time.Millisecond))
		r.Take("p", "default", []wire.VictimOutcome{{UID: fmt.Sprintf("%03d", i), Result: VictimFailed, Reason: "Forbidden"}})
	}

	victims, _, _ := r.Of("p")
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
		"pod-group: payroll/month is evicted whole or not at all, and the order lacks payroll/month-3":      "pod-group",
		"hard-budget: PodDisruptionBudget payroll/payroll allows no more":                                   "pod-group",
	} {
		cause := causeOf(wire.VictimOutcome{Namespace: "payroll", Name: "payroll-0", Result: victimExempt, Reason: "pod-group", Message: message}, "shop")
		if cause != want {
			t.Errorf("%q, want %q", cause, want)
		}
	}
}
