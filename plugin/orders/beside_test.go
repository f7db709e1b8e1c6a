package orders

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// releasedBeside has a preemptor p with its room, of order o, and q nominated beside it, whose order o2 is under way; and a cycle of p.
func releasedBeside(t *testing.T) (*InFlight, FailedCycle) {
	t.Helper()
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	f.Begin(of("q", order("o2", "b")))
	f.Succeed("o", at(10), at(90000), notGone)
	f.left("a")
	expectWakes(t, f, at(10), wakes("o"))
	cycle := notThere
	cycle.Beside = []types.UID{"q"}
	return f, cycle
}

func TestAPreemptorWithItsRoomWaitsUntilFailedOrdersOfThoseThatAreNominatedBesideItAreTakenBack(t *testing.T) {
	f, cycle := releasedBeside(t)
	f.Fail("o2", "failed", at(11), RevertWait)

	if why, _, _ := f.Refuse("p", at(12), cycle); why != RefusedBeside {
		t.Errorf("refused with %d while the nomination beside it is taken back", why)
	}
	expectWakes(t, f, at(12).Add(RevertWait), reverts("o2"))
	f.Finish("o2")
	expectWakes(t, f, at(13).Add(RevertWait), wakes("o"))
	if why, _, _ := f.Refuse("p", at(13).Add(RevertWait), cycle); why != NotRefused {
		t.Errorf("refused with %d once it was taken back", why)
	}
}

func TestAPreemptorWithItsRoomBesideVictimsThatLeaveMayTakeOtherRoomAfterAWhile(t *testing.T) {
	f, cycle := releasedBeside(t)
	f.Succeed("o2", at(11), at(90000), notGone)
	f.Refuse("p", at(12), cycle)
	if !f.closed("p", at(12)) {
		t.Fatal("open at once")
	}

	expectWakes(t, f, at(12).Add(leavingHold), wakes("o")) // it was held meanwhile
	if f.closed("p", at(12).Add(leavingHold)) {
		t.Error("held after the wait")
	}
	if why, _, _ := f.Refuse("p", at(13).Add(leavingHold), cycle); why != RefusedBeside || !f.gates("p") {
		t.Errorf("refused with %d in the next cycle, gated %t", why, f.gates("p"))
	}
}

func TestACycleThatIsRepeatedIsNotTakenForOneMoreLastVictim(t *testing.T) {
	f := NewInFlight(noQuota{})
	f.Begin(order("o", "a"))
	f.Succeed("o", at(10), at(90000), notGone)
	f.left("a")
	first, _ := f.Due(at(10))
	f.Refuse("p", at(11), stillThere)

	again, _ := f.Due(at(11).Add(earlyRetryDelay))

	if len(first) != 1 || first[0].Waited == 0 || len(again) != 1 || again[0].Waited != 0 {
		t.Errorf("first %+v, then %+v", first, again)
	}
}
