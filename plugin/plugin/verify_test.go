package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	tf "k8s.io/kubernetes/pkg/scheduler/testing/framework"

	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

func expectVictims(t *testing.T, e *orders.Order, want ...string) {
	t.Helper()
	var got []string
	for _, uid := range e.Victims {
		got = append(got, string(uid))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("victims %v, want %v", got, want)
	}
}

// Case DP-1 of docs/conformance.md.
func TestPlannedVictimsThatTheFiltersConfirmAreActedOn(t *testing.T) {
	p := pod("p", "", high, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1"), node("n2")}, p, pod("a", "n1", mid, large).Obj(), pod("b", "n2", mid, large).Obj())
	w.bus.plan = answers(candidate("n1", "!a"), candidate("n2", "!b"))

	expectVictims(t, w.nominated(p, "n1"), "a")
}

// Case DP-3 of docs/conformance.md.
func TestAVictimThatNeedNotGoIsReprieved(t *testing.T) {
	p := pod("p", "", high, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("small", "n1", low, small).Obj(), pod("large", "n1", mid, large).Obj())
	w.bus.plan = answers(candidate("n1", "!large", "!small"))

	expectVictims(t, w.nominated(p, "n1"), "large")
}

// Case DP-5 of docs/conformance.md.
func TestPodsAreReprievedInThePlannersOrder(t *testing.T) {
	p := pod("p", "", high, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", low, small).Obj(), pod("b", "n1", low, small).Obj(),
		pod("c", "n1", mid, medium).Obj(), pod("d", "n1", high, small).Obj())
	w.bus.plan = answers(candidate("n1", "!c", "!b", "!a"))

	expectVictims(t, w.nominated(p, "n1"), "a", "c")
}

// Case DP-8 of docs/conformance.md: the planner has no column for affinity, so that the node is unmodelled.
func TestAPodWhoseAntiAffinityStandsInTheWayIsFoundByVerification(t *testing.T) {
	p := pod("p", "", high, small).Label("foo", "").Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p,
		pod("a", "n1", low, small).Label("foo", "").PodAntiAffinityExists("foo", "hostname", st.PodAntiAffinityWithRequiredReq).Obj(),
		pod("b", "n1", mid, small).Obj(), pod("c", "n1", high, small).Obj())
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Unmodelled: []wire.Candidate{candidate("n1", "b", "a")}, UnmodelledTotal: 1}, nil
	}

	expectVictims(t, w.nominated(p, "n1"), "a")
}

// Case DP-9 of docs/conformance.md.
func TestAHardSpreadIsVerifiedOnEachNode(t *testing.T) {
	zone := func(name, zone string) *v1.Node {
		n := node(name)
		n.Labels["zone"] = zone
		return n
	}
	foo := st.MakeLabelSelector().Exists("foo").Obj()
	p := pod("p", "", high, nil).Label("foo", "").
		SpreadConstraint(1, "zone", v1.DoNotSchedule, foo, nil, nil, nil, nil).
		SpreadConstraint(1, "hostname", v1.DoNotSchedule, foo, nil, nil, nil, nil).Obj()
	labelled := func(name, on string, priority int32) *v1.Pod {
		return pod(name, on, priority, nil).Label("foo", "").Obj()
	}
	w := newWorld(t, setup{}, []*v1.Node{zone("a", "1"), zone("b", "1"), zone("x", "2")}, p,
		labelled("a1", "a", mid), labelled("a2", "a", low), labelled("b1", "b", low), labelled("x1", "x", high), labelled("x2", "x", high))
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Unmodelled: []wire.Candidate{candidate("a", "a1", "a2"), candidate("b", "b1"), candidate("x")}}, nil
	}

	expectVictims(t, w.nominated(p, "a"), "a2")
}

// gatekeeper is a third-party filter that rejects every node that has a pod of some name.
type gatekeeper struct{ pod string }

func (gatekeeper) Name() string { return "Gatekeeper" }

func (g gatekeeper) Filter(_ context.Context, _ fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	for _, info := range node.GetPods() {
		if info.GetPod().Name == g.pod {
			return fwk.NewStatus(fwk.Unschedulable, "pod "+g.pod+" is there")
		}
	}
	return nil
}

func withGatekeeper(pod string) []tf.RegisterPluginFunc {
	return []tf.RegisterPluginFunc{tf.RegisterFilterPlugin("Gatekeeper", func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
		return gatekeeper{pod}, nil
	})}
}

// Case DP-17 of docs/conformance.md.
func TestVictimsThatOnlyAThirdPartyFilterKnowsAreFound(t *testing.T) {
	for name, plan := range map[string]*wire.PlanReply{
		"on an unmodelled node":              {Unmodelled: []wire.Candidate{candidate("n1", "b", "a")}},
		"where the planned set does not fit": {Candidates: []wire.Candidate{candidate("n1", "!b", "a")}},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("p", "", high, small).Obj()
			w := newWorld(t, setup{filters: withGatekeeper("a")}, []*v1.Node{node("n1")}, p, pod("a", "n1", low, small).Obj(), pod("b", "n1", mid, small).Obj())
			w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) { copied := *plan; return &copied, nil }

			expectVictims(t, w.nominated(p, "n1"), "a")
		})
	}
}

func TestAPodThatPolicyProtectsIsNeverRemoved(t *testing.T) {
	p := pod("p", "", high, small).Obj()
	w := newWorld(t, setup{filters: withGatekeeper("a")}, []*v1.Node{node("n1")}, p, pod("a", "n1", low, small).Obj(), pod("b", "n1", mid, small).Obj())
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Unmodelled: []wire.Candidate{candidate("n1", "b")}}, nil
	}

	result, status := w.cycle(p)

	if status.Code() != fwk.UnschedulableAndUnresolvable || result.Mode() != fwk.ModeOverride || result.NominatedNodeName != "" {
		t.Errorf("result %+v, status %v, want a refusal that stops the chain", result, status)
	}
}

func TestWhatThePluginsOwnCheckOfARuleForbidsIsNotRemoved(t *testing.T) {
	for name, removable := range map[string]wire.Removable{
		"a pod of equal priority": {UID: "a", Rule: verify.RuleLowerPriority, Victim: true},
		"an unknown rule":         {UID: "b", Rule: "because", Victim: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("p", "", mid, large).Obj()
			w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", mid, medium).Obj(), pod("b", "n1", low, medium).Obj())
			w.bus.plan = answers(wire.Candidate{Node: "n1", Removable: []wire.Removable{removable}})

			if _, status := w.cycle(p); status.Code() != fwk.UnschedulableAndUnresolvable {
				t.Errorf("status %v, want a refusal", status)
			}
		})
	}
}

func TestPodsThatViolateABudgetAreReprievedFirst(t *testing.T) {
	p := pod("p", "", high, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("more", "n1", mid, medium).Obj(), pod("budget", "n1", low, medium).Obj())
	plan := candidate("n1", "!more", "!budget")
	plan.Removable[1].PDBViolating = true
	w.bus.plan = answers(plan)

	expectVictims(t, w.nominated(p, "n1"), "more")
}

func TestAwaitedPodsCountAsGoneAndAreNotOrderedAgain(t *testing.T) {
	p := pod("p", "", high, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", low, medium).Obj(), pod("b", "n1", low, medium).Obj())
	plan := candidate("n1", "!b")
	plan.Awaited = []wire.Awaited{{UID: "a", OrderID: "ord-other"}}
	w.bus.plan = answers(plan)
	w.plugin.engine.inflight.Begin(&orders.Order{OrderID: "ord-other", Preemptor: wire.PodRef{Namespace: "default", Name: "other", UID: "other"}, Node: "n1", Removal: orders.Removal{Victims: []types.UID{"a"}}, OpensAt: time.Now().Add(time.Minute)})

	e := w.nominated(p, "n1")

	// What a frees together with the free 100 is room for p: b is offered back.
	expectVictims(t, e)
	if e.Awaited["a"] != "ord-other" {
		t.Errorf("awaited %v", e.Awaited)
	}
}

func TestCandidatesAreRankedAnewWhereVerificationChangedOne(t *testing.T) {
	p := pod("p", "", high, small).Obj()
	w := newWorld(t, setup{filters: withGatekeeper("a")}, []*v1.Node{node("n1"), node("n2")}, p,
		pod("a", "n1", mid, whole).Obj(), pod("b", "n2", low, small).Obj(), pod("c", "n2", low, large).Obj(), pod("d", "n2", high, small).Obj())
	first := candidate("n1", "!a")
	first.Removable = append(first.Removable, wire.Removable{UID: "not-there", Rule: verify.RuleLowerPriority, Victim: true})
	w.bus.plan = answers(first, candidate("n2", "c", "!b"))

	expectVictims(t, w.nominated(p, "n2"), "b")
}

func TestAFewCandidatesAreAskedForAndAllOnlyWhereTheBestIsNotAsPlanned(t *testing.T) {
	p := pod("p", "", high, small).Obj()
	nodes := []*v1.Node{node("n1"), node("n2"), node("n3"), node("n4")}
	w := newWorld(t, setup{filters: withGatekeeper("a")}, nodes, p, pod("a", "n1", mid, whole).Obj(),
		pod("b", "n2", mid, whole).Obj(), pod("c", "n3", mid, whole).Obj(), pod("d", "n4", low, whole).Obj())
	changed := candidate("n1", "!a")
	changed.Removable = append(changed.Removable, wire.Removable{UID: "not-there", Rule: verify.RuleLowerPriority, Victim: true})
	all := []wire.Candidate{changed, candidate("n2", "!b"), candidate("n3", "!c"), candidate("n4", "!d")}
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Candidates: all[:min(len(all), int(request.MaxCandidates))]}, nil
	}

	w.nominated(p, "n4")

	if len(w.bus.requests) != 2 || w.bus.requests[0].MaxCandidates != firstCandidates || w.bus.requests[1].MaxCandidates != 16 {
		t.Errorf("%d requests, want one for %d candidates and one for 16", len(w.bus.requests), firstCandidates)
	}
}

func TestThePlannerIsAskedOnceMoreWithoutTheNodesThatFailed(t *testing.T) {
	p := pod("p", "", high, small).Obj()
	w := newWorld(t, setup{filters: withGatekeeper("a")}, []*v1.Node{node("n1"), node("n2"), node("n3")}, p,
		pod("a", "n1", high, whole).Obj(), pod("b", "n2", low, whole).Obj(), pod("c", "n3", mid, whole).Obj(), pod("x", "n1", low, nil).Obj())
	asked := 0
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		if asked++; asked == 1 {
			return &wire.PlanReply{Candidates: []wire.Candidate{candidate("n1", "!x")}}, nil
		}
		return &wire.PlanReply{Candidates: []wire.Candidate{candidate("n2", "!b")}}, nil
	}

	w.nominated(p, "n2")

	if len(w.bus.requests) != 2 {
		t.Fatalf("%d requests, want 2", len(w.bus.requests))
	}
	if first := w.bus.requests[0].Classes[0].Nodes; !first.AllBut || len(first.Names) != 0 {
		t.Errorf("first asked for %+v, want all", first)
	}
	if second := w.bus.requests[1].Classes[0].Nodes; !second.AllBut || !slices.Equal(second.Names, []string{"n1"}) {
		t.Errorf("then asked for %+v, want all but n1", second)
	}
}

func TestRoomHeldByANominatedPodIsNotGivenAway(t *testing.T) {
	p := pod("p", "", high, large).Obj()
	other := pod("other", "", high, medium).NominatedNodeName("n1").Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, other, pod("a", "n1", low, medium).Obj(), pod("b", "n1", low, small).Obj())
	enqueue(w.ctx, w.queue, other)
	w.bus.plan = answers(candidate("n1", "!a", "b"))

	expectVictims(t, w.nominated(p, "n1"), "a", "b")

	request := w.bus.requests[0]
	if len(request.Nominations) != 1 || request.Nominations[0].UID != "other" || request.Nominations[0].Node != "n1" {
		t.Errorf("nominations in the request: %+v", request.Nominations)
	}
}

// chooser is an extender that answers as it is told.
type chooser struct {
	tf.FakeExtender
	answer    func(map[string]*extenderv1.Victims) (map[string]*extenderv1.Victims, error)
	ignorable bool
	asked     int
}

func (c *chooser) Name() string              { return "chooser" }
func (c *chooser) SupportsPreemption() bool  { return true }
func (c *chooser) IsInterested(*v1.Pod) bool { return true }
func (c *chooser) IsIgnorable() bool         { return c.ignorable }
func (c *chooser) ProcessPreemption(_ *v1.Pod, victims map[string]*extenderv1.Victims, _ fwk.NodeInfoLister) (map[string]*extenderv1.Victims, error) {
	c.asked++
	return c.answer(victims)
}

func TestAnExtenderChoosesOnceAmongAllVerifiedCandidates(t *testing.T) {
	p := pod("p", "", high, large).Obj()
	pods := []*v1.Pod{p, pod("a", "n1", low, large).Obj(), pod("b", "n2", mid, large).Obj(), pod("x", "n2", mid, small).Obj()}
	plan := answers(candidate("n1", "!a"), candidate("n2", "x", "!b"))
	world := func(c *chooser) *world {
		copies := make([]*v1.Pod, len(pods))
		for i := range pods {
			copies[i] = pods[i].DeepCopy()
		}
		w := newWorld(t, setup{extenders: []fwk.Extender{c}}, []*v1.Node{node("n1"), node("n2")}, copies...)
		w.bus.plan = plan
		return w
	}

	t.Run("it takes a node away", func(t *testing.T) {
		c := &chooser{answer: func(v map[string]*extenderv1.Victims) (map[string]*extenderv1.Victims, error) {
			delete(v, "n1")
			return v, nil
		}}
		w := world(c)
		expectVictims(t, w.nominated(p, "n2"), "b")
		if c.asked != 1 {
			t.Errorf("asked %d times", c.asked)
		}
	})
	t.Run("a set that leaves what may be removed is dropped", func(t *testing.T) {
		w := world(&chooser{answer: func(v map[string]*extenderv1.Victims) (map[string]*extenderv1.Victims, error) {
			v["n1"].Pods = append(v["n1"].Pods, pod("protected", "n1", low, small).Obj())
			return v, nil
		}})
		expectVictims(t, w.nominated(p, "n2"), "b")
	})
	t.Run("it leaves none", func(t *testing.T) {
		c := &chooser{answer: func(map[string]*extenderv1.Victims) (map[string]*extenderv1.Victims, error) { return nil, nil }}
		w := world(c)
		result, status := w.cycle(p)
		if result.NominatedNodeName != "" || status.Code() != fwk.UnschedulableAndUnresolvable || c.asked != 1 {
			t.Errorf("result %+v, status %v, asked %d times", result, status, c.asked)
		}
	})
	t.Run("its error leaves the pod to others", func(t *testing.T) {
		w := world(&chooser{answer: func(map[string]*extenderv1.Victims) (map[string]*extenderv1.Victims, error) {
			return nil, errors.New("no")
		}})
		result, status := w.cycle(p)
		if result != nil || status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "chooser") {
			t.Errorf("result %+v, status %v", result, status)
		}
	})
	t.Run("its error is ignored where it may be", func(t *testing.T) {
		w := world(&chooser{ignorable: true, answer: func(map[string]*extenderv1.Victims) (map[string]*extenderv1.Victims, error) {
			return nil, errors.New("no")
		}})
		expectVictims(t, w.nominated(p, "n1"), "a")
	})
}
