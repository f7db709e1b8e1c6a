package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	tf "k8s.io/kubernetes/pkg/scheduler/testing/framework"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// licensed is a third-party filter of which the planner knows nothing: only some nodes have the licence. It takes
// its time.
type licensed struct {
	nodes []string
	takes time.Duration
}

func (licensed) Name() string { return "Licences" }

func (l licensed) Filter(_ context.Context, _ fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	time.Sleep(l.takes)
	if slices.Contains(l.nodes, node.Node().Name) {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, "no licence")
}

// fullNodes is a world of so many full nodes, each with one pod that may be removed, whose planner ranks them by name
// and answers with those that it is asked about.
func fullNodes(t *testing.T, count int, filter licensed) (*world, *v1.Pod) {
	t.Helper()
	p := pod("p", "", high, large).Obj()
	pods := []*v1.Pod{p}
	var nodes []*v1.Node
	for i := range count {
		name := fmt.Sprintf("n%02d", i)
		nodes = append(nodes, node(name))
		pods = append(pods, pod("on-"+name, name, low, whole).Obj())
	}
	w := newWorld(t, setup{filters: []tf.RegisterPluginFunc{tf.RegisterFilterPlugin("Licences",
		func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return filter, nil })}}, nodes, pods...)
	w.bus.plan = ranksByName(nodes)
	return w, p
}

// withLicences is the filter by which only some nodes have the licence.
func withLicences(nodes []string) []tf.RegisterPluginFunc {
	return []tf.RegisterPluginFunc{tf.RegisterFilterPlugin("Licences",
		func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
			return licensed{nodes: nodes}, nil
		})}
}

// ranksByName is a planner that offers the nodes that it is asked about, in their order, each for the one pod on it.
func ranksByName(nodes []*v1.Node) func(*wire.PlanRequest) (*wire.PlanReply, error) {
	return func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		reply, named := &wire.PlanReply{}, sets.New(request.Classes[0].Nodes.Names...)
		for _, n := range nodes {
			if named.Has(n.Name) == request.Classes[0].Nodes.AllBut || len(reply.Candidates) == int(request.MaxCandidates) {
				continue
			}
			reply.Candidates = append(reply.Candidates, candidate(n.Name, "!on-"+n.Name))
		}
		if len(reply.Candidates) == 0 {
			reply.Status, reply.Refusal = wire.StatusRefused, &wire.Refusal{Reason: "NotEnoughRoom", Message: "no node"}
		}
		return reply, nil
	}
}

func TestANodeThatManyOthersRankBeforeIsFoundInOneCycle(t *testing.T) {
	w, p := fullNodes(t, 40, licensed{nodes: []string{"n39"}})

	expectVictims(t, w.nominated(p, "n39"), "on-n39")
}

func TestVerificationThatRanOutOfTimeGoesOnWhereItStopped(t *testing.T) {
	w, p := fullNodes(t, 40, licensed{nodes: []string{"n39"}, takes: 250 * time.Millisecond})
	w.plugin.args.PlanTimeout.Duration = 100 * time.Millisecond

	result, status := w.cycle(p)

	if result != nil || status.Code() != fwk.Unschedulable {
		t.Fatalf("result %+v, status %v, want (nil, Unschedulable): nodes are left", result, status)
	}
	known := len(w.plugin.failedBefore(func() string { return verify.ClassOf(p) })) > 0
	if !known || !strings.Contains(status.Message(), "of 40 nodes") || !strings.Contains(status.Message(), "node(s) failed the scheduler's filters (Licences)") {
		t.Errorf("message %q; nodes are remembered: %t", status.Message(), known)
	}
	w.eventually("the pod is activated to go on", func() bool { return w.activator.of("p") == 1 })
	asked := len(w.bus.requests)
	for range 20 {
		w.plugin.engine.verified.budget = &verify.Budget{} // the time has passed that pays for the cycle before
		if result, status = w.cycle(p); status.IsSuccess() {
			break
		}
	}
	if !status.IsSuccess() || result.NominatedNodeName != "n39" {
		t.Fatalf("result %+v, status %v, want n39", result, status)
	}
	if again := w.bus.requests[asked].Classes[0].Nodes; !again.AllBut || len(again.Names) == 0 {
		t.Errorf("the second cycle asks for %+v, want all but those that failed", again)
	}
}

// anew has what failed be settled for long enough, and the budget free.
func (w *world) anew() {
	e := w.plugin.engine
	e.verified.failures.IsEmpty(e.clock.Now().Add(verify.SettledMemory))
	e.verified.budget = &verify.Budget{}
}

func TestAPodThatNoNodeWouldDoForIsRefusedOnceAllAreVerifiedAndTriedAnewLater(t *testing.T) {
	w, p := fullNodes(t, 25, licensed{})

	for try, asks := range []int{3, 0, 3} {
		if try == 2 {
			w.anew()
		}
		w.bus.requests = nil
		result, status := w.cycle(p)

		if status.Code() != fwk.UnschedulableAndUnresolvable || result.Mode() != fwk.ModeOverride || result.NominatedNodeName != "" {
			t.Fatalf("result %+v, status %v, want a refusal that stops the chain", result, status)
		}
		if !strings.Contains(status.Message(), "preemption would not help on any of 25 nodes that were verified with the scheduler's filters: 25 node(s) failed the scheduler's filters (Licences) with all removable pods gone") {
			t.Errorf("message %q", status.Message())
		}
		if len(w.bus.requests) != asks || asks > 0 && len(w.bus.requests[0].Classes[0].Nodes.Names) != 0 {
			t.Errorf("try %d: %d requests, want %d, the first for all", try, len(w.bus.requests), asks)
		}
	}
}

func TestARefusalOfTheNodesThatAreLeftIsFinalAndSaysWhatVerificationFound(t *testing.T) {
	w, p := fullNodes(t, 25, licensed{nodes: []string{"n24"}})
	plan := w.bus.plan
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		if len(request.Classes[0].Nodes.Names) > 10 {
			return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: "NotEnoughRoom", Message: "too little room"}}, nil
		}
		return plan(request)
	}

	_, status := w.cycle(p)

	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "too little room") || !strings.Contains(status.Message(), "19 node(s) failed the scheduler's filters (Licences)") {
		t.Errorf("status %v", status)
	}
	if w.anew(); !w.plugin.engine.verified.failures.IsEmpty(w.plugin.engine.clock.Now()) {
		t.Error("a later try does not start anew")
	}
	if w.plugin.engine.memory.Retries.Count() != 1 {
		t.Error("no time brings it back, though no event tells when planner and filters agree")
	}
}

func TestAPlannerThatNamesTheSameNodesAgainIsNotAskedForEver(t *testing.T) {
	w, p := fullNodes(t, 25, licensed{})
	w.bus.plan = answers(candidate("n00", "!on-n00"))

	result, status := w.cycle(p)

	if result != nil || status.Code() != fwk.Unschedulable || len(w.bus.requests) != 2 {
		t.Errorf("result %+v, status %v after %d requests, want (nil, Unschedulable) after 2", result, status, len(w.bus.requests))
	}
}

func TestAPlanIsPrefetchedWithoutNodesThatFailedForPodsOfItsClass(t *testing.T) {
	w, p := expecting(t, setup{}, nil)
	generation, _ := w.plugin.generationOf("n2")
	w.plugin.engine.verified.failures.Add(time.Now(), verify.ClassOf(p), "n2", verify.Failure{Cause: verify.CauseFilters}, generation)

	state := w.begin(p)
	w.eventually("the planner is asked", func() bool { return w.asked() == ask.PrefetchAfter+1 })
	result, status := w.plugin.PostFilter(w.ctx, state, p, rejecting())

	if !status.IsSuccess() || result.NominatedNodeName != "n1" || w.asked() != ask.PrefetchAfter+1 {
		t.Errorf("result %+v, status %v after %d requests; the prefetched plan is the one that is used", result, status, w.asked())
	}
}

func TestWhyACandidateDoesNotStand(t *testing.T) {
	p := pod("p", "", high, size("400")).Obj()
	w := newWorld(t, setup{filters: withGatekeeper("keeps")}, []*v1.Node{node("full"), node("kept"), node("free")}, p,
		pod("a", "full", low, medium).Obj(), pod("b", "full", low, medium).Obj(), pod("keeps", "kept", high, nil).Obj(), pod("x", "kept", low, small).Obj(), pod("y", "free", low, small).Obj())
	state, other := w.state(p), pod("c", "free", low, small).Obj()
	v := verify.Verifier{Handle: w.framework, State: state, Pod: p, Now: time.Now(), Remover: w.plugin.engine.inflight.Remover, Left: w.plugin.engine.inflight.Left()}
	few := candidate("full", "!a", "!b")
	few.MaxVictims = 1
	awaiting := candidate("full", "!a")
	awaiting.Awaited = []wire.Awaited{{UID: "b", OrderID: "ord-none"}}
	ended, cancel := context.WithCancel(w.ctx)
	cancel()
	for name, test := range map[string]struct {
		ctx       context.Context
		candidate wire.Candidate
		want      verify.Failure
	}{
		"a filter":               {w.ctx, candidate("kept", "!x"), verify.Failure{Cause: verify.CauseFilters, Plugin: "Gatekeeper"}},
		"two pods must go":       {w.ctx, candidate("full", "!a", "!b"), verify.Failure{}},
		"no pod has to go":       {w.ctx, candidate("free", "!y"), verify.Failure{Cause: verify.CauseNoNeed}},
		"no pod is there":        {w.ctx, candidate("full", "!"+string(other.UID)), verify.Failure{Cause: verify.CauseNothing}},
		"no such node":           {w.ctx, candidate("gone", "!a"), verify.Failure{Cause: verify.CauseNodeGone}},
		"an unknown order":       {w.ctx, awaiting, verify.Failure{Cause: verify.CauseAwaited}},
		"the time is over":       {ended, candidate("kept", "!x"), verify.Failure{Cause: verify.CauseUnfinished}},
		"too many would have to": {w.ctx, few, verify.Failure{Cause: verify.CauseTooMany}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, why := v.Check(test.ctx, test.candidate, true); why != test.want {
				t.Errorf("%+v, want %+v", why, test.want)
			}
		})
	}
}

func TestAPreemptorMayFitBesideAPodThatAnotherPlanTakes(t *testing.T) {
	p := pod("p", "", high, medium).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("full")}, p, pod("a", "full", low, medium).Obj(), pod("b", "full", low, medium).Obj())
	v := verify.Verifier{Handle: w.framework, State: w.state(p), Pod: p, Now: time.Now(), Remover: w.plugin.engine.inflight.Remover, Left: w.plugin.engine.inflight.Left()}
	planned := candidate("full", "!a")
	planned.Awaited = []wire.Awaited{{UID: "b", OrderID: "dec-none"}}

	found, why := v.Check(w.ctx, planned, false)

	if found == nil || len(found.Victims) != 1 || len(found.Awaited) != 0 {
		t.Errorf("found %+v, failure %+v; want the victim and no other pod to go", found, why)
	}
}

func TestAVictimOfASucceededOrderThatThePlannerSeesNoMoreMakesRoom(t *testing.T) {
	p := pod("p", "", high, medium).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("full")}, p, pod("a", "full", low, medium).Obj(), pod("b", "full", low, medium).Obj(), pod("c", "full", low, small).Obj())
	v := verify.Verifier{Handle: w.framework, State: w.state(p), Pod: p, Now: time.Now(), Left: map[types.UID]string{"b": "ord-b"}}

	found, why := v.Check(w.ctx, candidate("full", "!c", "a"), true)

	if found == nil || len(found.Victims) != 0 || len(found.Awaited) != 1 || found.Awaited[0].OrderID != "ord-b" {
		t.Errorf("found %+v, failure %+v; want the room of b and no victim", found, why)
	}
}

func TestWhichPodsMakeNoRoomThoughTheirOrderSucceeded(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, p, b *v1.Pod){
		"overdue": func(_ *testing.T, _, b *v1.Pod) {
			b.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(-2 * wire.LeavingSlack)}
		},
		"of the preemptor's group": func(t *testing.T, p, b *v1.Pod) {
			joinGroup(p, "gang")
			joinGroup(b, "gang")
			if minor.GroupName(p) == "" {
				t.Skip("this version of Kubernetes places no groups")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, b := pod("p", "", high, medium).Obj(), pod("b", "full", low, medium).Obj()
			change(t, p, b)
			w := newWorld(t, setup{}, []*v1.Node{node("full")}, p, pod("a", "full", low, medium).Obj(), b)
			v := verify.Verifier{Handle: w.framework, State: w.state(p), Pod: p, Now: time.Now(), Left: map[types.UID]string{"b": "ord-b"}}

			found, why := v.Check(w.ctx, candidate("full", "!a"), true)

			if found == nil || len(found.Victims) != 1 || len(found.Awaited) != 0 {
				t.Errorf("found %+v, failure %+v; want the victim to go and the other pod to stay", found, why)
			}
		})
	}
}

func TestANodeWhereAnotherPlanTakesTheRoomIsAskedAboutAgainInTheNextCycle(t *testing.T) {
	p := pod("p", "", high, size("400")).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("full")}, p, pod("a", "full", low, medium).Obj(), pod("b", "full", low, medium).Obj())
	planned := candidate("full", "!a")
	planned.Awaited = []wire.Awaited{{UID: "b", OrderID: "dec-none"}}
	w.bus.plan = answers(planned)

	for want := range 2 {
		_, status := w.cycle(p)

		if len(w.bus.requests) != want+1 || !strings.Contains(status.Message(), "1 node(s) awaited pods that no order in flight removes") {
			t.Errorf("%d requests, status %v; want the planner asked in each cycle", len(w.bus.requests), status)
		}
	}
}

func TestWhatFailedForAReplicaIsNotAskedAboutForTheNext(t *testing.T) {
	w, p := fullNodes(t, 25, licensed{})
	w.cycle(p)
	asked := len(w.bus.requests)
	second := p.DeepCopy()
	second.Name, second.UID = "p2", "p2"
	if _, err := w.client.CoreV1().Pods("default").Create(w.ctx, second, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the second is known", func() bool { return w.plugin.engine.current(orders.RefOf(second)) != nil })

	_, status := w.cycle(second)

	if len(w.bus.requests) != asked || !strings.Contains(status.Message(), "25 node(s) failed the scheduler's filters (Licences)") {
		t.Errorf("%d more requests, status %v", len(w.bus.requests)-asked, status)
	}
}

func TestWithTheTimeOfAllPodsUsedUpTheNextPluginMayActInTheSameCycle(t *testing.T) {
	w, p := fullNodes(t, 25, licensed{nodes: []string{"n24"}})
	w.plugin.engine.verified.budget.Spent(time.Now(), time.Minute)

	result, status := w.cycle(p)

	if result != nil || status.Code() != fwk.Unschedulable || len(w.bus.requests) != 1 {
		t.Errorf("result %+v, status %v after %d requests, want (nil, Unschedulable) after the first candidates", result, status, len(w.bus.requests))
	}
	if result, status = w.cycle(p); result != nil || status.Code() != fwk.Unschedulable || len(w.bus.requests) != 1 {
		t.Errorf("the next cycle: result %+v, status %v after %d requests, want none more", result, status, len(w.bus.requests))
	}
	if w.plugin.engine.memory.Retries.Count() != 1 {
		t.Error("the pod is not tried again")
	}
}

func TestAPlanThatStandsAtOnceIsNotHeldUpByTheTimeOfOthers(t *testing.T) {
	w, p := fullNodes(t, 25, licensed{nodes: []string{"n00"}})
	w.plugin.engine.verified.budget.Spent(time.Now(), time.Minute)

	expectVictims(t, w.nominated(p, "n00"), "on-n00")
}
