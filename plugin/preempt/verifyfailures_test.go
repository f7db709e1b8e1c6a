package preempt

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
		reply, named := &wire.PlanReply{}, set(request.Nodes.Names)
		for _, n := range nodes {
			if named[n.Name] == request.Nodes.AllBut || len(reply.Candidates) == int(request.MaxCandidates) {
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

	result, status := w.cycle(p)

	if result != nil || status.Code() != fwk.Unschedulable {
		t.Fatalf("result %+v, status %v, want (nil, Unschedulable): nodes are left", result, status)
	}
	known := w.plugin.engine.verifyFailures.has(verificationClass(p, nil))
	if !known || !strings.Contains(status.Message(), "of 40 nodes") || !strings.Contains(status.Message(), "node(s) failed the scheduler's filters (Licences)") {
		t.Errorf("message %q; nodes are remembered: %t", status.Message(), known)
	}
	w.eventually("the pod is activated to go on", func() bool { return w.activator.of("p") == 1 })
	asked := len(w.bus.requests)
	for range 20 {
		w.plugin.engine.verifyBudget = newVerifyBudget(w.plugin.engine.clock) // the time has passed that pays for the cycle before
		if result, status = w.cycle(p); status.IsSuccess() {
			break
		}
	}
	if !status.IsSuccess() || result.NominatedNodeName != "n39" {
		t.Fatalf("result %+v, status %v, want n39", result, status)
	}
	if again := w.bus.requests[asked].Nodes; !again.AllBut || len(again.Names) == 0 {
		t.Errorf("the second cycle asks for %+v, want all but those that failed", again)
	}
}

// anew has what failed be settled for long enough, and the budget free.
func (w *world) anew() {
	e := w.plugin.engine
	e.verifyFailures.clock = clocktesting.NewFakePassiveClock(e.clock.Now().Add(settledMemory))
	e.verifyBudget = newVerifyBudget(e.clock)
}

func TestAPodThatNoNodeWouldDoForIsRefusedOnceAllAreVerifiedAndTriedAnewLater(t *testing.T) {
	w, p := fullNodes(t, 25, licensed{})

	for try, asks := range []int{2, 0, 2} {
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
		if len(w.bus.requests) != asks || asks > 0 && len(w.bus.requests[0].Nodes.Names) != 0 {
			t.Errorf("try %d: %d requests, want %d, the first for all", try, len(w.bus.requests), asks)
		}
	}
}

func TestARefusalOfTheNodesThatAreLeftIsFinalAndSaysWhatVerificationFound(t *testing.T) {
	w, p := fullNodes(t, 25, licensed{nodes: []string{"n24"}})
	plan := w.bus.plan
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		if len(request.Nodes.Names) > 10 {
			return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: "NotEnoughRoom", Message: "too little room"}}, nil
		}
		return plan(request)
	}

	_, status := w.cycle(p)

	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "too little room") || !strings.Contains(status.Message(), "24 node(s) failed the scheduler's filters (Licences)") {
		t.Errorf("status %v", status)
	}
	if w.anew(); !w.plugin.engine.verifyFailures.isEmpty() {
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

func TestAPlanIsPrefetchedWithoutNodesThatFailedForPodsOfItsClass(t *testing.T) {
	w, p := expecting(t, setup{}, nil)
	generation, _ := generationOf(w.plugin.handle.SnapshotSharedLister().NodeInfos(), "n2")
	w.plugin.engine.verifyFailures.add(verificationClass(p, nil), "n2", failure{cause: causeFilters}, generation)

	state := w.begin(p)
	w.eventually("the planner is asked", func() bool { return w.asked() == prefetchAfter+1 })
	result, status := w.plugin.PostFilter(w.ctx, state, p, rejecting())

	if !status.IsSuccess() || result.NominatedNodeName != "n1" || w.asked() != prefetchAfter+1 {
		t.Errorf("result %+v, status %v after %d requests; the prefetched plan is the one that is used", result, status, w.asked())
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

func TestVerificationOfAllPodsTakesAFifthOfAnyMinuteAndOneTry(t *testing.T) {
	const try = time.Second
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	budget := newVerifyBudget(clock)
	type spell struct{ from, to time.Time }
	var spells []spell
	// A pod of another class comes every 100 ms, and each takes as long as it may.
	for end := clock.Now().Add(5 * time.Minute); clock.Now().Before(end); clock.SetTime(clock.Now().Add(100 * time.Millisecond)) {
		if !budget.isOpen() {
			continue
		}
		from := clock.Now()
		clock.SetTime(from.Add(try))
		budget.spent(try)
		spells = append(spells, spell{from, clock.Now()})
	}

	if len(spells) < 50 {
		t.Errorf("%d tries in five minutes: the share is not used", len(spells))
	}
	for _, first := range spells {
		var took time.Duration
		for _, one := range spells {
			if from, to := one.from, one.to; !from.Before(first.from) && from.Before(first.from.Add(time.Minute)) {
				took += to.Sub(from)
			}
		}
		if most := time.Minute/verifyShare + try; took > most {
			t.Fatalf("%s of the minute from %s on, want at most %s", took, first.from, most)
		}
	}
}

func TestPodsOfOneClassShareWhatFailedAndOthersDoNot(t *testing.T) {
	replica := func(name string) *v1.Pod {
		p := pod(name, "", high, large).Label("app", "web").Label("apps.kubernetes.io/pod-index", name).Obj()
		p.Spec.Hostname = name
		p.Spec.Volumes = []v1.Volume{{Name: "kube-api-access-" + name}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "kube-api-access-" + name}}
		return p
	}
	of := verificationClass(replica("a"), nil)
	for name, test := range map[string]struct {
		change  func(*v1.Pod)
		refused []string
		same    bool
	}{
		"another replica":                    {change: func(*v1.Pod) {}, same: true},
		"another request":                    {change: func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = nil }},
		"another label":                      {change: func(p *v1.Pod) { p.Labels["app"] = "db" }},
		"another annotation":                 {change: func(p *v1.Pod) { p.Annotations = map[string]string{"device": "a100"} }},
		"another claim":                      {change: func(p *v1.Pod) { p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}} }},
		"another priority":                   {change: func(p *v1.Pod) { p.Spec.Priority = nil }},
		"a pod that could not be evicted":    {change: func(*v1.Pod) {}, refused: []string{"uid"}},
		"a namespace of the same name space": {change: func(p *v1.Pod) { p.Namespace = "other" }},
	} {
		t.Run(name, func(t *testing.T) {
			p := replica("b")
			test.change(p)

			if same := verificationClass(p, test.refused) == of; same != test.same {
				t.Errorf("of one class: %t, want %t", same, test.same)
			}
		})
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
	w.eventually("the second is known", func() bool { return w.plugin.engine.current(refOf(second)) != nil })

	_, status := w.cycle(second)

	if len(w.bus.requests) != asked || !strings.Contains(status.Message(), "25 node(s) failed the scheduler's filters (Licences)") {
		t.Errorf("%d more requests, status %v", len(w.bus.requests)-asked, status)
	}
}

func TestWithTheTimeOfAllPodsUsedUpTheNextPluginMayActInTheSameCycle(t *testing.T) {
	w, p := fullNodes(t, 25, licensed{nodes: []string{"n24"}})
	w.plugin.engine.verifyBudget.spent(time.Minute)

	result, status := w.cycle(p)

	if result != nil || status.Code() != fwk.Unschedulable || len(w.bus.requests) != 1 {
		t.Errorf("result %+v, status %v after %d requests, want (nil, Unschedulable) after the first candidates", result, status, len(w.bus.requests))
	}
	if result, status = w.cycle(p); result != nil || status.Code() != fwk.Unschedulable || len(w.bus.requests) != 1 {
		t.Errorf("the next cycle: result %+v, status %v after %d requests, want none more", result, status, len(w.bus.requests))
	}
	if w.plugin.engine.retry.count() != 1 {
		t.Error("the pod is not tried again")
	}
}

func TestAPlanThatStandsAtOnceIsNotHeldUpByTheTimeOfOthers(t *testing.T) {
	w, p := fullNodes(t, 25, licensed{nodes: []string{"n00"}})
	w.plugin.engine.verifyBudget.spent(time.Minute)

	expectVictims(t, w.nominated(p, "n00"), "on-n00")
}

func TestWhatIsRememberedOfFailedNodesIsBounded(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	memory := newVerifyFailures(clock)
	for i := range 3 * maxFailures {
		if i%1000 == 0 {
			clock.SetTime(clock.Now().Add(time.Millisecond))
		}
		memory.add(fmt.Sprint(i/1000), fmt.Sprint(i), failure{cause: causeFilters}, 1)
	}

	if memory.total > maxFailures || len(memory.classes) > maxFailures/1000+1 {
		t.Errorf("%d nodes of %d pods", memory.total, len(memory.classes))
	}
	if memory.has("0") || !memory.has(fmt.Sprint(3*maxFailures/1000-1)) {
		t.Error("the latest are not the ones that are kept")
	}
}
