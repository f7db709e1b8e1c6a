package wire

import (
	"slices"
	"strconv"
	"testing"
)

func TestAnOrderNamesEachPodOnceAndNoMoreNominationsThanItMayClear(t *testing.T) {
	order := EvictionOrder{
		Victims: []Victim{{UID: "a"}, {UID: "b"}, {UID: "a"}},
		Awaited: []Awaited{{UID: "c", OrderID: "first"}, {UID: "c"}},
	}
	for i := range MostNominations + 10 {
		order.NominationsToClear = append(order.NominationsToClear, NominationToClear{UID: strconv.Itoa(i / 2)}, NominationToClear{UID: "more-" + strconv.Itoa(i)})
	}

	order.NameOnce()

	if !slices.Equal(order.Victims, []Victim{{UID: "a"}, {UID: "b"}}) {
		t.Errorf("victims %v", order.Victims)
	}
	if len(order.Awaited) != 1 || order.Awaited[0].OrderID != "first" {
		t.Errorf("awaited %v", order.Awaited)
	}
	if len(order.NominationsToClear) != MostNominations {
		t.Errorf("%d nominations", len(order.NominationsToClear))
	}
	seen := map[string]bool{}
	for _, one := range order.NominationsToClear {
		if seen[one.UID] {
			t.Errorf("%s twice", one.UID)
		}
		seen[one.UID] = true
	}
}
