package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

func klogger(w *world) klog.Logger { return ktesting.NewLogger(w.t, ktesting.DefaultConfig) }

func fwkPodInfo(pod *v1.Pod) (fwk.PodInfo, error) { return framework.NewPodInfo(pod) }

// simple is a world in which p would fit node n1 without a.
func simple(t *testing.T, given setup, change func(p *st.PodWrapper)) (*world, *v1.Pod, *v1.Pod) {
	t.Helper()
	wrapped := pod("p", "", high, large)
	if change != nil {
		change(wrapped)
	}
	p, a := wrapped.Obj(), pod("a", "n1", mid, large).Obj()
	w := newWorld(t, given, []*v1.Node{node("n1")}, p, a)
	w.bus.plan = answers(candidate("n1", "!a"))
	return w, p, a
}

func TestWhatEndsWithoutAPlanLeavesThePodToOthers(t *testing.T) {
	mode := func(mode string) setup { return setup{args: func(a *MakeWayArgs) { a.Mode = mode }} }
	for name, test := range map[string]struct {
		given    setup
		change   func(*st.PodWrapper)
		plan     func(*wire.PlanRequest) (*wire.PlanReply, error)
		requests int
		message  string
	}{
		"mode off":           {given: mode(wire.ModeOff), message: "mode off"},
		"mode observe":       {given: mode(wire.ModeObserve), requests: 1, message: "mode observe"},
		"preemptionPolicy":   {change: func(p *st.PodWrapper) { p.PreemptionPolicy(v1.PreemptNever) }, message: "preemptionPolicy=Never"},
		"a scheduling group": {change: func(p *st.PodWrapper) { joinGroup(&p.Pod, "g") }, message: "scheduling group"},
		"no planner":         {plan: func(*wire.PlanRequest) (*wire.PlanReply, error) { return nil, natsbus.ErrNoResponders }, requests: 1, message: "no planner answers"},
		"no answer in time":  {plan: func(*wire.PlanRequest) (*wire.PlanReply, error) { return nil, context.DeadlineExceeded }, requests: 1, message: "no answer within 5s"},
		"not connected":      {plan: func(*wire.PlanRequest) (*wire.PlanReply, error) { return nil, natsbus.ErrNotSent }, requests: 1, message: "not sent"},
		"another version":    {plan: func(*wire.PlanRequest) (*wire.PlanReply, error) { return &wire.PlanReply{RequestID: "other"}, nil }, requests: 1, message: "an answer to"},
		"a planner not synced": {plan: func(*wire.PlanRequest) (*wire.PlanReply, error) {
			return &wire.PlanReply{Status: wire.StatusNotSynced, Refusal: &wire.Refusal{Reason: "NotSynced", Message: "no list of pods yet"}}, nil
		}, requests: 1, message: "no plan: no list of pods yet"},
		"a planner that does not say why": {plan: func(*wire.PlanRequest) (*wire.PlanReply, error) {
			return &wire.PlanReply{Status: wire.StatusNotSynced}, nil
		}, requests: 1, message: "does not say why"},
		"a panic": {plan: func(*wire.PlanRequest) (*wire.PlanReply, error) { panic("oh") }, requests: 1, message: "a panic was recovered"},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, _ := simple(t, test.given, test.change)
			if test.plan != nil {
				w.bus.plan = test.plan
			}

			result, status := w.cycle(p)

			if result != nil || status.Code() != fwk.Unschedulable {
				t.Errorf("result %+v, status %v, want (nil, Unschedulable)", result, status)
			}
			if !strings.Contains(status.Message(), test.message) {
				t.Errorf("message %q does not say %q", status.Message(), test.message)
			}
			w.eventually("as many requests as wanted", func() bool { return len(w.bus.planRequests()) == test.requests })
			if w.entry(p.UID) != nil || w.gated(p) {
				t.Error("the pod is marked as preempting")
			}
		})
	}
}

func TestModeObserveWaitsForNoAnswer(t *testing.T) {
	w, p, _ := simple(t, setup{args: func(a *MakeWayArgs) { a.Mode = wire.ModeObserve }}, nil)
	answer := make(chan struct{})
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		<-answer
		return nil, context.DeadlineExceeded
	}

	_, status := w.cycle(p) // it would not return before the answer has come

	if !strings.Contains(status.Message(), "mode observe") {
		t.Errorf("status %v", status)
	}
	close(answer)
	w.eventually("the planner is asked", func() bool { return len(w.bus.planRequests()) == 1 })
	if asked := w.bus.planRequests()[0]; asked.MaxCandidates != int64(w.plugin.args.MaxCandidates) {
		t.Errorf("asked for %d candidates", asked.MaxCandidates)
	}
	if failures := w.plugin.engine.memory.Retries.Unplanned(p.UID); failures != 0 {
		t.Errorf("the pod waits for a planner: %d failures", failures)
	}
}

func TestAPodThatHasANodeIsLeftToOthers(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	resized := p.DeepCopy()
	resized.Spec.NodeName = "n1"

	q := &preemptor{MakeWay: w.plugin, uid: p.UID, pods: []*v1.Pod{resized}, mode: wire.ModeEnforce}

	end, _ := q.ineligible(excluded(resized), func(string) bool { return false })

	if end == nil || end.kind != endPlaced {
		t.Fatalf("ended as %+v", end)
	}
	if result, status := end.statusPair(); result != nil || status.Code() != fwk.Unschedulable {
		t.Errorf("result %+v, status %v, want (nil, Unschedulable): DefaultPreemption comes after", result, status)
	}
}

func TestARefusalStopsTheChainAndClearsTheNomination(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: "NotEnoughRoom", Message: "too little room everywhere"}}, nil
	}

	result, status := w.cycle(p)

	if status.Code() != fwk.UnschedulableAndUnresolvable || result.Mode() != fwk.ModeOverride || result.NominatedNodeName != "" {
		t.Errorf("result %+v, status %v", result, status)
	}
	if status.Message() != "makeway: too little room everywhere" {
		t.Errorf("message %q", status.Message())
	}
}

func TestNoPlanIsAskedForWhereRemovingPodsHelpsNoNode(t *testing.T) {
	w, p, _ := simple(t, setup{}, func(p *st.PodWrapper) { p.Req(size("600")) })

	_, status := w.cycle(p)

	if status.Code() != fwk.UnschedulableAndUnresolvable || len(w.bus.requests) != 0 {
		t.Errorf("status %v, %d plan requests", status, len(w.bus.requests))
	}
}

func TestAPlannerThatSaysNothingIsAskedOnce(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) { return nil, context.DeadlineExceeded }

	for range 10 {
		w.cycle(p)
	}

	if len(w.bus.requests) != 1 {
		t.Errorf("%d plan requests, want 1 until the first probe", len(w.bus.requests))
	}
}

func TestAPlannerThatIsBackIsHeardByTheNextPod(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	back := w.bus.plan
	w.bus.plan = nil // no planner has subscribed, which NATS says at once
	for range 10 {
		w.cycle(p)
	}
	if most := w.plugin.engine.planner.Pods.Attempts(memory.RetryBurst); most != 0 {
		t.Errorf("%d pods are tried again at once, each with all its filters", most)
	}
	w.bus.mu.Lock()
	w.bus.plan = back
	w.bus.mu.Unlock()

	w.nominated(p, "n1")
}

// ownMetric is what kube-scheduler's registry has of a counter, or a histogram's count, with these values of its labels; 0 where it was
// never counted with them.
func ownMetric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			values := []string(nil)
			for _, label := range metric.GetLabel() {
				values = append(values, label.GetValue())
			}
			if family.GetName() == name && slices.Equal(values, labels) {
				return metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	if labels == nil {
		t.Fatalf("no metric %s", name)
	}
	return 0
}

func TestKubeSchedulersOwnPreemptionMetricsMove(t *testing.T) {
	for name, test := range map[string]struct {
		plan              func(*wire.PlanRequest) (*wire.PlanReply, error)
		attempts, victims float64
	}{
		"nominated": {answers(candidate("n1", "!a")), 1, 1},
		"refused": {func(*wire.PlanRequest) (*wire.PlanReply, error) {
			return &wire.PlanReply{Status: wire.StatusRefused}, nil
		}, 1, 0},
		"left to another plugin, which counts it": {nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, _ := simple(t, setup{}, nil)
			w.bus.plan = test.plan
			attempts, victims := ownMetric(t, "scheduler_preemption_attempts_total"), ownMetric(t, "scheduler_preemption_victims")

			w.cycle(p)

			attempts = ownMetric(t, "scheduler_preemption_attempts_total") - attempts
			if victims = ownMetric(t, "scheduler_preemption_victims") - victims; attempts != test.attempts || victims != test.victims {
				t.Errorf("attempts %v, nominations with victims %v", attempts, victims)
			}
		})
	}
}

// Case DP-16 of docs/conformance.md.
func TestAPodWaitsForVictimsOfItsNominatedNodeUntilTheirGraceIsOver(t *testing.T) {
	preempted := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler}
	for name, test := range map[string]struct {
		deletedFor time.Duration
		condition  *v1.PodCondition
		waits      bool
	}{
		"terminating by preemption":              {time.Second, &preempted, true},
		"terminating by preemption for too long": {time.Hour, &preempted, false},
		"terminating for another reason":         {time.Second, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("p", "", high, large).NominatedNodeName("n1").Obj()
			a := pod("a", "n1", mid, large).Obj()
			deleted := metav1.NewTime(time.Now().Add(-test.deletedFor))
			a.DeletionTimestamp = &deleted
			if test.condition != nil {
				a.Status.Conditions = append(a.Status.Conditions, *test.condition)
			}
			w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, a)
			w.bus.plan = answers(candidate("n1", "!a"))

			result, status := w.cycle(p)

			if test.waits != (result == nil && status.Code() == fwk.UnschedulableAndUnresolvable) {
				t.Errorf("result %+v, status %v, waits %t wanted", result, status, test.waits)
			}
		})
	}
}

func TestThePodIsGatedFromPostFiltersReturn(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.nominated(p, "n1")

	status := w.plugin.PreEnqueue(w.ctx, p)

	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "node n1") {
		t.Errorf("status %v", status)
	}
	result, again := w.cycle(p)
	if result != nil || again.Code() != fwk.UnschedulableAndUnresolvable || len(w.bus.requests) != 1 {
		t.Errorf("a second cycle gave %+v, %v after %d requests", result, again, len(w.bus.requests))
	}
}

func TestTheOrderIsCommittedOnlyWhenTheNominationShows(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.nominated(p, "n1")
	time.Sleep(50 * time.Millisecond)
	w.bus.mu.Lock()
	stored := len(w.bus.messages)
	w.bus.mu.Unlock()
	if stored != 0 {
		t.Fatal("an order is in the stream before the nomination is in the API")
	}

	w.show(p, "n1")

	order := w.order(1)
	if order.Preemptor.UID != "p" || order.Node != "n1" || order.NodeUID != "n1" || order.ClusterUID != "cluster" ||
		order.Fence != (wire.Fence{Kind: "kv", Name: "default-scheduler", Epoch: 7}) ||
		order.NotAfter.Sub(order.CreatedAt.Time) != time.Minute || len(order.Victims) != 1 {
		t.Errorf("order %+v", order)
	}
	if v := order.Victims[0]; v.UID != "a" || v.Priority != mid || v.Rule != verify.RuleLowerPriority || v.GracePeriodSeconds != 30 || v.Assumed {
		t.Errorf("victim %+v", v)
	}
}

func TestWithoutANominationThereIsNoOrderAndThePodIsTriedAgain(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.nominated(p, "n1")
	info, _ := fwkPodInfo(p)
	w.framework.AddNominatedPod(klogger(w), info, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: "n1"})

	w.eventually("the pod is activated", func() bool { return w.activator.of("p") == 1 })

	if w.gated(p) || len(w.framework.NominatedPodsForNode("n1")) != 0 || len(w.bus.messages) != 0 {
		t.Errorf("gated %t, nominated %v, %d messages", w.gated(p), w.framework.NominatedPodsForNode("n1"), len(w.bus.messages))
	}
}

func TestThePodIsReleasedOnceWhenItsVictimsAreGone(t *testing.T) {
	w, p, a := simple(t, setup{}, nil)
	w.nominated(p, "n1")
	w.show(p, "n1")
	w.end(w.order(1), wire.ResultSucceeded)
	w.eventually("the outcome is read", func() bool { e := w.entry("p"); return e != nil && e.Phase == orders.Leaving })
	if w.activator.of("p") != 0 {
		t.Fatal("activated before its victim had left")
	}

	w.delete(a)

	w.eventually("the pod is activated", func() bool { return w.activator.of("p") == 1 })
	if w.gated(p) {
		t.Error("still gated")
	}
}

func TestWhileItsVictimsLeaveAPodKeepsItsNominationAndOrdersNothing(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.nominated(p, "n1")
	w.show(p, "n1")
	w.end(w.order(1), wire.ResultSucceeded)
	w.eventually("the gate is open", func() bool { e := w.entry("p"); return e != nil && e.Phase == orders.Leaving && !e.Gated })
	requests, messages := len(w.bus.requests), len(w.bus.messages)

	result, status := w.cycle(p)

	if result == nil || result.Mode() != fwk.ModeOverride || result.NominatedNodeName != "n1" || status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("result %+v, status %v", result, status)
	}
	if len(w.bus.requests) != requests || len(w.bus.messages) != messages {
		t.Errorf("%d requests, %d orders", len(w.bus.requests)-requests, len(w.bus.messages)-messages)
	}
	if !w.gated(p) {
		t.Error("not held after a cycle that failed")
	}
	w.eventually("it is activated once more", func() bool { return w.activator.of("p") == 1 })
}

func TestAPodWithItsRoomKeepsItWhileVictimsOfAnEqualThatIsNominatedBesideItAreThere(t *testing.T) {
	p, q, a, b := pod("p", "", high, medium).Obj(), pod("q", "", high, medium).Obj(), pod("a", "n1", mid, medium).Obj(), pod("b", "n1", mid, medium).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, q, a, b)
	w.bus.plan = answers(candidate("n1", "!a"))
	order := w.orderOf(p)
	w.bus.plan = answers(candidate("n1", "!b"))
	ofEqual := w.orderOf(q)
	for _, preemptor := range []*v1.Pod{p, q} {
		info, _ := fwkPodInfo(preemptor)
		w.framework.AddNominatedPod(klogger(w), info, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: "n1"})
	}
	w.end(order, wire.ResultSucceeded)
	w.delete(a)
	w.eventually("the pod is activated", func() bool { return w.activator.of("p") == 1 })
	if err := w.nodes[0].RemovePod(klogger(w), a); err != nil {
		t.Fatal(err)
	}
	requests := w.asked()

	statuses := framework.NewDefaultNodeToStatus()
	statuses.Set("n1", fwk.NewStatus(fwk.Unschedulable, "the pods that are nominated there take its room"))
	result, status := w.postFilter(w.state(p), p, statuses)

	if result == nil || result.NominatedNodeName != "n1" || status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), leavingBeside) {
		t.Errorf("result %+v, status %v", result, status)
	}
	if w.asked() != requests || w.orders() != 2 {
		t.Errorf("%d requests, %d orders", w.asked()-requests, w.orders())
	}
	if n := w.activator.of("p"); n != 1 {
		t.Errorf("activated %d times while the victims beside it are there", n)
	}
	w.end(ofEqual, wire.ResultSucceeded)
	w.delete(b)
	w.eventually("it is activated once they have left", func() bool { return w.activator.of("p") == 2 })
}

func TestAPodWhoseNodeHelpsNoMorePreemptsElsewhereWhileItsVictimsLeave(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.nominated(p, "n1")
	w.show(p, "n1")
	w.end(w.order(1), wire.ResultSucceeded)
	w.eventually("the gate is open", func() bool { e := w.entry("p"); return e != nil && e.Phase == orders.Leaving && !e.Gated })
	requests := len(w.bus.requests)

	statuses := framework.NewDefaultNodeToStatus() // of a node that is not in it removing pods does not help
	_, status := w.plugin.PostFilter(w.ctx, w.state(p), p, statuses)

	if w.entry("p") != nil || !strings.Contains(status.Message(), "preemption would not help") {
		t.Errorf("entry %+v after %d requests, status %v", w.entry("p"), len(w.bus.requests)-requests, status)
	}
}

func TestAFailedOrderIsRevertedAndThePlannerIsAskedAgain(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.nominated(p, "n1")
	w.show(p, "n1")
	order := w.order(1)
	info, _ := fwkPodInfo(p)
	w.framework.AddNominatedPod(klogger(w), info, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: "n1"})
	w.show(p, "") // the evictor's rollback

	w.end(order, wire.ResultFailed)

	w.eventually("the pod is activated", func() bool { return w.activator.of("p") == 1 })
	if w.gated(p) || len(w.framework.NominatedPodsForNode("n1")) != 0 {
		t.Errorf("gated %t, nominated %v", w.gated(p), w.framework.NominatedPodsForNode("n1"))
	}
	requests := w.asked()
	if w.cycle(p); w.asked() != requests+1 {
		t.Errorf("%d requests, want one more than %d: the planner knows what failed", w.asked(), requests)
	}
}

func TestAVictimWaitingInPermitIsPreemptedInMemory(t *testing.T) {
	w, p, a := simple(t, setup{}, nil)
	waitAtPermit(t, w.framework, a, "Gate")
	w.plugin.Reserve(w.ctx, nil, a, "n1")
	w.nominated(p, "n1")
	w.show(p, "n1")
	w.eventually("the order is done", func() bool { e := w.entry("p"); return e != nil && e.Phase == orders.Leaving })
	if status := w.framework.WaitOnPermit(w.ctx, a); status.Code() != fwk.Error {
		t.Errorf("the waiting pod got %v, want an error, which lets it be tried again", status)
	}
	before := w.activator.of("p")

	w.plugin.Unreserve(w.ctx, nil, a, "n1")

	w.eventually("the pod is activated", func() bool { return w.activator.of("p") == before+1 })
	if w.orders() != 0 {
		t.Error("an order was written for a victim that was preempted in memory")
	}
}

func TestAVictimWhosePlacementWasTakenBackMeanwhileIsInNoOrder(t *testing.T) {
	w, p, a := simple(t, setup{}, nil)
	pending := a.DeepCopy()
	pending.Spec.NodeName = ""
	w.plugin.engine.placements.Observe(pending)
	w.nominated(p, "n1")

	w.show(p, "n1")

	w.eventually("the pod is released at once", func() bool { e := w.entry("p"); return e != nil && e.Phase == orders.Released })
	w.eventually("it is activated once more where it comes to no cycle", func() bool { return w.activator.of("p") == 2 })
	if w.orders() != 0 {
		t.Error("an order was written for a victim that is pending")
	}
}

func TestAVictimMadeAnewUnderItsNameCountsAsGone(t *testing.T) {
	w, p, a := simple(t, setup{}, nil)
	w.nominated(p, "n1")
	w.show(p, "n1")
	order := w.order(1)
	w.plugin.engine.applyOutcome(w.ctx, &wire.Outcome{OrderID: order.OrderID, PreemptorUID: "p", Result: wire.ResultSucceeded})
	again := a.DeepCopy()
	again.UID = "another"

	w.plugin.engine.podDeleted(a)
	w.plugin.engine.podChanged(again)

	w.eventually("the pod is released", func() bool { e := w.entry("p"); return e != nil && e.Phase == orders.Released })
}

func TestAPodThatShouldHaveLeftLongAgoMakesNoRoom(t *testing.T) {
	p, stuck, b := pod("p", "", high, large).Obj(), pod("stuck", "n1", low, whole).Obj(), pod("b", "n2", mid, whole).Obj()
	deleted := metav1.NewTime(time.Now().Add(-time.Hour))
	stuck.DeletionTimestamp = &deleted
	w := newWorld(t, setup{}, []*v1.Node{node("n1"), node("n2")}, p, stuck, b)
	w.bus.plan = answers(candidate("n1", "!stuck"), candidate("n2", "!b"))

	w.nominated(p, "n2")
}

func TestAPreemptorDoesNotWaitForPodsOnANodeThatWasDeleted(t *testing.T) {
	for name, before := range map[string]bool{"before the outcome": true, "after the outcome": false} {
		t.Run(name, func(t *testing.T) {
			w, p, _ := simple(t, setup{}, nil)
			w.nominated(p, "n1")
			w.show(p, "n1")
			order := w.order(1)
			deleteNode := func() {
				if err := w.client.CoreV1().Nodes().Delete(w.ctx, "n1", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if before {
				deleteNode()
				w.eventually("the node is gone", func() bool { _, err := w.plugin.engine.cluster.nodes.Get("n1"); return err != nil })
			}

			outcome := &wire.Outcome{OrderID: order.OrderID, PreemptorUID: "p", Result: wire.ResultSucceeded}
			w.plugin.engine.inflight.Remember(outcome)
			w.plugin.engine.applyOutcome(w.ctx, outcome)
			if !before {
				deleteNode()
			}

			w.eventually("the order is forgotten", func() bool { return w.entry("p") == nil })
			if nominated := w.framework.NominatedPodsForNode("n1"); len(nominated) != 0 {
				t.Errorf("nominated %v", nominated)
			}
		})
	}
}

func TestAPodWhoseOnlyVictimCouldNotBeStoppedInMemoryIsTriedAgain(t *testing.T) {
	w, p, a := simple(t, setup{}, nil)
	prebound(t, w.framework, a.UID)
	w.plugin.Reserve(w.ctx, nil, a, "n1")
	w.nominated(p, "n1")

	w.show(p, "n1")

	w.eventually("it is tried again", func() bool { return w.entry("p") == nil && w.activator.of("p") == 1 })
	if w.orders() != 0 {
		t.Error("an order was written for a victim that was being bound")
	}
}

func TestAVictimInPreBindIsCancelled(t *testing.T) {
	w, p, a := simple(t, setup{}, nil)
	cancelled := make(chan error, 1)
	inPreBind(t, w.framework, a.UID, func(err error) { cancelled <- err })
	w.plugin.Reserve(w.ctx, nil, a, "n1")
	w.nominated(p, "n1")

	w.show(p, "n1")

	select {
	case <-cancelled:
	case <-time.After(5 * time.Second):
		t.Error("not cancelled")
	}
}

func TestACommitWithoutAnAnswerIsRepeatedUntilItIsKnownWhatIsStored(t *testing.T) {
	lost := errors.New("timeout")
	for name, test := range map[string]struct {
		publish func(attempt int) (bool, error)
		stored  bool
	}{
		"stored, and the answer lost":      {func(attempt int) (bool, error) { return attempt == 1, lost }, true},
		"lost, and stored the next time":   {func(attempt int) (bool, error) { return attempt == 2, map[bool]error{false: lost}[attempt == 2] }, true},
		"lost each time":                   {func(int) (bool, error) { return false, lost }, false},
		"stored at last, all answers lost": {func(attempt int) (bool, error) { return attempt == 3, lost }, true},
		"refused":                          {func(int) (bool, error) { return false, fmt.Errorf("%w: no stream", natsbus.ErrNotSent) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, _ := simple(t, setup{}, nil)
			w.bus.publish = test.publish
			w.nominated(p, "n1")

			w.show(p, "n1")

			if test.stored {
				w.eventually("the order is committed", func() bool { e := w.entry("p"); return e != nil && e.Phase == orders.Committed })
				if len(w.bus.messages) != 1 {
					t.Errorf("%d orders, want 1", len(w.bus.messages))
				}
				return
			}
			w.eventually("the order is given up", func() bool { return w.entry("p") == nil })
			w.eventually("the pod is activated", func() bool { return w.activator.of("p") == 1 })
		})
	}
}

func TestALiveOrderInTheStreamIsAdoptedAndNotSuperseded(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.nominated(p, "n1")
	now := time.Now()
	other := &wire.EvictionOrder{
		OrderID: "ord-other", Kind: "pod", ClusterUID: "cluster", Fence: wire.Fence{Kind: "kv", Name: "x", Epoch: 1}, Writer: "another",
		CreatedAt: wire.At(now), NotAfter: wire.At(now.Add(time.Minute)), Node: "n1", NodeUID: "n1",
		Preemptor: &wire.Preemptor{Namespace: "default", Name: "p", UID: "p", SchedulerName: "default-scheduler"},
	}
	data, err := wrapOrder(other, "another")
	if err != nil {
		t.Fatal(err)
	}
	w.deaf(3) // the stream is not read as fast as the order is committed
	w.bus.put(w.plugin.engine.store.Subjects.Order(wire.KindPod, "p"), data)

	w.show(p, "n1")

	w.eventually("the live order is adopted", func() bool { e := w.entry("p"); return e != nil && e.OrderID == "ord-other" })
	if len(w.bus.messages) != 1 {
		t.Errorf("%d orders, want the one", len(w.bus.messages))
	}
	if result, status := w.cycle(p); result != nil || !strings.Contains(status.Message(), "ord-other") {
		t.Errorf("result %+v, status %v", result, status)
	}
}

func TestAnOrderThatIsReadWhileACycleMakesAnotherIsAdopted(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	now := time.Now()
	other := &wire.EvictionOrder{
		OrderID: "ord-other", Kind: "pod", ClusterUID: "cluster", Fence: wire.Fence{Kind: "kv", Name: "x", Epoch: 1}, Writer: "another",
		CreatedAt: wire.At(now.Add(-time.Second)), NotAfter: wire.At(now.Add(time.Minute)), Node: "n1", NodeUID: "n1",
		Preemptor: &wire.Preemptor{Namespace: "default", Name: "p", UID: "p", SchedulerName: "default-scheduler"},
	}
	data, err := wrapOrder(other, "another")
	if err != nil {
		t.Fatal(err)
	}
	subject := w.plugin.engine.store.Subjects.Order(wire.KindPod, "p")
	plan := w.bus.plan
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		w.bus.put(subject, data)
		w.eventually("it is read", func() bool { return w.plugin.engine.committer.After(subject) == 1 })
		return plan(request)
	}
	w.nominated(p, "n1")

	w.show(p, "n1")

	w.eventually("the live order is adopted", func() bool { e := w.entry("p"); return e != nil && e.OrderID == "ord-other" })
	if stored := w.orders(); stored != 1 {
		t.Errorf("%d orders, want the one", stored)
	}
}

func TestAnOrderWhoseTimeIsOverIsSuperseded(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	past := time.Now().Add(-time.Hour)
	old := &wire.EvictionOrder{
		OrderID: "ord-old", Kind: "pod", ClusterUID: "cluster", Fence: wire.Fence{Kind: "kv", Name: "x", Epoch: 1}, Writer: "another",
		CreatedAt: wire.At(past), NotAfter: wire.At(past.Add(time.Minute)), Node: "n1",
		Preemptor: &wire.Preemptor{Namespace: "default", Name: "p", UID: "p", SchedulerName: "default-scheduler"},
	}
	data, err := wrapOrder(old, "another")
	if err != nil {
		t.Fatal(err)
	}
	subject := w.plugin.engine.store.Subjects.Order(wire.KindPod, "p")
	w.bus.put(subject, data)
	w.eventually("it is read", func() bool { return w.plugin.engine.committer.After(subject) == 1 })
	w.nominated(p, "n1")

	w.show(p, "n1")

	if order := w.order(2); order.Preemptor.UID != "p" {
		t.Errorf("order %+v", order)
	}
}

func TestARefusedPodIsTriedAgainWhenItsTimeComes(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	soon := wire.At(time.Now().Add(50 * time.Millisecond))
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: "Later", Message: "later", RetryAt: &soon}}, nil
	}

	w.cycle(p)

	w.eventually("the pod is activated", func() bool { return w.activator.of("p") == 1 })
}

func TestARefusedPodIsTriedAgainWhenItsBudgetChanges(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: "Budget", Message: "budget",
			DependsOn: []wire.Dependency{{Kind: memory.KindPDB, Namespace: "default", Name: "budget"}}}}, nil
	}
	w.cycle(p)

	for _, name := range []string{"other", "budget"} {
		if _, err := w.client.PolicyV1().PodDisruptionBudgets("default").Create(w.ctx, st.MakePDB().Namespace("default").Name(name).Obj(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	w.eventually("the pod is activated", func() bool { return w.activator.of("p") == 1 })
}

func TestAssumedPodsAreInTheRequest(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	pending := pod("pending", "", low, small).Obj()

	w.plugin.Reserve(w.ctx, nil, pending, "n1")
	w.cycle(p)

	if assumed := w.bus.requests[0].Assumed; len(assumed) != 1 || assumed[0].UID != "pending" || assumed[0].Node != "n1" {
		t.Errorf("assumed %+v", assumed)
	}
	if filters := w.bus.requests[0].Profile.Filters; len(filters) != 3 {
		t.Errorf("filters %v", filters)
	}
}

func TestRequestsTellHowFarTheInformersHaveCome(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	e := w.plugin.engine
	versioned := func(version string) *v1.Pod {
		other := pod("other", "n1", low, small).Obj()
		other.ResourceVersion = version
		return other
	}
	e.podChanged(versioned("41003"))
	e.podChanged(versioned("40999")) // a list comes in any order
	e.podChanged(versioned("no number"))
	e.planner.Seen.Take(ask.ResourceNodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "40961"}})
	e.podDeleted(versioned("41002"))

	w.cycle(p)

	if seen := w.bus.requests[0].Seen; seen[ask.ResourcePods] != 41003 || seen[ask.ResourceNodes] != 40961 {
		t.Errorf("seen %v", seen)
	}
}

// unreadableOutcome is a message of the outcomes' stream, and how a question tells that it was read.
func unreadableOutcome(sequence uint64) (natsbus.Record, wire.StreamPosition) {
	made := time.Date(2026, 1, 30, 8, 15, 0, 123456789, time.UTC)
	return natsbus.Record{Stream: made, Sequence: sequence, Subject: "makeway.v1.outcomes.ord-x", Data: []byte("{")},
		wire.StreamPosition{Created: "2026-01-30T08:15:00.123456789Z", Sequence: int64(sequence)}
}

func TestTheQuestionTellsHowFarTheSchedulerHasReadTheOutcomesWhateverTheySay(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	message, position := unreadableOutcome(512)
	w.plugin.engine.takeOutcome(w.ctx, message)

	w.cycle(p)

	if read := w.bus.requests[0].OutcomesRead; read == nil || *read != position {
		t.Errorf("outcomes read: %+v", read)
	}
}

func TestAPodThatIsTooLargeToBeAskedAboutIsLeftToTheNextPluginAndSaysNothingOfThePlanner(t *testing.T) {
	w, p, _ := simple(t, setup{}, func(p *st.PodWrapper) { p.Label("large", strings.Repeat("x", wire.MaxBytes)) })

	for range 2 * ask.BreakerThreshold {
		result, status := w.cycle(p)
		if result != nil || status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "too large to be asked about") {
			t.Fatalf("result %+v, status %v", result, status)
		}
	}

	if state, _ := w.plugin.engine.planner.Pods.Current(); state != telemetry.Closed || len(w.bus.requests) != 0 {
		t.Errorf("the breaker is in state %d after %d requests", state, len(w.bus.requests))
	}
	if w.plugin.engine.memory.Retries.Count() != 1 {
		t.Error("it is not tried again")
	}
}

func TestAPodThatIsBoundOrGoneByTheEndOfItsCycleLeavesNothingBehind(t *testing.T) {
	inAnHour := wire.At(time.Now().Add(time.Hour))
	for name, end := range ends {
		for when, early := range map[string]bool{"before the gate looks": true, "while the planner is asked": false} {
			t.Run(name+" "+when, func(t *testing.T) {
				p := queuedPod("root.a", "p", "", high, "100")
				w := queued(t, p, queuedPod("root.a", "a", "n1", mid, "300"))
				engine := w.plugin.engine
				over := func() {
					end(w, p)
					w.eventually("the informer has told", func() bool { return !engine.placements.Pending(p.UID) })
				}
				w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
					if !early {
						over()
					}
					return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: "Because", RetryAt: &inAnHour}}, nil
				}

				if early {
					over()
				}
				w.cycle(p)

				if waiting, _ := w.queues.Gate().State(); waiting != 0 || engine.memory.Retries.Count() != 0 {
					t.Errorf("%d pods wait for room in a queue, %d to be tried again", waiting, engine.memory.Retries.Count())
				}
				if counts := w.queues.Gate().Counts(p.UID); counts != (name == "bound") {
					t.Errorf("it counts in its queue: %t", counts)
				}
			})
		}
	}
}

func TestAPodThatIsGoneIsDroppedWhenItsTurnComes(t *testing.T) {
	w := queued(t)
	engine := w.plugin.engine
	left := func() int {
		waiting, _ := w.queues.Gate().State()
		return waiting + engine.memory.Retries.Count()
	}
	gone := []*v1.Pod{
		queuedPod("root.a", "kept-out", "", high, "400"), queuedPod("root.a", "not-asked-for", "", high, "10"), queuedPod("root.a", "one-too-many", "", high, "10"),
	}
	w.queues.Gate().Check(framework.NewCycleState(), gone[0], wire.ModeEnforce)
	engine.memory.Retries.TryAt(orders.RefOf(gone[1]), time.Now())
	engine.memory.Retries.Refuse(orders.RefOf(gone[2]), engine.memory.Retries.Now(), time.Time{}, []wire.Dependency{{Kind: memory.KindOrders, Name: memory.OrderLimit}})
	if left() != 3 {
		t.Fatalf("%d pods wait", left())
	}

	engine.memory.Retries.OrderEnded("", false)
	if err := w.queues.Gate().SetLimits([]wire.QueueLimit{limit("root"), limit("root.a", "cpu", 500)}); err != nil {
		t.Fatal(err)
	}

	w.eventually("all are dropped", func() bool { return left() == 0 })
	for _, p := range gone {
		if w.activator.of(p.UID) != 0 {
			t.Errorf("%s was activated", p.Name)
		}
	}
}
