package memory

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

func TestANodeIsLeftOutLongerEachTimeAnOrderFailsThere(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	a := newNodeBackoff(clock)

	for _, want := range []time.Duration{10, 20, 40} {
		a.Failed("p", "n1")

		_, until := a.Nodes("p")

		if got := until.Sub(clock.Now()); got != want*time.Second {
			t.Errorf("left out for %s, want %ds", got, want)
		}
		clock.SetTime(until)
		if out, _ := a.Nodes("p"); len(out) != 0 {
			t.Errorf("still left out: %v", out)
		}
	}
}
