package memory

import (
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"makeway.dev/makeway/plugin/internal/telemetry"
)

func TestTheOrderBreakerLetsOneOrderProbeAfterAWhileThatDoubles(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	b := newOrderBreaker(clock, time.Minute)
	open := func() bool { why, _ := b.isOpen(); return why != "" }
	step := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }

	b.Futile("1", NotStarted)
	if open() {
		t.Fatal("one order is enough to open it")
	}
	b.Futile("2", NotStarted)
	if !open() {
		t.Fatal("two in a row are not enough to open it")
	}
	b.Futile("3", NotStarted) // begun before it opened
	if _, until := b.isOpen(); until != clock.Now().Add(futileFirst) {
		t.Errorf("it is open for %s", until.Sub(clock.Now()))
	}
	for _, wait := range []time.Duration{futileFirst, 2 * futileFirst, 4 * futileFirst, 8 * futileFirst, futileLongest, futileLongest} {
		if step(wait - time.Millisecond); !open() {
			t.Fatalf("no longer open before %s", wait)
		}
		if step(time.Millisecond); open() {
			t.Fatalf("no probe after %s", wait)
		}
		b.begin("probe")
		if !open() {
			t.Fatal("more than one order probes")
		}
		b.Futile("probe", NotStarted)
	}

	step(futileLongest)
	b.begin("probe")
	if closed := b.Answered(); !closed || open() {
		t.Error("an outcome does not close it")
	}
	if state, _ := b.State(); state != telemetry.Closed {
		t.Errorf("state %d", state)
	}
}

func TestTheOrderBreakerTellsTheStreamFromTheEvictors(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	for name, test := range map[string]struct {
		fails  []Futility
		end    func(*OrderBreaker) bool
		closed bool
	}{
		"stored again":                           {[]Futility{NotStored, NotStored}, (*OrderBreaker).Stored, true},
		"stored, but no evictor answered":        {[]Futility{NotStarted, NotStarted}, (*OrderBreaker).Stored, false},
		"an outcome says nothing of the storing": {[]Futility{NotStored, NotStored}, (*OrderBreaker).Answered, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newOrderBreaker(clock, time.Minute)
			for i, why := range test.fails {
				b.Futile(fmt.Sprint(i), why)
			}
			if closed := test.end(b); closed != test.closed {
				t.Errorf("closed %t, want %t", closed, test.closed)
			}
		})
	}
	t.Run("one of each opens nothing", func(t *testing.T) {
		b := newOrderBreaker(clock, time.Minute)
		b.Futile("1", NotStarted)
		b.Futile("2", NotStored)
		if why, _ := b.isOpen(); why != "" {
			t.Errorf("open: %s", why)
		}
	})
}

func TestAProbeWhoseEndIsNotToldIsGivenUp(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	for name, end := range map[string]func(*OrderBreaker){
		"its time is over":          func(b *OrderBreaker) { clock.SetTime(clock.Now().Add(b.lasts)) },
		"its pod needs no room now": func(b *OrderBreaker) { b.Undecided("probe") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newOrderBreaker(clock, time.Minute)
			b.Futile("1", NotStarted)
			b.Futile("2", NotStarted)
			clock.SetTime(clock.Now().Add(futileFirst))
			b.begin("probe")

			end(b)

			if why, _ := b.isOpen(); why != "" {
				t.Errorf("no other order may probe: %s", why)
			}
		})
	}
}

func TestAProbeThatEndsForItsPodsReasonsLetsAnotherProbe(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	b := newOrderBreaker(clock, time.Minute)
	b.Futile("1", RefusedForAll)
	b.Futile("2", RefusedForAll)
	clock.SetTime(clock.Now().Add(futileFirst))
	b.begin("probe")
	if closed := b.Answered(); closed {
		t.Error("that evictors answer closes it, though they refuse")
	}

	b.Undecided("probe")

	if why, _ := b.isOpen(); why != "" {
		t.Errorf("no other order may probe: %s", why)
	}
}

func TestRefusalsThatAreNotInARowOpenNothing(t *testing.T) {
	b := newOrderBreaker(clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)), time.Minute)
	for i := range 4 {
		b.Futile(fmt.Sprint(i), RefusedForAll)
		b.CarriedOut()
	}

	if why, _ := b.isOpen(); why != "" {
		t.Errorf("open: %s", why)
	}
}

func TestNamespacesAreForgottenOnceTheirRefusalsAreOld(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	n := newNamespaceBreakers(clock, time.Minute)
	for i := range maxShutNamespaces + 5 {
		n.Refused(fmt.Sprint("ns-", i), fmt.Sprint(i))
	}
	if len(n.by) != maxShutNamespaces {
		t.Errorf("%d are remembered", len(n.by))
	}

	clock.SetTime(clock.Now().Add(shutForgotten))
	n.Refused("late", "1")
	n.Refused("late", "2")

	if why, _ := n.isOpen("late"); why != RefusedForNamespace || len(n.by) != 1 {
		t.Errorf("%q, %d are remembered", why, len(n.by))
	}
	if !n.CarriedOut("late") || len(n.by) != 0 {
		t.Error("an order that is carried out does not close it")
	}
}
