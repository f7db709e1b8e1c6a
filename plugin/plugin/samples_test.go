package plugin

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

// refusesWith is a planner that refuses with a sample, and answers with that as unmodelled where it is to set the columns aside.
func refusesWith(sample wire.Candidate) func(*wire.PlanRequest) (*wire.PlanReply, error) {
	return func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		if request.IgnoreColumns {
			return &wire.PlanReply{Unmodelled: []wire.Candidate{sample}, UnmodelledTotal: 1}, nil
		}
		return &wire.PlanReply{Status: wire.StatusRefused, DecisionID: "dec-1", Sample: &sample, Refusal: &wire.Refusal{Reason: "NotEnoughRoom", Message: "too little room"}}, nil
	}
}

func TestAPodThatWasRefusedWronglyIsTriedInFull(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.bus.plan = refusesWith(candidate("n1", "a"))

	result, status := w.cycle(p)

	if result != nil || status.Code() != fwk.Unschedulable {
		t.Errorf("result %+v, status %v, want (nil, Unschedulable): the refusal was wrong", result, status)
	}
	if w.plugin.mayPrefetch(p) {
		t.Error("a question with the columns is prefetched")
	}
	w.eventually("the pod is activated", func() bool { return w.activator.of("p") == 1 })
	expectVictims(t, w.nominated(p, "n1"), "a")
	if last := w.bus.requests[len(w.bus.requests)-1]; !last.IgnoreColumns {
		t.Error("the columns were not set aside")
	}
}

func TestARefusalWhoseSampleDoesNotStandIsFinal(t *testing.T) {
	for name, sample := range map[string]wire.Candidate{
		"the filters say no":             candidate("n1", "x"),
		"the plan saw another cluster":   candidate("n1", "gone"),
		"the node is not there any more": candidate("n2", "a"),
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("p", "", high, large).Obj()
			w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", high, medium).Obj(), pod("b", "n1", high, medium).Obj(), pod("x", "n1", low, small).Obj())
			w.bus.plan = refusesWith(sample)

			result, status := w.cycle(p)

			if status.Code() != fwk.UnschedulableAndUnresolvable || result.Mode() != fwk.ModeOverride {
				t.Errorf("result %+v, status %v", result, status)
			}
			if w.plugin.engine.verified.samples.Full(time.Now(), p.UID) {
				t.Error("the pod is tried in full")
			}
		})
	}
}

func TestOneSampleAMinuteIsVerified(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.bus.plan = refusesWith(candidate("n1", "a"))
	if !w.plugin.engine.verified.samples.Due(time.Now()) {
		t.Fatal("the first is not verified")
	}

	if _, status := w.cycle(p); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("a second one was verified: %v", status)
	}
}
