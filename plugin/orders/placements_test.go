package orders

import (
	"fmt"
	"slices"
	"testing"

	"makeway.dev/makeway/plugin/wire"
)

func TestPlacementsAreListedOnce(t *testing.T) {
	p := NewPlacements()
	nominated := func(name, on string) {
		shown := pod(name, "", 1, small).Obj()
		shown.Status.NominatedNodeName = on
		p.Observe(shown)
	}
	for _, name := range []string{"c", "a", "preemptor", "bound", "both", "b"} {
		nominated(name, "n1")
	}
	nominated("a", "n2")
	nominated("gone", "n1")
	p.Removed("gone")
	nominated("bound", "n1")
	p.Observe(pod("bound", "n1", 1, small).Obj())
	for _, name := range []string{"z", "both", "preemptor", "y", "back"} {
		p.Assume(pod(name, "", 1, small).Obj(), "n3")
	}
	p.Unassume("back")

	also := []wire.Placement{{UID: "new", Node: "n4"}, {UID: "c", Node: "n5"}, {UID: "preemptor", Node: "n6"}}
	nominations, assumed := p.Lists(also)

	expect := func(list []wire.Placement, want ...string) {
		t.Helper()
		var got []string
		for _, place := range list {
			got = append(got, fmt.Sprintf("%s on %s", place.UID, place.Node))
		}
		slices.Sort(got)
		if !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	expect(nominations, "a on n2", "b on n1", "c on n5", "new on n4", "preemptor on n6")
	expect(assumed, "both on n3", "preemptor on n3", "y on n3", "z on n3")
	if again, _ := p.Lists(nil); len(again) != 3 {
		t.Errorf("asking has changed the placements: %v", again)
	}
}
