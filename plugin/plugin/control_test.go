package plugin

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/control"
	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/wire"
)

// enforcing is a control state of the tests' cluster, where nothing restricts preemption.
func enforcing(revision int64, change func(*wire.ControlState)) *wire.ControlState {
	state := &wire.ControlState{Revision: revision, Mode: wire.ModeEnforce, ClusterUID: "cluster", Unplanned: &wire.Unplanned{}}
	if change != nil {
		change(state)
	}
	return state
}

// tells hands a control state to the plugin as its follower does, from the stream made at a time.
func (w *world) tells(state *wire.ControlState, stream time.Time) {
	w.t.Helper()
	data, err := wrap(wire.TypeControl, fmt.Sprintf("control-%d", state.Revision), "makeway/planner/test", "", wire.At(start), state)
	if err != nil {
		w.t.Fatal(err)
	}
	r := natsbus.Record{Subject: w.plugin.engine.store.Subjects.Control(), Stream: stream, Data: data}
	w.plugin.engine.control.Take(w.ctx, r)
	if w.queues != nil {
		w.queues.Take(w.ctx, r)
	}
}

func (w *world) revision() int64 {
	if state := w.plugin.engine.control.State(); state != nil {
		return state.Revision
	}
	return 0
}

func TestTheLastStoredControlStateIsReadAtTheStart(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	data, err := wrap(wire.TypeControl, "control-3", "makeway/planner/test", "", wire.At(start), enforcing(3, func(s *wire.ControlState) { s.Mode = wire.ModeOff }))
	if err != nil {
		t.Fatal(err)
	}
	w.bus.put(w.plugin.engine.store.Subjects.Control(), data)

	w.eventually("it is in force", func() bool { return w.revision() == 3 })

	if _, status := w.cycle(p); !strings.Contains(status.Message(), "mode off") || status.Code() != fwk.Unschedulable {
		t.Errorf("status %v", status)
	}
}

func TestAControlStateOfTheFarFutureDoesNotKeepOutTheNext(t *testing.T) {
	w, _, _ := simple(t, setup{}, nil)
	w.tells(enforcing(5, nil), at(1))

	w.tells(enforcing(math.MaxInt64, func(s *wire.ControlState) { s.Mode = wire.ModeOff }), at(1))
	w.tells(enforcing(6, func(s *wire.ControlState) { s.Mode = wire.ModeObserve }), at(1))

	if current := w.plugin.engine.control.State(); current.Revision != 6 || current.Mode != wire.ModeObserve {
		t.Errorf("in force is %+v", current)
	}
}

func TestAControlStateIsTakenOnceTheClockIsNoLongerBehind(t *testing.T) {
	w, _, _ := simple(t, setup{}, nil)
	ahead := w.plugin.engine.clock.Now().Add(time.Hour + 300*time.Millisecond).UnixMilli()
	w.tells(enforcing(ahead, nil), at(1))
	if w.revision() != 0 {
		t.Fatal("a revision more than an hour ahead counted")
	}

	w.eventually("it is in force", func() bool {
		w.plugin.engine.store.Signatures.Renew(w.ctx, w.plugin.engine.control.Take)
		return w.revision() == ahead
	})
}

func TestTheLastGoodControlStateStaysWhereAnotherCannotBeUsed(t *testing.T) {
	stream := at(1)
	for name, tell := range map[string]func(*world){
		"an older revision": func(w *world) { w.tells(enforcing(4, nil), stream) },
		"another cluster's": func(w *world) {
			w.tells(enforcing(6, func(s *wire.ControlState) { s.ClusterUID = "other" }), stream)
		},
		"not understood": func(w *world) {
			w.plugin.engine.control.Take(w.ctx, natsbus.Record{Stream: stream, Data: []byte(`{"revision": 6}`)})
		},
		"a revision that leaves no room for another": func(w *world) {
			w.tells(enforcing(math.MaxInt64, func(s *wire.ControlState) { s.Mode = wire.ModeOff }), stream)
		},
		"a revision more than an hour ahead": func(w *world) {
			ahead := w.plugin.engine.clock.Now().Add(time.Hour + time.Minute).UnixMilli()
			w.tells(enforcing(ahead, func(s *wire.ControlState) { s.Mode = wire.ModeOff }), stream)
		},
		"the same again": func(w *world) { w.tells(enforcing(5, nil), stream) },
	} {
		w, _, _ := simple(t, setup{}, nil)
		w.tells(enforcing(5, func(s *wire.ControlState) { s.Mode = wire.ModeObserve }), stream)

		tell(w)

		if current := w.plugin.engine.control.State(); current.Revision != 5 || current.Mode != wire.ModeObserve {
			t.Errorf("%s: in force is %+v", name, current)
		}
	}
}

func TestAStreamThatWasMadeAnewMayBeginAtAnyRevision(t *testing.T) {
	w, _, _ := simple(t, setup{}, nil)
	w.tells(enforcing(500, nil), at(1))

	w.tells(enforcing(1, nil), at(2))

	if w.revision() != 1 {
		t.Errorf("revision %d", w.revision())
	}
}

func TestPlanRequestsSayTheModeInForce(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.tells(enforcing(1, func(s *wire.ControlState) { s.NamespaceModes = map[string]string{"default": wire.ModeObserve} }), at(1))

	_, status := w.cycle(p)

	w.eventually("the planner is asked", func() bool { return len(w.bus.planRequests()) == 1 })
	if asked := w.bus.planRequests()[0]; !strings.Contains(status.Message(), "mode observe") || asked.Mode != wire.ModeObserve {
		t.Errorf("status %v, mode asked with %s", status, asked.Mode)
	}
}

func TestBeyondTheLimitOfOrdersAPodWaitsForOneToEnd(t *testing.T) {
	p, q, r := pod("p", "", high, large).Obj(), pod("q", "", high, large).Obj(), pod("r", "", mid+1, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1"), node("n2")}, p, q, r, pod("a", "n1", mid, large).Obj(), pod("b", "n2", mid, large).Obj())
	w.bus.plan = answers(candidate("n1", "!a"), candidate("n2", "!b"))
	e := w.nominated(p, "n1")
	inAMinute := wire.At(time.Now().Add(time.Minute))
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{
			Reason: "OrdersInFlight", Message: "1 eviction orders have no outcome yet", RetryAt: &inAMinute, DependsOn: []wire.Dependency{{Kind: memory.KindOrders, Name: memory.OrderLimit}},
		}}, nil
	}

	for _, waiting := range []*v1.Pod{r, q} {
		_, status := w.cycle(waiting)
		if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "1 eviction orders have no outcome yet") {
			t.Errorf("status %v", status)
		}
	}
	if w.activator.of(q.UID) != 0 {
		t.Error("activated before an order has ended")
	}

	now := wire.At(time.Now())
	w.tell(&wire.Outcome{
		OrderID: e.OrderID, Kind: wire.KindPod, ClusterUID: "cluster", Epoch: 1, Result: wire.ResultSucceeded,
		Evictor: "test", StartedAt: now, FinishedAt: now, PreemptorUID: "p", Node: "n1",
	})

	w.eventually("the most important is activated", func() bool { return w.activator.of(q.UID) == 1 })
	if w.activator.of(r.UID) != 0 {
		t.Error("more are activated than may have an order")
	}
}

func TestPodsThatTheBrakeKeptAreTriedAgainWhenTheControlStateSaysEnforce(t *testing.T) {
	p := pod("p", "", 100, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("v", "n1", 1, large).Obj())
	e := w.plugin.engine
	e.control.SetBrake(w.ctx, control.ParseBrake(nil))
	w.tells(enforcing(1, func(s *wire.ControlState) { s.Mode, s.PolicyRevision = wire.ModeOff, "same" }), at(1))
	w.cycle(p)

	e.control.SetBrake(w.ctx, nil)
	w.eventually("the plugin's own watch wakes it", func() bool { return w.activator.of(p.UID) == 1 })
	w.cycle(p) // the control state says off still
	w.tells(enforcing(2, func(s *wire.ControlState) { s.PolicyRevision = "same" }), at(1))

	for deadline := time.Now().Add(7 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if w.activator.of(p.UID) > 1 {
			return
		}
	}
	t.Error("mode enforce is in force, and the pod is not tried again")
}
