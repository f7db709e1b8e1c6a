package bridge

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

func TestTheBreakerOpensAfterThreeFailuresInARow(t *testing.T) {
	b := newBreaker(testingclock.NewFakePassiveClock(time.Unix(0, 0)))

	for range 2 {
		if !b.allow() {
			t.Fatal("closed too early")
		}
		b.failed()
	}
	b.allow()
	b.succeeded()
	for range 3 {
		if !b.allow() {
			t.Fatal("a success did not start the count anew")
		}
		b.failed()
	}

	if b.allow() {
		t.Error("open, but a request was allowed")
	}
}

func TestAnOpenBreakerLetsOneProbeThroughAndDoublesItsWait(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := newBreaker(clock)
	for range 3 {
		b.allow()
		b.failed()
	}
	now := clock.Now()

	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		wait *= time.Second
		clock.SetTime(now.Add(wait - time.Millisecond))
		if b.allow() {
			t.Fatalf("allowed before %s were over", wait)
		}
		now = now.Add(wait)
		clock.SetTime(now)
		if !b.allow() {
			t.Fatalf("no probe after %s", wait)
		}
		if b.allow() {
			t.Fatal("two probes at once")
		}
		b.failed()
	}
}

func TestASuccessfulProbeClosesTheBreaker(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := newBreaker(clock)
	for range 3 {
		b.allow()
		b.failed()
	}
	clock.SetTime(clock.Now().Add(time.Second))
	b.allow()

	b.succeeded()

	if state, _ := b.current(); state != breakerClosed || !b.allow() || !b.allow() {
		t.Errorf("state %d, want closed", state)
	}
}

func TestALostProbeDoesNotKeepTheBreakerShutForEver(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := newBreaker(clock)
	for range 3 {
		b.allow()
		b.failed()
	}
	clock.SetTime(clock.Now().Add(time.Second))
	b.allow() // neither succeeded nor failed is called: its caller panicked

	clock.SetTime(clock.Now().Add(maxPlanTimeout))

	if !b.allow() {
		t.Error("no further probe")
	}
}
