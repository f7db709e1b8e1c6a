package ask

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"makeway.dev/makeway/plugin/internal/telemetry"
)

func TestTheBreakerOpensAfterThreeFailuresInARow(t *testing.T) {
	b := NewBreaker(testingclock.NewFakePassiveClock(time.Unix(0, 0)), time.Second)

	for range 2 {
		if !b.allow() {
			t.Fatal("closed too early")
		}
		b.Failed(100 * time.Millisecond)
	}
	b.allow()
	b.succeeded()
	for range 3 {
		if !b.allow() {
			t.Fatal("a success did not start the count anew")
		}
		b.Failed(100 * time.Millisecond)
	}

	if b.allow() {
		t.Error("open, but a request was allowed")
	}
}

func TestAnOpenBreakerLetsOneProbeThroughAndDoublesItsWait(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := NewBreaker(clock, 100*time.Millisecond)
	for range 3 {
		b.allow()
		b.Failed(100 * time.Millisecond)
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
		b.Failed(100 * time.Millisecond)
	}
}

func TestASuccessfulProbeClosesTheBreaker(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := NewBreaker(clock, 100*time.Millisecond)
	for range 3 {
		b.allow()
		b.Failed(100 * time.Millisecond)
	}
	clock.SetTime(clock.Now().Add(time.Second))
	b.allow()

	b.succeeded()

	if state, _ := b.Current(); state != telemetry.Closed || !b.allow() || !b.allow() {
		t.Errorf("state %d, want closed", state)
	}
}

func TestALostProbeDoesNotKeepTheBreakerShutForEver(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := NewBreaker(clock, 100*time.Millisecond)
	for range 3 {
		b.allow()
		b.Failed(100 * time.Millisecond)
	}
	clock.SetTime(clock.Now().Add(time.Second))
	b.allow() // neither succeeded nor failed is called: its caller panicked

	clock.SetTime(clock.Now().Add(MaxPlanTimeout))

	if !b.allow() {
		t.Error("no further probe")
	}
}

func TestAPlannerThatAnswersNowAndThenCostsATwentiethOfTheTime(t *testing.T) {
	const timeout, run = 100 * time.Millisecond, 10 * time.Minute
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := NewBreaker(clock, timeout)
	begun, lost, asked, answered := clock.Now(), time.Duration(0), 0, 0
	for clock.Since(begun) < run {
		if !b.allow() {
			clock.SetTime(clock.Now().Add(10 * time.Millisecond))
			continue
		}
		if asked++; asked%2 == 0 {
			answered++
			b.succeeded()
			clock.SetTime(clock.Now().Add(time.Millisecond))
			continue
		}
		clock.SetTime(clock.Now().Add(timeout))
		b.Failed(timeout)
		lost += timeout
	}

	if bound := BreakerThreshold*timeout + run/breakerShare; lost > bound {
		t.Errorf("lost %s, want at most %s", lost, bound)
	}
	if want := int(run / breakerShare / timeout / 2); answered < want {
		t.Errorf("%d answers, want at least %d: it is still asked", answered, want)
	}
}

func TestHoweverMuchFailuresHaveCostAProbeGoesAtTheLatestAfterTheLongestWait(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := NewBreaker(clock, 100*time.Millisecond)
	for range 10 {
		if !b.allow() {
			t.Fatalf("no probe after %s", breakerLongest)
		}
		b.Failed(40 * time.Second)
		clock.SetTime(clock.Now().Add(breakerLongest))
	}
	b.allow()
	b.succeeded()
	b.Failed(time.Millisecond)

	if _, until := b.Current(); until.Sub(clock.Now()) > breakerLongest {
		t.Errorf("not asked for %s", until.Sub(clock.Now()))
	}
}

func TestFailuresThatCostNothingDoNotUseTheShareUp(t *testing.T) {
	b := NewBreaker(testingclock.NewFakePassiveClock(time.Unix(0, 0)), 100*time.Millisecond)
	for range 100 {
		if !b.allow() {
			t.Fatal("not allowed")
		}
		b.Failed(0)
		b.allow()
		b.succeeded()
	}
}

func TestWhileThePlannerDoesNotAnswerOneAttemptGoesAhead(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := NewBreaker(clock, 100*time.Millisecond)
	expect := func(when string, want int) {
		t.Helper()
		if got := b.Attempts(50); got != want {
			t.Errorf("%s: %d attempts, not %d", when, got, want)
		}
	}

	expect("closed", 50)
	for range 3 {
		b.allow()
		b.Failed(100 * time.Millisecond)
	}
	expect("open", 0)
	clock.SetTime(clock.Now().Add(breakerFirstOpen))
	expect("when it may be asked again", 1)
	b.allow()
	expect("while that is asked", 0)
	b.succeeded()
	expect("after an answer", 50)
}

func TestWhereNoPlannerListensRequestsGoOnAndOnePodIsTriedAgainEachSecond(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := NewBreaker(clock, 100*time.Millisecond)
	for range 20 {
		if !b.allow() {
			t.Fatal("a request that costs nothing is held back")
		}
		b.unheard()
	}
	if state, until := b.Current(); state != telemetry.Open || until != clock.Now().Add(breakerFirstOpen) || b.Attempts(50) != 0 {
		t.Errorf("state %d until %s, %d attempts", state, until, b.Attempts(50))
	}
	clock.SetTime(clock.Now().Add(breakerFirstOpen))
	if b.Attempts(50) != 1 {
		t.Errorf("%d attempts a second later, want 1", b.Attempts(50))
	}

	b.allow()
	b.Failed(100 * time.Millisecond) // one listens by now, and hangs

	if b.allow() {
		t.Error("a request that costs a time-out is not held back")
	}
}
