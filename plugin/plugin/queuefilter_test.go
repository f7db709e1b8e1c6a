package plugin

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	testingclock "k8s.io/utils/clock/testing"

	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/queues"
	"makeway.dev/makeway/plugin/wire"
)

// queued is a world with a gate and limits: root.a may hold 300 milli-CPU, root.b anything. Node n1 holds 500.
func queued(t *testing.T, pods ...*v1.Pod) *world {
	t.Helper()
	w := newWorld(t, setup{filter: true, queues: true}, []*v1.Node{node("n1")}, pods...)
	if err := w.queues.Gate().SetLimits([]wire.QueueLimit{limit("root"), limit("root.a", "cpu", 300), limit("root.b")}); err != nil {
		t.Fatal(err)
	}
	return w
}

func queuedPod(queue, name, on string, priority int32, cpu string) *v1.Pod {
	return pod(name, on, priority, map[v1.ResourceName]string{v1.ResourceCPU: cpu + "m"}).Label("queue", queue).Obj()
}

// Case Q-2 of docs/conformance.md, the scheduler's side.
func TestAPodWhoseQueueIsFullEvictsFromThatQueueAlone(t *testing.T) {
	p := queuedPod("root.a", "p", "", high, "100")
	w := queued(t, p, queuedPod("root.a", "a", "n1", mid, "300"), queuedPod("root.b", "b", "n1", low, "100"))
	w.bus.plan = answers(candidate("n1", "!a", "!b"))

	expectVictims(t, w.nominated(p, "n1"), "a")

	other := queuedPod("root.a", "other", "", high, "10")
	if r := w.queues.Gate().Check(framework.NewCycleState(), other, wire.ModeEnforce); r == nil || !strings.Contains(r.Message(), "cpu 400m of 300m used") {
		t.Errorf("rejection %+v, want that victim and preemptor count", r)
	}
}

func TestAPlanThatMakesNoRoomInTheQueueDoesNotStand(t *testing.T) {
	p := queuedPod("root.a", "p", "", high, "100")
	w := queued(t, p, queuedPod("root.a", "a", "n1", mid, "300"), queuedPod("root.b", "b", "n1", low, "100"))
	w.bus.plan = answers(candidate("n1", "!b"))

	result, status := w.cycle(p)

	if status.Code() != fwk.UnschedulableAndUnresolvable || result.NominatedNodeName != "" || w.entry(p.UID) != nil {
		t.Errorf("result %+v, status %v", result, status)
	}
}

func TestNoPlanIsAskedForWhereNoPodInTheQueueMayGo(t *testing.T) {
	p := queuedPod("root.a", "p", "", mid, "100")
	w := queued(t, p, queuedPod("root.a", "a", "n1", mid, "300"), queuedPod("root.b", "b", "n1", low, "100"))

	_, status := w.cycle(p)

	if status.Code() != fwk.UnschedulableAndUnresolvable || len(w.bus.requests) != 0 {
		t.Errorf("status %v, %d plan requests", status, len(w.bus.requests))
	}
}

func TestAPodThatTheGateKeepsOutIsTriedAgainWhenANodeComesOrChanges(t *testing.T) {
	for name, change := range map[string]struct {
		do   func(*world) error
		want int
	}{
		"a new node": {func(w *world) error {
			_, err := w.client.CoreV1().Nodes().Create(w.ctx, node("n2"), metav1.CreateOptions{})
			return err
		}, 1},
		"another label": {func(w *world) error {
			n := node("n1")
			n.Labels["zone"], n.ResourceVersion = "b", "9"
			_, err := w.client.CoreV1().Nodes().Update(w.ctx, n, metav1.UpdateOptions{})
			return err
		}, 1},
		"a heartbeat": {func(w *world) error {
			n := node("n1")
			n.Status.Conditions, n.ResourceVersion = []v1.NodeCondition{}, "9"
			_, err := w.client.CoreV1().Nodes().Update(w.ctx, n, metav1.UpdateOptions{})
			return err
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := queuedPod("root.a", "p", "", high, "100")
			w := queued(t, p, queuedPod("root.a", "a", "n1", mid, "300"))
			w.bus.plan = answers() // a refusal that depends on nothing
			w.cycle(p)
			if w.queues.Gate().Admit(p, wire.ModeEnforce) == nil {
				t.Fatal("it is not held")
			}

			if err := change.do(w); err != nil {
				t.Fatal(err)
			}

			if change.want == 0 {
				time.Sleep(2 * memory.RetryTick)
			} else {
				w.eventually("the pod is activated", func() bool { return w.activator.of(p.UID) > 0 })
			}
			if (w.activator.of(p.UID) > 0) != (change.want > 0) || (w.queues.Gate().Admit(p, wire.ModeEnforce) == nil) != (change.want > 0) {
				t.Errorf("activated %d times", w.activator.of(p.UID))
			}
		})
	}
}

func TestNoOtherPluginMayActForAPodThatTheGateKeepsOut(t *testing.T) {
	p := queuedPod("root.a", "p", "", high, "100")
	w := queued(t, p, queuedPod("root.a", "a", "n1", mid, "300"))
	w.bus.plan = nil // no planner answers, which leaves any other pod to DefaultPreemption

	result, status := w.cycle(p)

	if result != nil || status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "no planner answers") {
		t.Errorf("result %+v, status %v", result, status)
	}
}

func TestAPodThatItsQueueHasRoomForIsNoConcernOfTheGate(t *testing.T) {
	p := queuedPod("root.a", "p", "", high, "100")
	w := queued(t, p, queuedPod("root.b", "b", "n1", low, "500"))
	w.bus.plan = answers(candidate("n1", "!b"))

	expectVictims(t, w.nominated(p, "n1"), "b")
}

func TestRoomOnTrialIsEachTrialsOwn(t *testing.T) {
	p := queuedPod("root.a", "p", "", high, "100")
	a := queuedPod("root.a", "a", "n1", mid, "300")
	w := queued(t, p, a)
	state := framework.NewCycleState()
	_, status := w.queues.PreFilter(w.ctx, state, p, nil)
	if status.Code() != fwk.Unschedulable {
		t.Fatalf("PreFilter: %v", status)
	}
	info, err := fwkPodInfo(a)
	if err != nil {
		t.Fatal(err)
	}
	trial := state.Clone()
	fits := func(state fwk.CycleState) bool { return w.queues.Filter(w.ctx, state, p, nil).IsSuccess() }

	w.queues.RemovePod(w.ctx, trial, p, info, nil)
	w.queues.RemovePod(w.ctx, trial, p, info, nil)
	if !fits(trial) || fits(state) {
		t.Errorf("without the victim: the trial fits %t, the cycle %t", fits(trial), fits(state))
	}
	w.queues.AddPod(w.ctx, trial, p, info, nil)
	w.queues.AddPod(w.ctx, trial, p, info, nil)
	w.queues.RemovePod(w.ctx, trial, p, info, nil)
	if !fits(trial) {
		t.Error("adding twice takes more than removing gives")
	}
}

func TestPodsOfOneQueueAreSignedAlike(t *testing.T) {
	w := queued(t)
	sign := func(pod *v1.Pod) any {
		fragments, status := w.queues.SignPod(w.ctx, pod)
		if !status.IsSuccess() || len(fragments) != 1 {
			t.Fatalf("fragments %v, status %v", fragments, status)
		}
		return fragments[0].Value
	}

	a, like, other := sign(queuedPod("root.a", "a", "", 0, "1")), sign(queuedPod("root.a", "b", "", 0, "1")), sign(queuedPod("root.b", "c", "", 0, "1"))

	if a != like || a == other {
		t.Errorf("signed %v, %v and %v", a, like, other)
	}
	w.queues.Gate().NoQueues()
	if fragments, status := w.queues.SignPod(context.Background(), queuedPod("root.a", "a", "", 0, "1")); len(fragments) != 0 || !status.IsSuccess() {
		t.Errorf("without queues: fragments %v, status %v", fragments, status)
	}
}

func TestPodsThatWaitAreActivatedAsTheirQueueEmpties(t *testing.T) {
	p, q := queuedPod("root.a", "p", "", high, "200"), queuedPod("root.a", "q", "", low, "200")
	a := queuedPod("root.a", "a", "n1", high, "300")
	w := queued(t, p, q, a)
	w.cycle(q)
	w.cycle(p)

	w.delete(a)

	w.eventually("the first is activated", func() bool { return w.activator.of(p.UID) == 1 })
	if w.activator.of(q.UID) != 0 {
		t.Error("the second is activated, too")
	}
}

func inQueue(queue string, p *st.PodWrapper) *v1.Pod { return p.Label("queue", queue).Obj() }

// rejectedBefore runs PostFilter for a pod that a plugin before this one rejected in PreFilter.
func (w *world) rejectedBefore(p *v1.Pod) (*fwk.PostFilterResult, *fwk.Status) {
	statuses := framework.NewDefaultNodeToStatus()
	statuses.SetAbsentNodesStatus(fwk.NewStatus(fwk.Unschedulable, "rejected by another"))
	return w.postFilter(framework.NewCycleState(), p, statuses)
}

func TestAFullQueueIsKnownInPostFilterWhereAnotherPluginRejectedThePodBefore(t *testing.T) {
	p := queuedPod("root.a", "p", "", high, "100")
	w := queued(t, p, queuedPod("root.a", "a", "n1", high, "300"), queuedPod("root.b", "b", "n1", low, "100"))
	w.bus.plan = answers(candidate("n1", "!b"))

	result, status := w.rejectedBefore(p)

	if nominatedNode(result, status) != "" || status.Code() != fwk.UnschedulableAndUnresolvable || w.entry(p.UID) != nil {
		t.Errorf("result %+v, status %v", result, status)
	}
}

func TestAPodThatPassedTheGateInItsCycleIsNotAskedAboutAgainInPostFilter(t *testing.T) {
	p := queuedPod("root.a", "p", "", high, "100")
	w := queued(t, p, queuedPod("root.b", "b", "n1", low, "500"))
	state := w.state(p)
	w.queues.Gate().PodChanged(queuedPod("root.a", "late", "n2", high, "300"))

	if keptOut := w.queues.Gate().CheckLate(state, p, wire.ModeEnforce); keptOut != nil {
		t.Errorf("kept out: %s", keptOut.Message())
	}
}

// heldAndNominated is a world with a full queue and a pending pod in it that the API shows nominated to n1.
func heldAndNominated(t *testing.T) (*world, *v1.Pod) {
	t.Helper()
	p := inQueue("root.a", pod("p", "", 100, large))
	p.Status.NominatedNodeName = "n1"
	w := newWorld(t, setup{filter: true, queues: true}, []*v1.Node{node("n1")}, p, inQueue("root.a", pod("q", "n1", 100, small)))
	w.tells(enforcing(1, func(s *wire.ControlState) {
		s.QueuesRevision = "q"
		s.Queues = []wire.QueueLimit{{Path: "root"}, {Path: "root.a", Max: map[string]int64{"cpu": 100}}}
	}), at(1))
	return w, p
}

// stored is p as the API has it.
func (w *world) stored(p *v1.Pod) *v1.Pod {
	w.t.Helper()
	got, err := w.client.CoreV1().Pods(p.Namespace).Get(w.ctx, p.Name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// liveOrder is an order for a pod that another process has stored.
func liveOrder(w *world, p *v1.Pod) (subject string, message []byte) {
	w.t.Helper()
	now := time.Now()
	data, err := wrapOrder(&wire.EvictionOrder{
		OrderID: "ord-other", Kind: "pod", ClusterUID: "cluster", Fence: wire.Fence{Kind: "kv", Name: "x", Epoch: 1}, Writer: "another",
		CreatedAt: wire.At(now), NotAfter: wire.At(now.Add(time.Minute)), Node: "n1", NodeUID: "n1",
		Preemptor: &wire.Preemptor{Namespace: "default", Name: p.Name, UID: string(p.UID), SchedulerName: "default-scheduler"},
	}, "another")
	if err != nil {
		w.t.Fatal(err)
	}
	return w.plugin.engine.store.Subjects.Order(wire.KindPod, string(p.UID)), data
}

func TestAPodThatItsQueueHoldsKeepsNoNominationWithoutAnOrder(t *testing.T) {
	w, p := heldAndNominated(t)
	w.plugin.engine.memory.Reverted.Store(p.UID, "n1")
	if !w.held(p) {
		t.Fatal("not held")
	}

	w.eventually("its condition is written", func() bool { return len(w.stored(p).Status.Conditions) > 0 })
	if node := w.stored(p).Status.NominatedNodeName; node != "" {
		t.Errorf("it is nominated to %s for as long as the queue is full", node)
	}
}

func TestAHeldPodWhoseOrderHasNotBeenReadYetKeepsItsNomination(t *testing.T) {
	w, p := heldAndNominated(t)
	w.deaf(4)
	w.bus.put(liveOrder(w, p))
	if !w.held(p) {
		t.Fatal("not held")
	}

	w.eventually("its condition is written", func() bool { return len(w.stored(p).Status.Conditions) > 0 })
	if node := w.stored(p).Status.NominatedNodeName; node != "n1" {
		t.Errorf("nominated to %q", node)
	}
}

func TestAHeldPodWhoseOrderIsAdoptedIsActivated(t *testing.T) {
	w, p := heldAndNominated(t)
	if !w.held(p) {
		t.Fatal("not held")
	}

	w.bus.put(liveOrder(w, p))

	w.eventually("it is activated", func() bool { return w.activator.of(p.UID) == 1 })
	if e := w.entry(p.UID); e == nil || e.OrderID != "ord-other" {
		t.Errorf("without the order: %+v", e)
	}
	if w.held(p) {
		t.Error("it is held, and would not be entered into the nominator")
	}
}

func TestAWokenPreemptorKeepsItsPlaceUntilItsCycleHoweverLongThatTakes(t *testing.T) {
	for name, placed := range map[string]bool{"it is placed": true, "its cycle fails": false} {
		store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		gate := queues.NewGate(testingclock.NewFakeClock(start), corelisters.NewPodLister(store), func(string, int32, string) bool { return true })
		enters := func(p *v1.Pod) bool {
			return gate.Check(framework.NewCycleState(), p, wire.ModeEnforce) == nil && gate.Reserve(p, wire.ModeEnforce) == nil
		}
		if err := gate.SetLimits([]wire.QueueLimit{limit("root", "cpu", 100)}); err != nil {
			t.Fatal(err)
		}
		f := orders.NewInFlight(gate)
		p, other, victim := pod("p", "", high, small).Obj(), pod("o", "", low, small).Obj(), pod("v", "n1", low, small).Obj()
		for _, shown := range []*v1.Pod{p, other, victim} {
			_ = store.Add(shown)
			gate.PodChanged(shown)
		}
		if enters(p) {
			t.Fatal("the queue is full")
		}
		f.Begin(&orders.Order{OrderID: "o", Preemptor: orders.RefOf(p), Node: "n1", Removal: orders.Removal{Victims: []types.UID{"v"}, Remaining: map[types.UID]time.Time{"v": {}}}, CreatedAt: start, OpensAt: start.Add(time.Hour)})
		f.Succeed("o", start, start.Add(time.Hour), func(types.UID) bool { return false })
		f.Deleted("v", start.Add(-time.Second))
		gate.PodDeleted(victim.UID)
		if activations, _ := f.Due(start); len(activations) != 1 {
			t.Fatalf("%d activations", len(activations))
		}

		f.Due(start.Add(time.Minute))

		if enters(other) {
			t.Errorf("%s: another takes the place", name)
		}
		if placed {
			if !enters(p) {
				t.Errorf("%s: the preemptor does not get the place that was made for it", name)
			}
			f.Cycled("p")
			if enters(other) {
				t.Errorf("%s: another takes the place beside it", name)
			}
			continue
		}
		f.Cycled("p")
		if !enters(other) {
			t.Errorf("%s: the place is kept", name)
		}
	}
}
