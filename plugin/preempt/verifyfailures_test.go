package preempt

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	tf "k8s.io/kubernetes/pkg/scheduler/testing/framework"
	clocktesting "k8s.io/utils/clock/testing"

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
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		reply := &wire.PlanReply{}
		for _, n := range nodes {
			if slices.Contains(request.Nodes.Names, n.Name) == request.Nodes.AllBut || len(reply.Candidates) == request.MaxCandidates {
				continue
			}
			reply.Candidates = append(reply.Candidates, candidate(n.Name, "!on-"+n.Name))
		}
		if len(reply.Candidates) == 0 {
			reply.Status, reply.Refusal = wire.StatusRefused, &wire.Refusal{Reason: "NotEnoughRoom", Message: "no node"}
		}
		return reply, nil
	}
	return w, p
}

func TestANodeThatManyOthersRankBeforeIsFoundInOneCycle(t *testing.T) {
	w, p := fullNodes(t, 40, licensed{nodes: []string{"n39"}})

	expectVictims(t, w.nominated(p, "n39"), "on-n39")
}

func TestVerificationThatRanOutOfTimeGoesOnWhereItStopped(t *testing.T) {
	w, p := fullNodes(t, 40, licensed{nodes: []string{"n39"}, takes: 150 * time.Millisecond})

	result, status := w.cycle(p)

	if result != nil || status.Code() != fwk.Unschedulable {
		t.Fatalf("result %+v, status %v, want (nil, Unschedulable): nodes are left", result, status)
	}
	failed := w.plugin.engine.verifyFailures.of(p.UID, func(string) (int64, bool) {
		node, _ := w.plugin.handle.SnapshotSharedLister().NodeInfos().Get("n00")
		return node.GetGeneration(), true
	})
	if len(failed) == 0 || !strings.Contains(status.Message(), "of 40 nodes") || !strings.Contains(status.Message(), "node(s) failed the scheduler's filters (Licences)") {
		t.Errorf("message %q; nodes are remembered: %t", status.Message(), w.plugin.engine.verifyFailures.has(p.UID))
	}
	w.eventually("the pod is activated to go on", func() bool { return w.activator.of("p") == 1 })
	asked := len(w.bus.requests)
	for range 20 {
		if result, status = w.cycle(p); status.IsSuccess() {
			break
		}
	}
	if !status.IsSuccess() || result.NominatedNodeName != "n39" {
		t.Errorf("result %+v, status %v, want n39", result, status)
	}
	if again := w.bus.requests[asked].Nodes; !again.AllBut || len(again.Names) == 0 {
		t.Errorf("the second cycle asks for %+v, want all but those that failed", again)
	}
}

func TestAPodThatNoNodeWouldDoForIsRefusedOnceAllAreVerifiedAndTriedAnewLater(t *testing.T) {
	w, p := fullNodes(t, 25, licensed{})

	for range 2 {
		w.bus.requests = nil
		result, status := w.cycle(p)

		if status.Code() != fwk.UnschedulableAndUnresolvable || result.Mode() != fwk.ModeOverride || result.NominatedNodeName != "" {
			t.Fatalf("result %+v, status %v, want a refusal that stops the chain", result, status)
		}
		if !strings.Contains(status.Message(), "preemption would not help on any of 25 nodes that were verified with the scheduler's filters: 25 node(s) failed the scheduler's filters (Licences) with all removable pods gone") {
			t.Errorf("message %q", status.Message())
		}
		if len(w.bus.requests) != 3 || len(w.bus.requests[0].Nodes.Names) != 0 {
			t.Errorf("%d requests, the first for %+v, want 3, the first for all", len(w.bus.requests), w.bus.requests[0].Nodes)
		}
	}
}

func TestARefusalOfTheNodesThatAreLeftIsFinalAndSaysWhatVerificationFound(t *testing.T) {
	w, p := fullNodes(t, 25, licensed{})
	plan := w.bus.plan
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		if len(request.Nodes.Names) > 10 {
			return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: "NotEnoughRoom", Message: "too little room"}}, nil
		}
		return plan(request)
	}

	_, status := w.cycle(p)

	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "too little room") || !strings.Contains(status.Message(), "19 node(s) failed the scheduler's filters (Licences)") {
		t.Errorf("status %v", status)
	}
	if w.plugin.engine.verifyFailures.has(p.UID) {
		t.Error("a later try does not start anew")
	}
	if w.plugin.engine.retry.count() != 1 {
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

func TestNothingIsPrefetchedForAPodWithNodesThatFailed(t *testing.T) {
	w, p := fullNodes(t, 1, licensed{})
	if !w.plugin.mayPrefetch(p) {
		t.Fatal("nothing would be prefetched in any case")
	}

	w.plugin.engine.verifyFailures.add(p.UID, "n00", failure{cause: causeFilters}, 1)

	if w.plugin.mayPrefetch(p) {
		t.Error("a question with all nodes is prefetched")
	}
}

func TestEachCauseIsSaidWithTheNumberOfItsNodes(t *testing.T) {
	failed := map[string]failure{"gone": {cause: causeNodeGone}}
	for i := range 12 {
		failed[fmt.Sprint(i)] = failure{causeFilters, "VolumeBinding"}
	}
	for i := range 3 {
		failed[fmt.Sprint("many", i)] = failure{cause: causeTooMany}
	}

	want := "12 node(s) failed the scheduler's filters (VolumeBinding) with all removable pods gone, 3 node(s) needed more victims than are allowed, 1 node(s) no longer existed"
	if got := summary(failed); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWhyACandidateDoesNotStand(t *testing.T) {
	p := pod("p", "", high, size("400")).Obj()
	w := newWorld(t, setup{filters: withGatekeeper("keeps")}, []*v1.Node{node("full"), node("kept"), node("free")}, p,
		pod("a", "full", low, medium).Obj(), pod("b", "full", low, medium).Obj(), pod("keeps", "kept", high, nil).Obj(), pod("x", "kept", low, small).Obj(), pod("y", "free", low, small).Obj())
	state, other := w.state(p), pod("c", "free", low, small).Obj()
	v := verifier{handle: w.framework, state: state, pod: p, now: time.Now(), remover: w.plugin.engine.inflight.remover}
	few := candidate("full", "!a", "!b")
	few.MaxVictims = 1
	awaiting := candidate("full", "!a")
	awaiting.Awaited = []wire.Awaited{{UID: "b", OrderID: "ord-none"}}
	ended, cancel := context.WithCancel(w.ctx)
	cancel()
	for name, test := range map[string]struct {
		ctx       context.Context
		candidate wire.Candidate
		want      failure
	}{
		"a filter":               {w.ctx, candidate("kept", "!x"), failure{causeFilters, "Gatekeeper"}},
		"two pods must go":       {w.ctx, candidate("full", "!a", "!b"), failure{}},
		"no pod has to go":       {w.ctx, candidate("free", "!y"), failure{cause: causeNoNeed}},
		"no pod is there":        {w.ctx, candidate("full", "!"+string(other.UID)), failure{cause: causeNothing}},
		"no such node":           {w.ctx, candidate("gone", "!a"), failure{cause: causeNodeGone}},
		"an unknown order":       {w.ctx, awaiting, failure{cause: causeAwaited}},
		"the time is over":       {ended, candidate("kept", "!x"), failure{cause: causeUnfinished}},
		"too many would have to": {w.ctx, few, failure{cause: causeTooMany}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, why := v.check(test.ctx, test.candidate, true); why != test.want {
				t.Errorf("%+v, want %+v", why, test.want)
			}
		})
	}
}

func TestWhatFailedIsForgottenWithTimeAndWhereTheNodeChanges(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	memory := newVerifyFailures(clock)
	generations := map[string]int64{"a": 1, "b": 1}
	of := func() map[string]failure {
		return memory.of("p", func(node string) (int64, bool) { g, ok := generations[node]; return g, ok })
	}
	memory.add("p", "a", failure{cause: causeFilters}, 1)
	memory.add("p", "b", failure{cause: causeFilters}, 1)
	if len(of()) != 2 {
		t.Fatalf("%v", of())
	}

	generations["a"]++
	if failed := of(); len(failed) != 1 || failed["b"].cause != causeFilters {
		t.Errorf("after a change of a: %v", failed)
	}
	clock.SetTime(clock.Now().Add(failureMemory))
	if failed := of(); len(failed) != 0 || memory.has("p") || memory.total != 0 {
		t.Errorf("%s later: %v, %d in all", failureMemory, failed, memory.total)
	}
}

func TestUnfinishedVerificationOfManyPodsTakesAFifthOfTheTime(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	memory := newVerifyFailures(clocktesting.NewFakePassiveClock(now))
	var last time.Time
	for i := range 10 {
		uid := types.UID(fmt.Sprint(i))
		memory.add(uid, "n", failure{cause: causeFilters}, 1)
		last = memory.continueAt(uid, time.Second)
		if entry := memory.pods[uid]; !entry.until.After(last) {
			t.Fatalf("what failed is forgotten at %s, before the pod goes on at %s", entry.until, last)
		}
	}

	if waits := last.Sub(now); waits != 40*time.Second {
		t.Errorf("the tenth goes on after %s, want 40 s", waits)
	}
	if at := newVerifyFailures(clocktesting.NewFakePassiveClock(now)).continueAt("p", time.Millisecond); at != now.Add(verifyPause) {
		t.Errorf("a short one goes on after %s, want %s", at.Sub(now), verifyPause)
	}
}

func TestWhatIsRememberedOfFailedNodesIsBounded(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	memory := newVerifyFailures(clock)
	for i := range 3 * maxFailures {
		if i%1000 == 0 {
			clock.SetTime(clock.Now().Add(time.Millisecond))
		}
		memory.add(types.UID(fmt.Sprint(i/1000)), fmt.Sprint(i), failure{cause: causeFilters}, 1)
	}

	if memory.total > maxFailures || len(memory.pods) > maxFailures/1000+1 {
		t.Errorf("%d nodes of %d pods", memory.total, len(memory.pods))
	}
	if memory.has("0") || !memory.has(types.UID(fmt.Sprint(3*maxFailures/1000-1))) {
		t.Error("the latest are not the ones that are kept")
	}
}
