package verify

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

func TestExtendersCannotTakeAPartOfAUnit(t *testing.T) {
	a, b := pod("a", "n1", low, large).Obj(), pod("b", "n2", low, large).Obj()
	of := func(p *v1.Pod) Victim { return Victim{Pod: p, Unit: "g"} }
	candidate := &Candidate{Node: "n1", Victims: []Victim{of(a), of(b)}, removable: map[types.UID]Victim{a.UID: of(a), b.UID: of(b)}}

	if _, ok := candidate.withVictims([]*v1.Pod{a}); ok {
		t.Error("a part of a unit was allowed")
	}
	if _, ok := candidate.withVictims([]*v1.Pod{b, a}); !ok {
		t.Error("a whole unit was not allowed")
	}
}

func TestBlocksStayWholeWhereOnePodViolatesABudget(t *testing.T) {
	violating := unitRemovable("b", "n2", true)
	violating.PDBViolating = true
	blocks := byViolation([]wire.Removable{{UID: "c"}, unitRemovable("a", "", true), violating, {UID: "d"}})

	if len(blocks) != 3 || len(blocks[0]) != 2 || blocks[0][0].UID != "a" || blocks[1][0].UID != "c" {
		t.Errorf("got %+v, want the unit whole and first", blocks)
	}
}
