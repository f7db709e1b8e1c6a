package orders

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

// groupOrder is an order of gang "gang" for member a on node n1 and b on n2.
func groupOrder(victims ...types.UID) *Order {
	e := order("o", victims...)
	e.Preemptor, e.Node = wire.PodRef{Namespace: "ns", Name: "gang", UID: "gang-uid"}, ""
	e.Enter(wire.Placement{Namespace: "ns", Name: "a", UID: "a", Node: "n1"}, wire.Placement{Namespace: "ns", Name: "b", UID: "b", Node: "n2"})
	return e
}

func (f *InFlight) groupClosed(now time.Time) bool {
	_, _, closed := f.Gate("a", types.NamespacedName{Namespace: "ns", Name: "gang"}, now)
	return closed
}

func TestAGangIsActivatedOnceItsLastVictimHasLeft(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(groupOrder("v1", "v2"))
	stored(f, "o", start.Add(time.Minute))
	f.Succeed("o", at(10), at(90000), notGone)
	f.left("v1")
	expectWakes(t, f, at(20))
	expectWakes(t, f, at(10).Add(leavingHold))
	if f.groupClosed(at(10).Add(leavingHold)) {
		t.Fatal("closed for longer than a while")
	}

	f.left("v2")

	expectWakes(t, f, at(1030), wakes("o"))
	if f.groupClosed(at(1030)) {
		t.Error("closed after the last victim has left")
	}
}

func TestAGangThatWasHeldIsActivatedOnceWhileItsVictimsLeave(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(groupOrder("v1"))
	stored(f, "o", start.Add(time.Minute))
	f.groupClosed(at(5)) // an event of the cluster would have brought it to a cycle

	f.Succeed("o", at(10), at(90000), notGone)

	expectWakes(t, f, at(10))
	expectWakes(t, f, at(10).Add(leavingHold), wakes("o"))
	expectWakes(t, f, at(10).Add(leavingHold))
}

func TestTheGateOfAGangOpensByTimeWhateverHappens(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(groupOrder("v1"))

	if !f.groupClosed(start.Add(time.Minute-time.Second)) || f.groupClosed(start.Add(time.Minute)) {
		t.Error("the gate is to open at the order's time")
	}
}

func TestAGangsOrderIsForgottenWhenNoMemberWaits(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(groupOrder("v1"))
	stored(f, "o", start.Add(time.Minute))
	f.Succeed("o", at(10), at(90000), notGone)
	f.Forget("a")
	if got := f.PlacesOf("gang-uid"); len(got) != 1 || got[0].UID != "b" {
		t.Fatalf("places %v", got)
	}

	f.Forget("b")

	if f.Has("gang-uid") || f.Has("b") || f.groupClosed(at(20)) {
		t.Error("the order is still known")
	}
}

func TestAGangIsRevertedOnceAllItsNominationsAreGone(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(groupOrder("v1"))
	stored(f, "o", start.Add(time.Minute))
	f.Fail("o", "refused", at(10), time.Minute)
	f.NominatedTo("a", "", at(20))
	expectWakes(t, f, at(20))

	f.NominatedTo("b", "", at(20))

	expectWakes(t, f, at(30), reverts("o"))
	if !f.groupClosed(at(30)) {
		t.Error("open before the nominations are deleted in memory")
	}
	f.Finish("o")
	if f.groupClosed(at(40)) {
		t.Error("closed after that")
	}
}

func TestAGangWhoseMemberLosesItsPlaceWaitsForNothingMore(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(groupOrder("v1"))
	stored(f, "o", start.Add(time.Minute))
	f.NominatedTo("b", "n2", at(20))
	f.Succeed("o", at(10), at(90000), notGone)

	f.NominatedTo("b", "n9", at(20))

	expectWakes(t, f, at(20), wakes("o"))
}

func TestAGangMadeAnewUnderItsNameIsNotHeldForTheOldOne(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(groupOrder("v1"))
	stored(f, "o", start.Add(time.Minute))

	f.Forget("gang-uid") // the PodGroup was deleted

	if f.groupClosed(at(20)) {
		t.Error("the new gang is held for the old one's order")
	}
	if f.Count() != 1 {
		t.Error("an order that is stored may still remove its victims")
	}
}

// madeRoom is a state in which the room for gang "gang" was made, and the gang activated at a time.
func madeRoom(t *testing.T, now time.Time) (*InFlight, *countedPlaces) {
	t.Helper()
	f, places := NewInFlight(noQuota{}), &countedPlaces{}
	f.holds = places
	f.Begin(groupOrder("v1"))
	stored(f, "o", start.Add(time.Minute))
	f.Succeed("o", now, now.Add(time.Minute), notGone)
	f.left("v1")
	expectWakes(t, f, now, wakes("o"))
	return f, places
}

func TestTheRoomOfAGangThatHasTooFewPodsForAWhileIsGivenUp(t *testing.T) {
	f, places := madeRoom(t, at(0))
	f.Forget("b") // a member was deleted
	lasts := int(MissingLasts.Milliseconds())
	for _, now := range []int{0, lasts / 2, lasts - 1} {
		if f.MembersMissing("o", "1 of 2", true, at(now)) || f.groupClosed(at(now)) {
			t.Fatalf("given up after %d ms", now)
		}
		expectWakes(t, f, at(now))
	}

	if !f.MembersMissing("o", "1 of 2", true, at(lasts)) {
		t.Fatal("the room is kept")
	}

	got, _ := f.Due(at(lasts))
	if len(got) != 1 || !got[0].Revert || got[0].Reason != "1 of 2" || len(got[0].Places()) != 1 || got[0].Places()[0].UID != "a" {
		t.Fatalf("activations %+v", got)
	}
	if !f.groupClosed(at(lasts)) {
		t.Error("a cycle before the nominations are deleted in memory would begin with them")
	}
	if f.MembersMissing("o", "1 of 2", true, at(lasts)) {
		t.Error("given up twice")
	}
	f.Finish("o")
	if f.Has("gang-uid") || f.Has("a") || f.groupClosed(at(lasts)) || places.held != places.Released {
		t.Errorf("the order is still known, or %d of %d places in queues are released", places.Released, places.held)
	}
}

func TestAGangWhoseMemberIsMadeAnewInTimeKeepsItsRoom(t *testing.T) {
	f, _ := madeRoom(t, at(0))
	f.Forget("b")
	lasts := int(MissingLasts.Milliseconds())
	f.MembersMissing("o", "1 of 2", true, at(0))
	f.MembersMissing("o", "2 of 2", false, at(lasts-1))

	for _, now := range []int{lasts, 2*lasts - 1} {
		if f.MembersMissing("o", "1 of 2", true, at(now)) {
			t.Errorf("given up at %d ms", now)
		}
	}
	if got := f.PlacesOf("gang-uid"); len(got) != 1 || got[0].UID != "a" {
		t.Errorf("places %v", got)
	}
}

func TestOnlyGangsWhoseRoomIsMadeAreLookedAt(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("pod", "v0"))
	f.Begin(groupOrder("v1"))
	stored(f, "o", start.Add(time.Minute))
	f.Succeed("o", at(0), at(60000), notGone)
	if got := f.ReleasedGroups(); len(got) != 0 {
		t.Fatalf("%v with a victim left", got)
	}
	f.left("v1")
	f.Due(at(0))

	if got := f.ReleasedGroups(); len(got) != 1 || got["o"].UID != "gang-uid" {
		t.Errorf("%v", got)
	}
}

func TestTheLargestGroupIsNominatedInTime(t *testing.T) {
	// kube-scheduler's client writes 50 times a second by default.
	if got, needed := StoredWithin(5000), 5000*time.Second/50; got < needed {
		t.Errorf("an order for 5,000 members is stored within %s, and their nominations take %s", got, needed)
	}
}
