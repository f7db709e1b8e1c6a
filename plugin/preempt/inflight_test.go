package preempt

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	testingclock "k8s.io/utils/clock/testing"

	"makeway.dev/makeway/plugin/queuegate"
	"makeway.dev/makeway/plugin/wire"
)

var start = time.Unix(1000, 0)

// at is a time some milliseconds after the start.
func at(milliseconds int) time.Time { return start.Add(time.Duration(milliseconds) * time.Millisecond) }

// order makes the entry of pod "p" with an order for node n1.
func order(id string, victims ...types.UID) *inFlightPreemption {
	e := &inFlightPreemption{
		orderID: id, node: "n1", preemptor: wire.PodRef{Namespace: "ns", Name: "p", UID: "p"},
		victims: victims, awaited: map[types.UID]string{}, remaining: map[types.UID]time.Time{},
		createdAt: start, opensAt: start.Add(time.Minute),
	}
	for _, v := range victims {
		e.remaining[v] = time.Time{}
	}
	return e
}

func of(pod string, e *inFlightPreemption) *inFlightPreemption {
	e.preemptor.Name, e.preemptor.UID = pod, pod
	return e
}

func awaiting(e *inFlightPreemption, victim types.UID, orderID string) *inFlightPreemption {
	e.awaited[victim] = orderID
	e.remaining[victim] = time.Time{}
	return e
}

func noteNothing(activation) {}
func notGone(types.UID) bool { return false }

// What a failed cycle's snapshot shows: every victim or none, or that the node does not help.
var (
	stillThere   = snapshotWith(true, false)
	notThere     = snapshotWith(false, false)
	unresolvable = snapshotWith(true, true)
)

func snapshotWith(there, unresolvable bool) failedCycle {
	return failedCycle{
		stillThere:   func(string, types.UID) bool { return there },
		unresolvable: func(string) bool { return unresolvable },
	}
}

// left has a victim be gone from the scheduler's cache.
func (f *inflight) left(victim types.UID) { f.deleted(victim, start.Add(-time.Second)) }

// gates reports whether PreEnqueue would hold a pod, and holds none.
func (f *inflight) gates(uid types.UID) bool { return f.byPod[uid].gated }

func (f *inflight) closed(uid types.UID, now time.Time) bool {
	_, _, closed := f.gate(uid, now)
	return closed
}

func expectWakes(t *testing.T, f *inflight, now time.Time, want ...activation) {
	t.Helper()
	got, _ := f.due(now)
	if len(got) != len(want) {
		t.Fatalf("activations %+v, want %+v", got, want)
	}
	for i := range want {
		if got[i].orderID != want[i].orderID || got[i].revert != want[i].revert {
			t.Errorf("activation %+v, want %+v", got[i], want[i])
		}
	}
}

func TestTheGateIsClosedFromTheNominationUntilTheOrderHasSucceeded(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a", "b"))
	f.commit("o", start.Add(time.Minute))
	expectWakes(t, f, at(5))
	if !f.gates("p") {
		t.Fatal("open without an outcome")
	}

	f.succeed("o", at(10), at(90000), notGone)

	expectWakes(t, f, at(10)) // nothing was held meanwhile: the scheduler's own events reach the pod
	if f.closed("p", at(10)) {
		t.Error("closed while the victims are leaving")
	}
}

func TestThePodIsActivatedOnceItsLastVictimHasLeft(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a", "b"))
	f.succeed("o", at(10), at(90000), notGone)
	f.left("a")
	expectWakes(t, f, at(20))

	f.left("b")

	expectWakes(t, f, at(20), activation{orderID: "o"})
	expectWakes(t, f, at(30))
}

// Of an event that comes while a pod is gated the queue tells it nothing, then or later.
func TestAPodThatWasHeldIsActivatedOnceWhenItsOrderHasSucceeded(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))
	f.closed("p", at(5)) // an event of the cluster would have brought it to a cycle

	f.succeed("o", at(10), at(90000), notGone)

	expectWakes(t, f, at(10), activation{orderID: "o"})
	expectWakes(t, f, at(20))
}

func TestAPodWhoseLastVictimHasJustLeftIsActivatedForThatAlone(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))
	f.closed("p", at(5))
	f.deleted("a", at(9))

	f.succeed("o", at(10), at(90000), notGone)

	expectWakes(t, f, at(10))
	expectWakes(t, f, at(9).Add(settle), activation{orderID: "o"})
	expectWakes(t, f, at(2000))
}

// settled has one order, whose victim a is leaving.
func settled() *inflight {
	f := newInflight()
	f.begin(order("o", "a"))
	f.succeed("o", at(0), at(90000), notGone)
	return f
}

func TestAPodThatFailsACycleWhileItsVictimsLeaveIsHeldForASecondAndThenLonger(t *testing.T) {
	f := settled()
	f.due(at(0))
	now := at(0)
	for _, hold := range []time.Duration{leavingHold, 2 * leavingHold, longestLeavingHold, longestLeavingHold} {
		if kind, orderID, node := f.refuse("p", now, stillThere); kind != endLeaving || orderID != "o" || node != "n1" {
			t.Fatalf("refused with %q for order %s on node %s", kind, orderID, node)
		}
		if _, next := f.due(now); !next.Equal(now.Add(hold)) {
			t.Errorf("the hold ends at %s, want %s", next, now.Add(hold))
		}
		expectWakes(t, f, now.Add(hold-time.Millisecond))
		if !f.closed("p", now.Add(hold-time.Millisecond)) {
			t.Errorf("open before %s", hold)
		}

		now = now.Add(hold)

		expectWakes(t, f, now, activation{orderID: "o"})
		if f.closed("p", now) {
			t.Errorf("closed after %s", hold)
		}
	}
}

func TestAPodThatWasNotTriedForAWhileIsHeldForASecondAgain(t *testing.T) {
	f := settled()
	f.due(at(0))
	f.refuse("p", at(0), stillThere)
	later := at(0).Add(leavingHold + longestLeavingHold)
	f.due(later)

	f.refuse("p", later, stillThere)

	if _, next := f.due(later); !next.Equal(later.Add(leavingHold)) {
		t.Errorf("the hold ends at %s, want %s", next, later.Add(leavingHold))
	}
}

func TestAHoldDuringWhichNothingHappenedActivatesNothing(t *testing.T) {
	f := settled()
	f.due(at(0))

	f.refuse("p", at(0), stillThere)

	expectWakes(t, f, at(0).Add(leavingHold))
	if f.closed("p", at(0).Add(leavingHold)) {
		t.Error("still held")
	}
}

func TestTheLastVictimsLeavingEndsAHold(t *testing.T) {
	f := settled()
	f.due(at(0))
	f.refuse("p", at(0), stillThere)

	f.deleted("a", at(100))

	expectWakes(t, f, at(100).Add(settle), activation{orderID: "o"})
	if f.closed("p", at(100).Add(settle)) {
		t.Error("still held")
	}
}

func TestAPodWhoseNodeDoesNotHelpAnyMoreMayPreemptElsewhere(t *testing.T) {
	f := settled()

	if kind, _, _ := f.refuse("p", at(10), unresolvable); kind != "" || f.hasOrder("o") {
		t.Errorf("refused with %q, known %t", kind, f.hasOrder("o"))
	}
}

func TestAPodThatLostItsNominationMayPreemptElsewhere(t *testing.T) {
	f := settled()
	f.nominatedTo("p", "")

	if kind, _, _ := f.refuse("p", at(10), stillThere); kind != "" || f.hasOrder("o") {
		t.Errorf("refused with %q, known %t", kind, f.hasOrder("o"))
	}
}

func TestAnOrderWithoutOutcomeIsInFlightWhereverItsNodeIs(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))
	f.commit("o", at(60000))

	if kind, _, _ := f.refuse("p", at(10), unresolvable); kind != endInFlight {
		t.Errorf("refused with %q", kind)
	}
}

func TestVictimsThatLeftBeforeTheOutcomeAreNotWaitedFor(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))
	f.left("a")
	expectWakes(t, f, at(5))

	f.succeed("o", at(10), at(90000), notGone)

	expectWakes(t, f, at(10), activation{orderID: "o"})
}

func TestAPodThatTheInformerDeletedCountsAsGoneAfterAMoment(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))
	f.succeed("o", at(10), at(90000), notGone)
	f.deleted("a", at(100))

	_, next := f.due(at(100))

	if !next.Equal(at(100).Add(settle)) {
		t.Errorf("to be asked again at %s, want %s", next, at(100).Add(settle))
	}
	expectWakes(t, f, next.Add(-time.Millisecond))
	expectWakes(t, f, next, activation{orderID: "o"})
}

func TestVictimsThatTheInformerNeverHadAreGone(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))

	f.succeed("o", at(10), at(90000), func(types.UID) bool { return true })

	expectWakes(t, f, at(10).Add(settle), activation{orderID: "o"})
}

func TestAPreemptorIsLetGoWhenItsVictimsDoNotLeaveInTime(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))
	f.succeed("o", at(10), at(90000), notGone)
	expectWakes(t, f, at(89999))

	if f.closed("p", at(90000)) {
		t.Error("closed at the deadline")
	}
	expectWakes(t, f, at(90000), activation{orderID: "o"})
	if kind, _, _ := f.refuse("p", at(90001), stillThere); kind != "" {
		t.Errorf("refused a new order: %s", kind)
	}
}

func TestAnOrderWithoutOutcomeIsGivenUpAfterItsTime(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))
	f.commit("o", at(62000))
	expectWakes(t, f, at(61999))

	if f.closed("p", at(62000)) {
		t.Error("the gate did not open by itself")
	}
	expectWakes(t, f, at(62000), activation{orderID: "o", revert: true})
}

func TestAFailedOrderIsRevertedOnceAndItsGateOpensAfterwards(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))

	var w activation
	ok := f.fail("o", "delete refused", at(10), 0, func(failed activation) { w = failed })

	if !ok || !w.revert {
		t.Errorf("activation %+v, known %t", w, ok)
	}
	if again := f.fail("o", "delete refused", at(10), 0, func(activation) { t.Error("noted twice") }); again {
		t.Error("failed twice")
	}
	expectWakes(t, f, at(10), activation{orderID: "o", revert: true})
	expectWakes(t, f, at(20))
	if !f.closed("p", at(20)) {
		t.Fatal("the gate opened before the nomination was deleted")
	}
	if kind, _, _ := f.refuse("p", at(20), notThere); kind != endInFlight {
		t.Errorf("a cycle meanwhile is refused with %q", kind)
	}
	f.finish("o")
	if f.closed("p", at(20)) || len(f.byPod) != 0 {
		t.Error("still gated")
	}
}

func TestARevertWaitsUntilTheFailureIsNoted(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))

	f.fail("o", "delete refused", at(10), 500*time.Millisecond, func(activation) {
		f.nominatedTo("p", "")
		expectWakes(t, f, at(1000))
	})

	expectWakes(t, f, at(1000), activation{orderID: "o", revert: true})
}

func TestARevertWaitsForTheAPIToShowTheNominationGone(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))
	f.fail("o", "delete refused", at(10), 500*time.Millisecond, noteNothing)
	f.nominatedTo("p", "n1")
	expectWakes(t, f, at(20))

	f.nominatedTo("p", "")

	expectWakes(t, f, at(30), activation{orderID: "o", revert: true})
}

func TestARevertWaitsForTheAPINoLongerThanItsTime(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))
	f.fail("o", "delete refused", at(10), 500*time.Millisecond, noteNothing)
	expectWakes(t, f, at(509))

	expectWakes(t, f, at(510), activation{orderID: "o", revert: true})
}

func TestAGateThatNoEventOpensOpensByItself(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))
	f.fail("o", "delete refused", at(10), 0, noteNothing)
	f.due(at(10))

	if f.closed("p", at(10).Add(gateSlack)) {
		t.Error("still gated")
	}
}

func TestAnOrderFailsWithTheOneItCountedOn(t *testing.T) {
	f := newInflight()
	f.begin(order("o1", "a"))
	f.begin(awaiting(of("q", order("o2", "b")), "a", "o1"))
	f.commit("o2", at(60000))
	f.succeed("o2", at(10), at(90000), notGone)
	f.left("b")

	f.fail("o1", "delete refused", at(20), 0, noteNothing)

	expectWakes(t, f, at(20), activation{orderID: "o1", revert: true}, activation{orderID: "o2", revert: true})
}

func TestAnOrderIsStoredAfterThoseItCountsOn(t *testing.T) {
	f := newInflight()
	f.begin(order("o1", "a"))
	f.begin(awaiting(of("q", order("o2", "b")), "a", "o1"))
	if ready, _, err := f.countsOnStored("o2"); ready || err != nil {
		t.Fatalf("ready %t, error %v, while o1 is not stored", ready, err)
	}

	f.commit("o1", at(60000))

	if ready, _, err := f.countsOnStored("o2"); !ready || err != nil {
		t.Errorf("ready %t, error %v, after o1 was stored", ready, err)
	}
	f.fail("o1", "", at(10), 0, noteNothing)
	if _, _, err := f.countsOnStored("o2"); err != errAwaitedOrderFailed {
		t.Errorf("error %v, want that the awaited order failed", err)
	}
}

func TestAnOrderWhosePreemptorIsGoneIsKnownUntilItsEnd(t *testing.T) {
	for name, end := range map[string]func(f *inflight){
		"failed":    func(f *inflight) { f.fail("o", "cancelled", at(100), 0, noteNothing) },
		"succeeded": func(f *inflight) { f.succeed("o", at(100), at(90000), notGone) },
		"lost":      func(f *inflight) { f.due(at(60000)) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newInflight()
			f.begin(order("o", "a"))
			f.commit("o", at(60000))

			f.forget("p")

			if len(f.live()) != 1 || f.remover("o", "a") == "" {
				t.Error("its victims do not count as going")
			}
			if len(f.nominated()) != 0 || f.closed("p", at(50)) {
				t.Error("its preemptor holds a place")
			}
			end(f)
			expectWakes(t, f, at(60001))
			if f.hasOrder("o") {
				t.Error("known after its end")
			}
		})
	}
}

func TestAnOrderIsKnownFromTheMomentAtWhichItMayBeInTheStream(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))
	if err := f.publishing("o", []byte("{}")); err != nil {
		t.Fatal(err)
	}

	f.forget("p")

	if len(f.live()) != 1 || f.remover("o", "a") == "" || f.closed("p", at(1)) {
		t.Error("its victims do not count as going, or its preemptor is held")
	}
	f.commit("o", at(60000))
	f.succeed("o", at(100), at(90000), notGone)
	if f.hasOrder("o") {
		t.Error("known after its end")
	}
}

func TestAnOrderThatIsForgottenIsNotPublished(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))

	f.forget("p")

	if err := f.publishing("o", []byte("{}")); err != errPodGone {
		t.Errorf("error %v, want that its pod is gone", err)
	}
}

func TestAnOrderDoesNotWaitForOneThatLivesInMemoryAlone(t *testing.T) {
	f := newInflight()
	f.begin(order("o1", "a"))
	f.remember(&wire.Outcome{OrderID: "o1", Result: wire.ResultSucceeded})
	f.succeed("o1", at(5), at(60000), notGone)
	f.begin(awaiting(of("q", order("o2", "b")), "a", "o1"))

	ready, memoryOnly, err := f.countsOnStored("o2")

	if !ready || err != nil || !memoryOnly["o1"] {
		t.Errorf("ready %t, in memory %v, error %v", ready, memoryOnly, err)
	}
}

func TestThePodThatVanishesBeforeItsOrderIsStoredDoomsThoseThatCountOnIt(t *testing.T) {
	f := newInflight()
	f.begin(order("o1", "a"))
	f.begin(awaiting(of("q", order("o2", "b")), "a", "o1"))

	f.forget("p")

	if _, _, err := f.countsOnStored("o2"); err != errAwaitedOrderFailed {
		t.Errorf("error %v, want that the awaited order failed", err)
	}
}

func TestAnAdoptedOrderRefusesAtOnceAndGatesAfterOneFailedCycle(t *testing.T) {
	f := newInflight()
	if !f.adopt(order("o", "a"), at(0)) {
		t.Fatal("not adopted")
	}
	if f.closed("p", at(0)) {
		t.Error("gated before its pod failed a cycle: it would not be entered into the nominator")
	}

	kind, _, _ := f.refuse("p", at(10), notThere)

	if kind != endInFlight || !f.closed("p", at(10)) {
		t.Errorf("refused with %q, gated %t", kind, f.closed("p", at(10)))
	}
}

func TestAnOrderWhoseTimeIsOverIsNotAdopted(t *testing.T) {
	f := newInflight()

	if f.adopt(order("o", "a"), start.Add(time.Minute)) {
		t.Error("adopted")
	}
}

func TestTheProcessDoesNotAdoptItsOwnOrder(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))

	if f.adopt(order("o", "a"), at(10)) || !f.closed("p", at(10)) {
		t.Error("its own order opened the gate")
	}
}

func TestALaterOrderIsNotReplacedByAnEarlierOneFromTheStream(t *testing.T) {
	f := newInflight()
	later := order("o2", "a")
	later.createdAt = at(100)
	f.begin(later)

	if f.adopt(order("o1", "a"), at(200)) || !f.hasOrder("o2") {
		t.Error("the earlier order was adopted")
	}
}

func TestACycleThatCameTooEarlyIsRepeatedAfterAMoment(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))
	f.succeed("o", at(10), at(90000), notGone)
	f.left("a")
	expectWakes(t, f, at(10), activation{orderID: "o"})

	kind, _, _ := f.refuse("p", at(12), stillThere)

	if kind != endLeaving || !f.closed("p", at(12)) {
		t.Fatalf("refused with %q, gated %t", kind, f.closed("p", at(12)))
	}
	expectWakes(t, f, at(13))
	expectWakes(t, f, at(12).Add(earlyRetryDelay), activation{orderID: "o"})
}

func TestACycleThatFailsForAnotherReasonMayPreemptAgain(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))
	f.succeed("o", at(10), at(90000), notGone)
	f.left("a")
	expectWakes(t, f, at(10), activation{orderID: "o"})

	if kind, _, _ := f.refuse("p", at(12), notThere); kind != "" {
		t.Errorf("refused with %q", kind)
	}
}

func TestAReleasedPreemptorIsForgottenOnceItsCycleHasEnded(t *testing.T) {
	for name, end := range map[string]func(*inflight){
		"it has a node":    func(f *inflight) { f.cycled("p") },
		"its cycle failed": func(f *inflight) { f.refuse("p", at(20), notThere); f.cycled("p") },
		"it is gone":       func(f *inflight) { f.forget("p") },
	} {
		f := newInflight()
		f.begin(order("o", "a"))
		f.cycled("p") // of another cycle: its order is in flight
		f.succeed("o", at(10), at(90000), notGone)
		f.left("a")
		expectWakes(t, f, at(10), activation{orderID: "o"})
		f.due(at(10).Add(releasedLasts - time.Second))
		if !f.hasOrder("o") {
			t.Errorf("%s: forgotten before", name)
		}

		end(f)

		if len(f.byPod)+len(f.byOrder) != 0 {
			t.Errorf("%s: %d pods and %d orders are remembered", name, len(f.byPod), len(f.byOrder))
		}
	}
}

func TestRememberedOutcomesAreBounded(t *testing.T) {
	f := newInflight()
	for i := range 2 * outcomeMemory {
		f.remember(&wire.Outcome{OrderID: time.Duration(i).String()})
	}

	if len(f.outcomes) != outcomeMemory || len(f.order) != outcomeMemory {
		t.Errorf("%d outcomes and %d names are remembered, want %d", len(f.outcomes), len(f.order), outcomeMemory)
	}
}

// However long victims take to leave, an order that has succeeded keeps no other preemptor waiting.
func TestAnOrderThatHasSucceededIsInNoBoundAndNoRequest(t *testing.T) {
	f := newInflight()
	f.begin(order("o1", "b", "a"))
	f.begin(of("q", order("o2", "c")))

	f.succeed("o2", at(0), at(365*24*3600*1000), notGone)
	f.due(at(0))

	if f.count() != 1 {
		t.Errorf("%d orders count, want 1", f.count())
	}
	live := f.live()

	if len(live) != 1 || live[0].OrderID != "o1" || len(live[0].Victims) != 2 || live[0].Victims[0] != "a" {
		t.Errorf("live orders %+v", live)
	}
}

func TestAPodThatIsTerminatingForThePlannerAloneIsRemovedByTheOrderThatHasSucceeded(t *testing.T) {
	f := newInflight()
	f.begin(order("o1", "a"))
	f.begin(of("q", order("o2", "b")))
	f.succeed("o1", at(0), at(90000), notGone)

	if a, b, c := f.remover("", "a"), f.remover("", "b"), f.remover("o2", "a"); a != "o1" || b != "" || c != "" {
		t.Errorf("removed by %q, %q, %q", a, b, c)
	}
}

func TestAPreemptorWhoseNominationWasTakenIsTriedAgainAtOnce(t *testing.T) {
	f := newInflight()
	f.begin(order("o", "a"))
	f.nominatedTo("p", "") // not shown yet
	expectWakes(t, f, at(5))
	f.commit("o", at(60000))
	f.succeed("o", at(10), at(90000), notGone)
	f.nominatedTo("p", "n1")
	expectWakes(t, f, at(10))

	f.nominatedTo("p", "")

	expectWakes(t, f, at(20), activation{orderID: "o"})
	if f.closed("p", at(20)) {
		t.Error("still gated")
	}
}

func TestARevertThatPanickedIsHandedOutAgain(t *testing.T) {
	f, now := newInflight(), time.Unix(1_000_000, 0)
	f.begin(&inFlightPreemption{orderID: "ord", preemptor: wire.PodRef{UID: "p"}, node: "n1", opensAt: now.Add(time.Minute)})
	f.fail("ord", "for a test", now, 0, noteNothing)
	if activations, _ := f.due(now); len(activations) != 1 {
		t.Fatalf("%+v", activations)
	}
	if activations, _ := f.due(now); len(activations) != 0 {
		t.Fatalf("handed out twice: %+v", activations)
	}

	f.activationFailed("ord", now.Add(time.Second))

	if activations, next := f.due(now); len(activations) != 0 || next != now.Add(time.Second) {
		t.Errorf("%+v at once, then at %s", activations, next)
	}
	if activations, _ := f.due(now.Add(time.Second)); len(activations) != 1 || !activations[0].revert {
		t.Errorf("not again: %+v", activations)
	}
}

func TestAPreemptorThatComesToNoCycleLosesItsPlaceInTheEnd(t *testing.T) {
	f := newInflight()
	f.begin(order("o"))
	f.commit("o", start.Add(time.Minute))
	f.succeed("o", start, start.Add(time.Minute), func(types.UID) bool { return true })
	if activations, next := f.due(start); len(activations) != 1 || !next.Equal(start.Add(releasedLasts)) {
		t.Fatalf("activations %v, next %v", activations, next)
	}

	again := start.Add(releasedLasts - time.Second)
	f.activated("p", again)
	f.due(start.Add(releasedLasts))
	if !f.hasOrder("o") {
		t.Error("it was activated again, and loses its place at once")
	}
	f.due(again.Add(releasedLasts))
	if f.hasOrder("o") {
		t.Error("it keeps its place forever")
	}
}

func TestAWokenPreemptorKeepsItsPlaceUntilItsCycleHoweverLongThatTakes(t *testing.T) {
	for name, placed := range map[string]bool{"it is placed": true, "its cycle fails": false} {
		store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		gate := queuegate.New(testingclock.NewFakeClock(start), corelisters.NewPodLister(store), func(string, int32, string) bool { return true })
		enters := func(p *v1.Pod) bool {
			return gate.Check(framework.NewCycleState(), p, wire.ModeEnforce) == nil && gate.Reserve(p, wire.ModeEnforce) == nil
		}
		if err := gate.SetLimits([]wire.QueueLimit{limit("root", "cpu", 100)}); err != nil {
			t.Fatal(err)
		}
		f := newInflight()
		f.holds = gate
		p, other, victim := pod("p", "", high, small).Obj(), pod("o", "", low, small).Obj(), pod("v", "n1", low, small).Obj()
		for _, shown := range []*v1.Pod{p, other, victim} {
			_ = store.Add(shown)
			gate.PodChanged(shown)
		}
		if enters(p) {
			t.Fatal("the queue is full")
		}
		f.begin(&inFlightPreemption{orderID: "o", preemptor: refOf(p), node: "n1", victims: []types.UID{"v"}, remaining: map[types.UID]time.Time{"v": {}}, createdAt: start, opensAt: start.Add(time.Hour)})
		f.succeed("o", start, start.Add(time.Hour), func(types.UID) bool { return false })
		f.left("v")
		gate.PodDeleted(victim.UID)
		if activations, _ := f.due(start); len(activations) != 1 {
			t.Fatalf("%d activations", len(activations))
		}

		f.due(start.Add(time.Minute))

		if enters(other) {
			t.Errorf("%s: another takes the place", name)
		}
		if placed {
			if !enters(p) {
				t.Errorf("%s: the preemptor does not get the place that was made for it", name)
			}
			f.cycled("p")
			if enters(other) {
				t.Errorf("%s: another takes the place beside it", name)
			}
			continue
		}
		f.cycled("p")
		if !enters(other) {
			t.Errorf("%s: the place is kept", name)
		}
	}
}
