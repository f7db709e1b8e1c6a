package plugin

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/wire"
)

// expecting is a world in which pods like p have just been refused so often that the next one's plan is asked for
// prefetched. It has two nodes, each with a pod that p could take the place of.
func expecting(t *testing.T, given setup, change func(*st.PodWrapper)) (*world, *v1.Pod) {
	t.Helper()
	wrapped := pod("p", "", high, large)
	if change != nil {
		change(wrapped)
	}
	p := wrapped.Obj()
	var pods []*v1.Pod
	for i := range ask.PrefetchAfter {
		pods = append(pods, pod(fmt.Sprintf("like-p-%d", i), "", high, large).Obj())
	}
	given.filter = true
	w := newWorld(t, given, []*v1.Node{node("n1"), node("n2")},
		append(pods, p, pod("a1", "n1", mid, large).Obj(), pod("a2", "n2", mid, large).Obj())...)
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: "NotEnoughRoom", Message: "no"}}, nil
	}
	for _, other := range pods {
		w.cycle(other)
	}
	w.bus.plan = answers(candidate("n1", "!a1"))
	return w, p
}

// begin runs a pod's PreFilter.
func (w *world) begin(pod *v1.Pod) fwk.CycleState {
	w.t.Helper()
	state := framework.NewCycleState()
	if _, status, _ := w.framework.RunPreFilterPlugins(w.ctx, state, pod); !status.IsSuccess() {
		w.t.Fatalf("PreFilter: %v", status)
	}
	return state
}

// asked is how many plan requests there were.
func (w *world) asked() int {
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	return len(w.bus.requests)
}

// rejecting are the statuses of a cycle in which removing pods may help on all nodes but some.
func rejecting(hopeless ...string) *framework.NodeToStatus {
	statuses := framework.NewDefaultNodeToStatus()
	statuses.SetAbsentNodesStatus(fwk.NewStatus(fwk.Unschedulable))
	for _, name := range hopeless {
		statuses.Set(name, fwk.NewStatus(fwk.UnschedulableAndUnresolvable))
	}
	return statuses
}

func TestAPlanIsAskedForWhileTheFiltersRunWherePodsAlikeHaveNeededOne(t *testing.T) {
	w, p := expecting(t, setup{}, nil)

	state := w.begin(p)
	w.eventually("the planner is asked", func() bool { return w.asked() == ask.PrefetchAfter+1 })
	result, status := w.plugin.PostFilter(w.ctx, state, p, rejecting())

	if !status.IsSuccess() || result.NominatedNodeName != "n1" {
		t.Errorf("result %+v, status %v", result, status)
	}
	request := w.bus.requests[ask.PrefetchAfter]
	if w.asked() != ask.PrefetchAfter+1 || !request.Ahead || request.MaxCandidates != firstCandidates {
		t.Errorf("%d requests, the last %+v", w.asked(), request)
	}
	if first := w.bus.requests[0]; first.Ahead {
		t.Errorf("prefetched for the first pod: %+v", first)
	}
}

func TestAPlanForOtherNodesThanExpectedIsAskedForAgain(t *testing.T) {
	w, p := expecting(t, setup{}, nil)
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		if request.Ahead {
			return answers(candidate("n1", "!a1"))(request)
		}
		return answers(candidate("n2", "!a2"))(request)
	}

	result, status := w.plugin.PostFilter(w.ctx, w.begin(p), p, rejecting("n1"))

	if !status.IsSuccess() || result.NominatedNodeName != "n2" {
		t.Errorf("result %+v, status %v", result, status)
	}
}

func TestAPrefetchedPlanUnderAnotherModeIsAskedForAgain(t *testing.T) {
	w, p := expecting(t, setup{args: func(a *MakeWayArgs) { a.MaxCandidates = firstCandidates }}, nil)
	state := w.begin(p)
	w.eventually("the planner is asked", func() bool { return w.asked() == ask.PrefetchAfter+1 })

	w.plugin.args.Mode = wire.ModeObserve
	result, status := w.plugin.PostFilter(w.ctx, state, p, rejecting())

	if result != nil || status.Code() != fwk.Unschedulable {
		t.Fatalf("result %+v, status %v", result, status)
	}
	w.eventually("the planner is asked again", func() bool { return w.asked() == ask.PrefetchAfter+2 })
	if last := w.bus.planRequests()[ask.PrefetchAfter+1]; last.Ahead || last.Mode != wire.ModeObserve {
		t.Errorf("the last request is %+v", last)
	}
}

func TestNoPlanIsPrefetchedOnceAPodAlikeHasFitted(t *testing.T) {
	w, p := expecting(t, setup{}, nil)
	state := w.begin(p)
	w.eventually("the planner is asked", func() bool { return w.asked() == ask.PrefetchAfter+1 })

	if status := w.plugin.Reserve(w.ctx, state, p, "n1"); !status.IsSuccess() {
		t.Fatal(status)
	}

	if cycleOf(w.begin(pod("next", "", high, large).Obj())).prefetch != nil {
		t.Error("a plan is prefetched")
	}
}

func TestNoPlanIsPrefetchedThatPostFilterWouldNotAskFor(t *testing.T) {
	for name, test := range map[string]struct {
		given  setup
		change func(*st.PodWrapper)
		before func(*world, *v1.Pod)
	}{
		"another priority":            {change: func(p *st.PodWrapper) { p.Priority(high + 1) }},
		"another node selector":       {change: func(p *st.PodWrapper) { p.NodeSelector(map[string]string{"hostname": "n1"}) }},
		"another namespace":           {change: func(p *st.PodWrapper) { p.Namespace("other") }},
		"a pod that never preempts":   {change: func(p *st.PodWrapper) { p.PreemptionPolicy(v1.PreemptNever) }},
		"a scheduling group":          {change: func(p *st.PodWrapper) { joinGroup(&p.Pod, "g") }},
		"a nominated pod":             {change: func(p *st.PodWrapper) { p.NominatedNodeName("n1") }},
		"mode observe":                {given: setup{args: func(a *MakeWayArgs) { a.Mode = wire.ModeObserve }}},
		"an order in flight":          {before: func(w *world, p *v1.Pod) { w.nominated(p, "n1") }},
		"a planner that is not there": {before: func(w *world, p *v1.Pod) { w.bus.plan = silent; w.cycle(p) }},
		"a pod that is gone":          {before: func(w *world, p *v1.Pod) { p.UID = "another" }},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := expecting(t, test.given, test.change)
			if test.before != nil {
				test.before(w, p)
			}

			if cycleOf(w.begin(p)).prefetch != nil {
				t.Error("a plan is prefetched")
			}
		})
	}
}

// silent is a planner that does not answer.
func silent(*wire.PlanRequest) (*wire.PlanReply, error) { return nil, context.DeadlineExceeded }

func TestAPrefetchedPlanThatFailsIsNotAskedForAgain(t *testing.T) {
	for name, plan := range map[string]func(*wire.PlanRequest) (*wire.PlanReply, error){
		"no answer": func(*wire.PlanRequest) (*wire.PlanReply, error) { return nil, context.DeadlineExceeded },
		"a panic":   func(*wire.PlanRequest) (*wire.PlanReply, error) { panic("oh") },
	} {
		t.Run(name, func(t *testing.T) {
			w, p := expecting(t, setup{}, nil)
			w.bus.plan = plan

			result, status := w.plugin.PostFilter(w.ctx, w.begin(p), p, rejecting())

			if result != nil || status.Code() != fwk.Unschedulable || w.asked() != ask.PrefetchAfter+1 {
				t.Errorf("result %+v, status %v, %d requests", result, status, w.asked())
			}
		})
	}
}
