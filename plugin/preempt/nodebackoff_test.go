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

func TestTheFallbackPausesAfterItsThirdTryForAPodLongerEachTime(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	a := newNodeBackoff(clock)
	for range fallbackTries - 1 {
		a.fellBack("p")
		if _, times := a.pausedUntil("p"); times != 0 {
			t.Fatalf("paused after %d tries", times)
		}
	}

	for n, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		a.fellBack("p")
		clock.SetTime(clock.Now().Add(time.Hour)) // the pod is not tried before its victims have left

		until, times := a.pausedUntil("p")

		if times != fallbackTries+n || until.Sub(clock.Now()) != want*time.Minute {
			t.Errorf("paused for %s after %d tries, want %d min", until.Sub(clock.Now()), times, want)
		}
		clock.SetTime(until)
		if _, times := a.pausedUntil("p"); times != 0 {
			t.Error("still paused")
		}
	}
	if out, _ := a.nodes("p"); len(out) != 0 {
		t.Errorf("nodes left out that are not at fault: %v", out)
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
