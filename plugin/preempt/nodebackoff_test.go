package preempt

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"makeway.dev/makeway/plugin/wire"
)

func TestANodeIsLeftOutLongerEachTimeAnOrderFailsThere(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	a := newNodeBackoff(clock)

	for _, want := range []time.Duration{10, 20, 40} {
		a.failed("p", "n1")

		_, until := a.nodes("p")

		if got := until.Sub(clock.Now()); got != want*time.Second {
			t.Errorf("left out for %s, want %ds", got, want)
		}
		clock.SetTime(until)
		if out, _ := a.nodes("p"); len(out) != 0 {
			t.Errorf("still left out: %v", out)
		}
	}
}

func TestOnlyWhatLiesWithTheNodeKeepsItOut(t *testing.T) {
	for _, test := range []struct {
		result, reason string
		want           bool
	}{
		{wire.ResultFailed, "delete-refused", true},
		{wire.ResultFailed, reasonAwaitedFailed, false},
		{wire.ResultRefused, reasonVictimSpared, true},
		{wire.ResultRefused, "stale-epoch", false},
		{wire.ResultExpired, "expired", false},
		{wire.ResultCancelled, "nomination-moved", false},
	} {
		if got := nodesFault(&wire.Outcome{Result: test.result, Reason: test.reason}); got != test.want {
			t.Errorf("%s, %s: %t", test.result, test.reason, got)
		}
	}
}
