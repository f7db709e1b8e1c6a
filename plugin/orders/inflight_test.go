package orders

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"makeway.dev/makeway/plugin/wire"
)

// order makes the entry of pod "p" with an order for node n1.
func order(id string, victims ...types.UID) *Order {
	e := &Order{
		OrderID: id, Node: "n1", Preemptor: wire.PodRef{Namespace: "ns", Name: "p", UID: "p"},
		Removal:   Removal{Victims: victims, Awaited: map[types.UID]string{}, Remaining: map[types.UID]time.Time{}},
		CreatedAt: start, OpensAt: start.Add(time.Minute),
	}
	for _, v := range victims {
		e.Remaining[v] = time.Time{}
	}
	return e
}

func of(pod string, e *Order) *Order {
	e.Preemptor.Name, e.Preemptor.UID = pod, pod
	return e
}

func notGone(types.UID) bool { return false }

// What a failed cycle's snapshot shows: every victim or none, or that the node does not help.
var (
	stillThere   = snapshotWith(true, false)
	notThere     = snapshotWith(false, false)
	unresolvable = snapshotWith(true, true)
)

func snapshotWith(there, unresolvable bool) FailedCycle {
	pods := sets.New[types.UID]()
	if there {
		pods.Insert("a", "b", "c")
	}
	return FailedCycle{
		PodsOn:       func(string) sets.Set[types.UID] { return pods },
		Unresolvable: func(string) bool { return unresolvable },
	}
}

// left has a victim be gone from the scheduler's cache.
func (f *InFlight) left(victim types.UID) { f.Deleted(victim, start.Add(-time.Second)) }

// gates reports whether PreEnqueue would hold a pod, and holds none.
func (f *InFlight) gates(uid types.UID) bool { return f.byPod[uid].Gated }

func (f *InFlight) closed(uid types.UID, now time.Time) bool {
	_, _, closed := f.Gate(uid, types.NamespacedName{}, now)
	return closed
}

// wakes and reverts are activations of an order.
func wakes(orderID string) Activation { return Activation{Order: &Order{OrderID: orderID}} }

func reverts(orderID string) Activation {
	return Activation{Order: &Order{OrderID: orderID}, Revert: true}
}

func expectWakes(t *testing.T, f *InFlight, now time.Time, want ...Activation) {
	t.Helper()
	got, _ := f.Due(now)
	if len(got) != len(want) {
		t.Fatalf("activations %+v, want %+v", got, want)
	}
	for i := range want {
		if got[i].OrderID != want[i].OrderID || got[i].Revert != want[i].Revert {
			t.Errorf("activation %+v, want %+v", got[i], want[i])
		}
	}
}

func TestTheGateIsClosedFromTheNominationUntilAWhileAfterTheOrderHasSucceeded(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a", "b"))
	stored(f, "o", start.Add(time.Minute))
	expectWakes(t, f, at(5))
	if !f.gates("p") {
		t.Fatal("open without an outcome")
	}

	f.Succeed("o", at(10), at(90000), notGone)

	expectWakes(t, f, at(10))
	if !f.gates("p") {
		t.Error("open as soon as the victims are leaving: the cycle would fail, but for other room")
	}
	expectWakes(t, f, at(10).Add(leavingHold)) // nothing was held meanwhile: the scheduler's own events reach the pod
	if f.closed("p", at(10).Add(leavingHold)) {
		t.Error("closed for longer than a while")
	}
}

func TestThePodIsActivatedOnceItsLastVictimHasLeft(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a", "b"))
	f.Succeed("o", at(10), at(90000), notGone)
	f.left("a")
	expectWakes(t, f, at(20))

	f.left("b")

	expectWakes(t, f, at(20), wakes("o"))
	expectWakes(t, f, at(30))
}

// Of an event that comes while a pod is gated the queue tells it nothing, then or later.
func TestAPodThatWasHeldIsActivatedOnceWhileItsVictimsLeave(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	f.closed("p", at(5)) // an event of the cluster would have brought it to a cycle

	f.Succeed("o", at(10), at(90000), notGone)

	expectWakes(t, f, at(10))
	expectWakes(t, f, at(10).Add(leavingHold), wakes("o"))
	expectWakes(t, f, at(10).Add(leavingHold))
}

func TestAPodWhoseLastVictimHasJustLeftIsActivatedForThatAlone(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	f.closed("p", at(5))
	f.Deleted("a", at(9))

	f.Succeed("o", at(10), at(90000), notGone)

	expectWakes(t, f, at(10))
	expectWakes(t, f, at(9).Add(Settle), wakes("o"))
	expectWakes(t, f, at(2000))
}

// settled has one order, whose victim a is leaving.
func settled() *InFlight {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	f.Succeed("o", at(0), at(90000), notGone)
	return f
}

func TestAPodThatFailsACycleWhileItsVictimsLeaveIsHeldForASecondAndThenLonger(t *testing.T) {
	f := settled()
	f.Due(at(0))
	now := at(0)
	for _, hold := range []time.Duration{leavingHold, 2 * leavingHold, longestLeavingHold, longestLeavingHold} {
		if why, orderID, node := f.Refuse("p", now, stillThere); why != RefusedLeaving || orderID != "o" || node != "n1" {
			t.Fatalf("refused with %d for order %s on node %s", why, orderID, node)
		}
		if _, next := f.Due(now); !next.Equal(now.Add(hold)) {
			t.Errorf("the hold ends at %s, want %s", next, now.Add(hold))
		}
		expectWakes(t, f, now.Add(hold-time.Millisecond))
		if !f.closed("p", now.Add(hold-time.Millisecond)) {
			t.Errorf("open before %s", hold)
		}

		now = now.Add(hold)

		expectWakes(t, f, now, wakes("o"))
		if f.closed("p", now) {
			t.Errorf("closed after %s", hold)
		}
	}
}

func TestAPodThatWasNotTriedForAWhileIsHeldForASecondAgain(t *testing.T) {
	f := settled()
	f.Due(at(0))
	f.Refuse("p", at(0), stillThere)
	later := at(0).Add(leavingHold + longestLeavingHold)
	f.Due(later)

	f.Refuse("p", later, stillThere)

	if _, next := f.Due(later); !next.Equal(later.Add(leavingHold)) {
		t.Errorf("the hold ends at %s, want %s", next, later.Add(leavingHold))
	}
}

func TestAHoldDuringWhichNothingHappenedActivatesNothing(t *testing.T) {
	f := settled()
	f.Due(at(0))

	f.Refuse("p", at(0), stillThere)

	expectWakes(t, f, at(0).Add(leavingHold))
	if f.closed("p", at(0).Add(leavingHold)) {
		t.Error("still held")
	}
}

func TestTheLastVictimsLeavingEndsAHold(t *testing.T) {
	f := settled()
	f.Due(at(0))
	f.Refuse("p", at(0), stillThere)

	f.Deleted("a", at(100))

	expectWakes(t, f, at(100).Add(Settle), wakes("o"))
	if f.closed("p", at(100).Add(Settle)) {
		t.Error("still held")
	}
}

func TestAPodWhoseNodeDoesNotHelpAnyMoreMayPreemptElsewhere(t *testing.T) {
	f := settled()

	if why, _, _ := f.Refuse("p", at(10), unresolvable); why != NotRefused || f.HasOrder("o") {
		t.Errorf("refused with %d, known %t", why, f.HasOrder("o"))
	}
}

func TestAPodThatLostItsNominationMayPreemptElsewhere(t *testing.T) {
	f := settled()
	f.NominatedTo("p", "n1", at(20))
	f.NominatedTo("p", "", at(20))

	if why, _, _ := f.Refuse("p", at(10), stillThere); why != NotRefused || f.HasOrder("o") {
		t.Errorf("refused with %d, known %t", why, f.HasOrder("o"))
	}
}

func TestAnOrderWithoutOutcomeIsInFlightWhereverItsNodeIs(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	stored(f, "o", at(60000))

	if why, _, _ := f.Refuse("p", at(10), unresolvable); why != RefusedInFlight {
		t.Errorf("refused with %d", why)
	}
}

func TestVictimsThatLeftBeforeTheOutcomeAreNotWaitedFor(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	f.left("a")
	expectWakes(t, f, at(5))

	f.Succeed("o", at(10), at(90000), notGone)

	expectWakes(t, f, at(10), wakes("o"))
}

func TestAPodThatTheInformerDeletedCountsAsGoneAfterAMoment(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	f.Succeed("o", at(10), at(90000), notGone)
	f.Deleted("a", at(100))

	_, next := f.Due(at(100))

	if !next.Equal(at(100).Add(Settle)) {
		t.Errorf("to be asked again at %s, want %s", next, at(100).Add(Settle))
	}
	expectWakes(t, f, next.Add(-time.Millisecond))
	expectWakes(t, f, next, wakes("o"))
}

func TestVictimsThatTheInformerNeverHadAreGone(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))

	f.Succeed("o", at(10), at(90000), func(types.UID) bool { return true })

	expectWakes(t, f, at(10).Add(Settle), wakes("o"))
}

func TestAPreemptorIsLetGoWhenItsVictimsDoNotLeaveInTime(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	f.Succeed("o", at(10), at(90000), notGone)
	expectWakes(t, f, at(89999))

	if f.closed("p", at(90000)) {
		t.Error("closed at the deadline")
	}
	expectWakes(t, f, at(90000), wakes("o"))
	if why, _, _ := f.Refuse("p", at(90001), stillThere); why != NotRefused {
		t.Errorf("refused a new order: %d", why)
	}
}

func TestAnOrderWithoutOutcomeIsGivenUpAfterItsTime(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	stored(f, "o", at(62000))
	expectWakes(t, f, at(61999))

	if f.closed("p", at(62000)) {
		t.Error("the gate did not open by itself")
	}
	expectWakes(t, f, at(62000), reverts("o"))
}

func TestAFailedOrderIsRevertedOnceAndItsGateOpensAfterwards(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))

	failed := f.Fail("o", "delete refused", at(10), 0)

	if failed == nil {
		t.Error("it is not known")
	}
	if f.Fail("o", "delete refused", at(10), 0) != nil {
		t.Error("failed twice")
	}
	expectWakes(t, f, at(10), reverts("o"))
	expectWakes(t, f, at(20))
	if !f.closed("p", at(20)) {
		t.Fatal("the gate opened before the nomination was deleted")
	}
	if why, _, _ := f.Refuse("p", at(20), notThere); why != RefusedInFlight {
		t.Errorf("a cycle meanwhile is refused with %d", why)
	}
	f.Finish("o")
	if f.closed("p", at(20)) || len(f.byPod) != 0 {
		t.Error("still gated")
	}
}

func TestARevertWaitsForTheAPIToShowTheNominationGone(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	f.Fail("o", "delete refused", at(10), 500*time.Millisecond)
	f.NominatedTo("p", "n1", at(20))
	expectWakes(t, f, at(20))

	f.NominatedTo("p", "", at(20))

	expectWakes(t, f, at(30), reverts("o"))
}

func TestARevertWaitsForTheAPINoLongerThanItsTime(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	f.Fail("o", "delete refused", at(10), 500*time.Millisecond)
	expectWakes(t, f, at(509))

	expectWakes(t, f, at(510), reverts("o"))
}

func TestAGateThatNoEventOpensOpensByItself(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	f.Fail("o", "delete refused", at(10), 0)
	f.Due(at(10))

	if f.closed("p", at(10).Add(GateSlack)) {
		t.Error("still gated")
	}
}

func TestAnOrderWhosePreemptorIsGoneIsKnownUntilItsEnd(t *testing.T) {
	for name, end := range map[string]func(f *InFlight){
		"failed":    func(f *InFlight) { f.Fail("o", "cancelled", at(100), 0) },
		"succeeded": func(f *InFlight) { f.Succeed("o", at(100), at(90000), notGone) },
		"lost":      func(f *InFlight) { f.Due(at(60000)) },
	} {
		t.Run(name, func(t *testing.T) {
			f := NewInFlight(noQuota{})
			f.Begin(order("o", "a"))
			stored(f, "o", at(60000))

			f.Forget("p")

			if f.Count() != 1 || f.Remover("o", "a") == "" {
				t.Error("its victims do not count as going")
			}
			if len(f.Nominated()) != 0 || f.closed("p", at(50)) {
				t.Error("its preemptor holds a place")
			}
			end(f)
			expectWakes(t, f, at(60001))
			if f.HasOrder("o") {
				t.Error("known after its end")
			}
		})
	}
}

func TestAnOrderIsKnownFromTheMomentAtWhichItMayBeInTheStream(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))

	f.Forget("p")

	if f.Count() != 1 || f.Remover("o", "a") == "" || f.closed("p", at(1)) {
		t.Error("its victims do not count as going, or its preemptor is held")
	}
	stored(f, "o", at(60000))
	f.Succeed("o", at(100), at(90000), notGone)
	if f.HasOrder("o") {
		t.Error("known after its end")
	}
}

func TestAnAdoptedOrderRefusesAtOnceAndGatesAfterOneFailedCycle(t *testing.T) {
	f := NewInFlight(noQuota{})
	if !f.Adopt(order("o", "a"), at(0)) {
		t.Fatal("not adopted")
	}
	if f.closed("p", at(0)) {
		t.Error("gated before its pod failed a cycle: it would not be entered into the nominator")
	}

	why, _, _ := f.Refuse("p", at(10), notThere)

	if why != RefusedInFlight || !f.closed("p", at(10)) {
		t.Errorf("refused with %d, gated %t", why, f.closed("p", at(10)))
	}
}

func TestAnOrderWhoseTimeIsOverIsNotAdopted(t *testing.T) {
	f := NewInFlight(noQuota{})

	if f.Adopt(order("o", "a"), start.Add(time.Minute)) {
		t.Error("adopted")
	}
}

func TestTheProcessDoesNotAdoptItsOwnOrder(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))

	if f.Adopt(order("o", "a"), at(10)) || !f.closed("p", at(10)) {
		t.Error("its own order opened the gate")
	}
}

func TestALaterOrderIsNotReplacedByAnEarlierOneFromTheStream(t *testing.T) {
	f := NewInFlight(noQuota{})
	later := order("o2", "a")
	later.CreatedAt = at(100)
	f.Begin(later)

	if f.Adopt(order("o1", "a"), at(200)) || !f.HasOrder("o2") {
		t.Error("the earlier order was adopted")
	}
}

func TestACycleThatCameTooEarlyIsRepeatedAfterAMoment(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	f.Succeed("o", at(10), at(90000), notGone)
	f.left("a")
	expectWakes(t, f, at(10), wakes("o"))

	why, _, _ := f.Refuse("p", at(12), stillThere)

	if why != RefusedLeaving || !f.closed("p", at(12)) {
		t.Fatalf("refused with %d, gated %t", why, f.closed("p", at(12)))
	}
	expectWakes(t, f, at(13))
	expectWakes(t, f, at(12).Add(earlyRetryDelay), wakes("o"))
}

func TestAPreemptorWithItsRoomWaitsForTheVictimsOfThoseThatAreNominatedBesideIt(t *testing.T) {
	for name, becomes := range map[string]func(*InFlight){
		"an order that is stored": func(f *InFlight) { stored(f, "o2", at(90000)) },
		"victims that leave":      func(f *InFlight) { f.Succeed("o2", at(11), at(90000), notGone) },
	} {
		f := NewInFlight(noQuota{})
		f.Begin(order("o", "a"))
		f.Begin(of("q", order("o2", "b")))
		f.Succeed("o", at(10), at(90000), notGone)
		f.left("a")
		expectWakes(t, f, at(10), wakes("o"))
		becomes(f)
		cycle := notThere
		cycle.Beside = []types.UID{"q"}

		if why, orderID, node := f.Refuse("p", at(12), cycle); why != RefusedBeside || orderID != "o" || node != "n1" {
			t.Fatalf("%s: refused with %d, order %q, node %q", name, why, orderID, node)
		}
		now := at(60000)
		expectWakes(t, f, now)
		f.Succeed("o2", now, at(90000), notGone)
		f.left("b")
		expectWakes(t, f, now, wakes("o"), wakes("o2"))
		if why, _, _ := f.Refuse("p", now, cycle); why != NotRefused {
			t.Errorf("%s: refused with %d once all have left", name, why)
		}
	}
}

func TestTwoPreemptorsWithoutRoomForBothDoNotWaitForEachOther(t *testing.T) {
	f, cycle := releasedBeside(t)
	f.Succeed("o2", at(10), at(90000), notGone)
	if why, _, _ := f.Refuse("p", at(11), cycle); why != RefusedBeside {
		t.Fatalf("refused with %d", why)
	}
	f.left("b")
	expectWakes(t, f, at(12), wakes("o"), wakes("o2"))
	cycle.Beside = []types.UID{"p"}

	if why, _, _ := f.Refuse("q", at(12), cycle); why != NotRefused {
		t.Errorf("refused with %d", why)
	}
}

func TestACycleThatFailsForAnotherReasonMayPreemptAgain(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	f.Succeed("o", at(10), at(90000), notGone)
	f.left("a")
	expectWakes(t, f, at(10), wakes("o"))

	if why, _, _ := f.Refuse("p", at(12), notThere); why != NotRefused {
		t.Errorf("refused with %d", why)
	}
}

func TestAReleasedPreemptorIsForgottenOnceItsCycleHasEnded(t *testing.T) {
	for name, end := range map[string]func(*InFlight){
		"it has a node":    func(f *InFlight) { f.Cycled("p") },
		"its cycle failed": func(f *InFlight) { f.Refuse("p", at(20), notThere); f.Cycled("p") },
		"it is gone":       func(f *InFlight) { f.Forget("p") },
	} {
		f := NewInFlight(noQuota{})
		f.Begin(order("o", "a"))
		f.Cycled("p") // of another cycle: its order is in flight
		f.Succeed("o", at(10), at(90000), notGone)
		f.left("a")
		expectWakes(t, f, at(10), wakes("o"))
		f.Due(at(10).Add(releasedLasts - time.Second))
		if !f.HasOrder("o") {
			t.Errorf("%s: forgotten before", name)
		}

		end(f)

		if len(f.byPod)+len(f.byOrder) != 0 {
			t.Errorf("%s: %d pods and %d orders are remembered", name, len(f.byPod), len(f.byOrder))
		}
	}
}

func TestRememberedOutcomesAreBounded(t *testing.T) {
	f := NewInFlight(noQuota{})
	for i := range 2 * outcomeMemory {
		f.Remember(&wire.Outcome{OrderID: time.Duration(i).String()})
	}

	if n := f.outcomes.Len(); n != outcomeMemory {
		t.Errorf("%d outcomes are remembered, want %d", n, outcomeMemory)
	}
}

// However long victims take to leave, an order that has succeeded keeps no other preemptor waiting.
func TestAnOrderThatHasSucceededIsInNoBound(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o1", "b", "a"))
	f.Begin(of("q", order("o2", "c")))

	f.Succeed("o2", at(0), at(365*24*3600*1000), notGone)
	f.Due(at(0))

	if f.Count() != 1 {
		t.Errorf("%d orders count, want 1", f.Count())
	}
}

func TestWhatSucceededOrdersRemoveHasLeft(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o1", "a"))
	f.Begin(of("q", order("o2", "b")))
	f.Succeed("o1", at(0), at(90000), notGone)

	if left, c := f.Left(), f.Remover("o2", "a"); len(left) != 1 || left["a"] != "o1" || c != "" {
		t.Errorf("have left: %v; o2 removes %q", left, c)
	}
}

func TestAPodThatAnotherPlanTakesIsRemovedByTheOrderThatThePlanHasBecome(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o1", "a"))

	if a, b := f.Remover("dec-1", "a"), f.Remover("dec-1", "b"); a != "o1" || b != "" {
		t.Errorf("removed by %q, %q", a, b)
	}
}

func TestANominationThatWasNeverShownCountsAsLostAfterAMinute(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	stored(f, "o", at(120000))
	f.Succeed("o", at(10), at(120000), notGone)
	f.NominatedTo("p", "", start.Add(shownWithin-time.Second))
	expectWakes(t, f, at(59000))

	f.NominatedTo("p", "", start.Add(shownWithin))

	expectWakes(t, f, at(60000), wakes("o"))
}

func TestAPreemptorWhoseNominationWasTakenIsTriedAgainAtOnce(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	f.NominatedTo("p", "", at(20)) // not shown yet
	expectWakes(t, f, at(5))
	stored(f, "o", at(60000))
	f.Succeed("o", at(10), at(90000), notGone)
	f.NominatedTo("p", "", at(20)) // nor now, though an evictor was that fast
	expectWakes(t, f, at(10))
	f.NominatedTo("p", "n1", at(20))
	expectWakes(t, f, at(10))

	f.NominatedTo("p", "", at(20))

	expectWakes(t, f, at(20), wakes("o"))
	if f.closed("p", at(20)) {
		t.Error("still gated")
	}
}

func TestARevertThatPanickedIsHandedOutAgain(t *testing.T) {
	f, now := NewInFlight(noQuota{}), time.Unix(1_000_000, 0)
	f.Begin(&Order{OrderID: "ord", Preemptor: wire.PodRef{UID: "p"}, Node: "n1", OpensAt: now.Add(time.Minute)})
	f.Fail("ord", "for a test", now, 0)
	if activations, _ := f.Due(now); len(activations) != 1 {
		t.Fatalf("%+v", activations)
	}
	if activations, _ := f.Due(now); len(activations) != 0 {
		t.Fatalf("handed out twice: %+v", activations)
	}

	f.ActivationFailed("ord", now.Add(time.Second))

	if activations, next := f.Due(now); len(activations) != 0 || next != now.Add(time.Second) {
		t.Errorf("%+v at once, then at %s", activations, next)
	}
	if activations, _ := f.Due(now.Add(time.Second)); len(activations) != 1 || !activations[0].Revert {
		t.Errorf("not again: %+v", activations)
	}
}

func TestAPreemptorThatComesToNoCycleLosesItsPlaceInTheEnd(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o"))
	stored(f, "o", start.Add(time.Minute))
	f.Succeed("o", start, start.Add(time.Minute), func(types.UID) bool { return true })
	if activations, next := f.Due(start); len(activations) != 1 || !next.Equal(start.Add(releasedLasts)) {
		t.Fatalf("activations %v, next %v", activations, next)
	}

	again := start.Add(releasedLasts - time.Second)
	f.Activated("p", again)
	f.Due(start.Add(releasedLasts))
	if !f.HasOrder("o") {
		t.Error("it was activated again, and loses its place at once")
	}
	f.Due(again.Add(releasedLasts))
	if f.HasOrder("o") {
		t.Error("it keeps its place forever")
	}
}
