package plugin

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// askedNodes notes of which nodes it is asked who is nominated there.
type askedNodes struct {
	fwk.Handle
	asked []string
}

func (h *askedNodes) NominatedPodsForNode(node string) []fwk.PodInfo {
	h.asked = append(h.asked, node)
	return h.Handle.NominatedPodsForNode(node)
}

func TestEachNodeIsAskedOnceForWhoIsNominatedThereAndNoneForAPreemptorWithoutAnOrder(t *testing.T) {
	p, mate := pod("p", "", high, large).NominatedNodeName("n1").Obj(), pod("mate", "", high, small).NominatedNodeName("n1").Obj()
	equal, lower := pod("equal", "", high, small).Obj(), pod("lower", "", mid, small).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, mate, equal, lower, pod("a", "n1", mid, large).Obj())
	w.bus.plan = answers(candidate("n1", "!a"))
	handle := &askedNodes{Handle: w.framework}
	members := &preemptor{MakeWay: &MakeWay{handle: handle, engine: w.plugin.engine}, uid: p.UID, pods: []*v1.Pod{p, mate}}
	if beside := members.nominatedBeside(); len(beside) != 0 || len(handle.asked) != 0 {
		t.Errorf("without an order %v are beside it; asked of %v", beside, handle.asked)
	}
	w.nominated(p, "n1")
	for _, one := range []*v1.Pod{p, mate, equal, lower} {
		info, _ := fwkPodInfo(one)
		w.framework.AddNominatedPod(klogger(w), info, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: "n1"})
	}

	beside := members.nominatedBeside()

	if !slices.Equal(beside, []types.UID{"equal"}) || !slices.Equal(handle.asked, []string{"n1"}) {
		t.Errorf("%v are beside it; asked of %v", beside, handle.asked)
	}
}
