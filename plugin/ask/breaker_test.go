package ask

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"makeway.dev/makeway/plugin/internal/telemetry"
)

// away is a breaker that one question without an answer has opened.
func away() (*Breaker, *testingclock.FakePassiveClock) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := NewBreaker(clock, nil)
	b.Allow()
	b.Silent(clock.Now())
	return b, clock
}

func TestThePlannerIsAwayAfterAQuestionWithoutAnyAnswer(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := NewBreaker(clock, nil)
	first := clock.Now()
	b.Allow()
	clock.SetTime(first.Add(time.Millisecond))
	b.Allow()
	b.Succeeded()
	b.Silent(first)
	if b.Away() || !b.Allow() {
		t.Error("another question was answered meanwhile")
	}

	b.Silent(clock.Now())

	if !b.Away() || b.Allow() {
		t.Error("it is asked, and waited for")
	}
	clock.SetTime(clock.Now().Add(breakerFirstOpen))
	if !b.Allow() || !b.Away() {
		t.Error("the probe is waited for, or there is none")
	}
	if b.Succeeded(); b.Away() {
		t.Error("it has answered")
	}
}

func TestQuestionsFromBeforeThePlannerWasAwayDoNotPutTheProbeOff(t *testing.T) {
	b, clock := away()
	clock.SetTime(clock.Now().Add(breakerFirstOpen / 2))
	b.Silent(time.Unix(0, 0))

	clock.SetTime(time.Unix(0, 0).Add(breakerFirstOpen))

	if !b.Allow() {
		t.Error("no probe")
	}
}

func TestAnOpenBreakerLetsOneProbeThroughAndDoublesItsWait(t *testing.T) {
	b, clock := away()
	now := clock.Now()

	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		wait *= time.Second
		clock.SetTime(now.Add(wait - time.Millisecond))
		if b.Allow() {
			t.Fatalf("allowed before %s were over", wait)
		}
		now = now.Add(wait)
		clock.SetTime(now)
		if !b.Allow() {
			t.Fatalf("no probe after %s", wait)
		}
		if b.Allow() {
			t.Fatal("two probes at once")
		}
		b.Silent(clock.Now())
	}
}

func TestASuccessfulProbeClosesTheBreaker(t *testing.T) {
	b, clock := away()
	clock.SetTime(clock.Now().Add(time.Second))
	b.Allow()

	b.Succeeded()

	if state, _ := b.Current(); state != telemetry.Closed || !b.Allow() || !b.Allow() {
		t.Errorf("state %d, want closed", state)
	}
}

func TestALostProbeDoesNotKeepTheBreakerShutForEver(t *testing.T) {
	b, clock := away()
	clock.SetTime(clock.Now().Add(time.Second))
	b.Allow() // neither succeeded nor failed is called: its caller panicked

	clock.SetTime(clock.Now().Add(MaxPlanTimeout))

	if !b.Allow() {
		t.Error("no further probe")
	}
}

func TestWhileThePlannerDoesNotAnswerOneAttemptGoesAhead(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := NewBreaker(clock, nil)
	expect := func(when string, want int) {
		t.Helper()
		if got := b.Attempts(50); got != want {
			t.Errorf("%s: %d attempts, not %d", when, got, want)
		}
	}

	expect("closed", 50)
	b.Allow()
	b.Silent(clock.Now())
	expect("open", 0)
	clock.SetTime(clock.Now().Add(breakerFirstOpen))
	expect("when it may be asked again", 1)
	b.Allow()
	expect("while that is asked", 0)
	b.Succeeded()
	expect("after an answer", 50)
}

func TestWhereNoPlannerListensRequestsGoOnAndOnePodIsTriedAgainEachSecond(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := NewBreaker(clock, nil)
	for range 20 {
		if !b.Allow() {
			t.Fatal("a request that costs nothing is held back")
		}
		b.failed()
	}
	if state, until := b.Current(); state != telemetry.Open || until != clock.Now().Add(breakerFirstOpen) || b.Attempts(50) != 0 {
		t.Errorf("state %d until %s, %d attempts", state, until, b.Attempts(50))
	}
	clock.SetTime(clock.Now().Add(breakerFirstOpen))
	if b.Attempts(50) != 1 {
		t.Errorf("%d attempts a second later, want 1", b.Attempts(50))
	}

	b.Allow()
	b.Silent(clock.Now()) // one listens by now, and hangs

	if b.Allow() {
		t.Error("a request that costs a time-out is not held back")
	}
}
