package verify

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

func TestAMemberIsPlacedWhereNoPluginRefusesItAtReserveThoughItsGroupIsTakenBack(t *testing.T) {
	first, refused, last := st.MakePod().UID("first").Obj(), st.MakePod().UID("refused").Obj(), st.MakePod().UID("last").Obj()
	pins := &Pins{nodes: map[types.UID]string{"first": "n1", "refused": "n2", "last": "n3"}, placed: sets.New[types.UID]()}
	for _, pod := range []*v1.Pod{first, refused, last} {
		pins.PreFilter(pod)
		if pod != last { // which passes no filter
			pins.Reserve(pod)
		}
		if pod == refused {
			pins.Unreserve(pod)
		}
	}

	pins.Unreserve(first)

	if !pins.placed.Equal(sets.New(first.UID)) {
		t.Errorf("placed %v", pins.placed)
	}
}
