package plugin

import (
	"cmp"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"makeway.dev/makeway/plugin/wire"
)

// quotaOrder puts an order into the stream that has a queue keep within its quota; on: its subject, where that is not its own.
func (w *world) quotaOrder(id string, victim *v1.Pod, on string) *wire.EvictionOrder {
	w.t.Helper()
	now := time.Now()
	order := &wire.EvictionOrder{
		OrderID: id, Kind: wire.KindQuota, ClusterUID: "cluster", Fence: wire.Fence{Kind: "lease", Name: "x", Epoch: 1}, Writer: "a planner",
		CreatedAt: wire.At(now), NotAfter: wire.At(now.Add(time.Minute)), Queue: "root.batch",
		Victims: []wire.Victim{{Namespace: victim.Namespace, Name: victim.Name, UID: string(victim.UID), Node: victim.Spec.NodeName, Rule: "over-quota"}},
	}
	data, err := wrap(wire.TypeOrder, order.OrderID, "makeway/planner/test", order.Queue, order.CreatedAt, order)
	if err != nil {
		w.t.Fatal(err)
	}
	w.bus.put(cmp.Or(on, w.plugin.engine.store.Subjects.OfOrder(order)), data)
	return order
}

// afterQuota is a world in which p fits its node without a and b, and the order of a quota removes b.
func afterQuota(t *testing.T) (w *world, p *v1.Pod, order *wire.EvictionOrder) {
	t.Helper()
	p = pod("p", "", high, size("400")).Obj()
	b := pod("b", "full", low, medium).Obj()
	w = newWorld(t, setup{}, []*v1.Node{node("full")}, p, pod("a", "full", low, medium).Obj(), b)
	order = w.quotaOrder("ord-quota", b, "")
	planned := candidate("full", "!a")
	planned.Awaited = []wire.Awaited{{UID: "b", OrderID: order.OrderID}}
	w.bus.plan = answers(planned)
	w.eventually("the order is read", func() bool { return w.plugin.engine.inflight.HasOrder(order.OrderID) })
	return w, p, order
}

func TestAPlanMayCountOnPodsThatAnOrderOfAQuotaRemoves(t *testing.T) {
	w, p, order := afterQuota(t)
	if n := len(w.plugin.engine.inflight.Nominated()); n != 0 {
		t.Errorf("%d preemptors have an order", n)
	}

	found := w.nominated(p, "full")

	if found.Awaited["b"] != order.OrderID || len(found.Victims) != 1 {
		t.Errorf("awaited %v, victims %v", found.Awaited, found.Victims)
	}
	if places := w.plugin.engine.inflight.Nominated(); len(places) != 1 || places[0].UID != "p" {
		t.Errorf("nominated are %v", places)
	}
}

func TestNoPlanCountsOnAnOrderOfAQuotaThatHasEnded(t *testing.T) {
	for _, result := range []string{wire.ResultSucceeded, wire.ResultFailed} {
		w, p, order := afterQuota(t)

		w.end(order, result)

		w.eventually("it has ended", func() bool { return !w.plugin.engine.inflight.HasOrder(order.OrderID) })
		if _, status := w.cycle(p); status.IsSuccess() {
			t.Errorf("%s: nominated", result)
		}
	}
}

func TestAnOrderOfAQuotaCountsOnTheSubjectOfItsQueueAlone(t *testing.T) {
	victim := pod("a", "full", low, medium).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("full")}, victim)
	w.eventually("the streams are read", func() bool {
		w.bus.mu.Lock()
		defer w.bus.mu.Unlock()
		return len(w.bus.follows) == 3
	})
	inflight := w.plugin.engine.inflight

	w.quotaOrder("ord-elsewhere", victim, w.plugin.engine.store.Subjects.Order(wire.KindQuota, "5a1b"))
	w.quotaOrder("ord-quota", victim, "")

	w.eventually("the other is known", func() bool { return inflight.HasOrder("ord-quota") })
	w.bus.mu.Lock()
	misplaced := w.bus.messages[0]
	w.bus.mu.Unlock()
	w.plugin.engine.takeOrder(w.ctx, misplaced)
	if inflight.HasOrder("ord-elsewhere") {
		t.Error("an order on another subject counts")
	}
}
