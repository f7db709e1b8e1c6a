package plugin

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

func TestAGangIsNotNominatedForAnOrderThatNoMessageCarries(t *testing.T) {
	g1, g2 := gangMember("g1"), gangMember("g2")
	w, c := gangWorld(t, setup{}, 3, 2, g1, g2)
	w.bus.group = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Plan: gangPlan("n2", "n3"), DecisionID: "dec-1", Offer: strings.Repeat("x", wire.MaxBytes-1500)}, nil
	}

	nodes, status := w.gang(c)

	if len(nodes) != 0 || status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "an order for 2 members and 2 victims is larger than a message of NATS") {
		t.Errorf("%v, %v", nodes, status)
	}
	if w.entry("gang-uid") != nil {
		t.Error("it has an order")
	}
	for _, p := range []*v1.Pod{g1, g2} {
		if w.gated(p) {
			t.Errorf("%s is held", p.Name)
		}
	}
}
