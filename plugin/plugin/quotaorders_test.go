package plugin

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"makeway.dev/makeway/plugin/wire"
)

// quotaOrder puts an order into the stream that has a queue keep within its quota.
func (w *world) quotaOrder(victim *v1.Pod) *wire.EvictionOrder {
	w.t.Helper()
	now := time.Now()
	order := &wire.EvictionOrder{
		OrderID: "ord-quota", Kind: wire.KindQuota, ClusterUID: "cluster", Fence: wire.Fence{Kind: "lease", Name: "x", Epoch: 1}, Writer: "a planner",
		CreatedAt: wire.At(now), NotAfter: wire.At(now.Add(time.Minute)), Queue: "root.batch",
		Victims: []wire.Victim{{Namespace: victim.Namespace, Name: victim.Name, UID: string(victim.UID), Node: victim.Spec.NodeName, Rule: "over-quota"}},
	}
	data, err := wrap(wire.TypeOrder, order.OrderID, "makeway/planner/test", order.Queue, order.CreatedAt, order)
	if err != nil {
		w.t.Fatal(err)
	}
	w.bus.put(w.plugin.engine.store.Subjects.Order(wire.KindQuota, "5a1b"), data)
	return order
}

// afterQuota is a world in which p fits its node without a and b, and the order of a quota removes b.
func afterQuota(t *testing.T) (w *world, p *v1.Pod, order *wire.EvictionOrder) {
	t.Helper()
	p = pod("p", "", high, size("400")).Obj()
	b := pod("b", "full", low, medium).Obj()
	w = newWorld(t, setup{}, []*v1.Node{node("full")}, p, pod("a", "full", low, medium).Obj(), b)
	order = w.quotaOrder(b)
	planned := candidate("full", "!a")
	planned.Awaited = []wire.Awaited{{UID: "b", OrderID: order.OrderID}}
	w.bus.plan = answers(planned)
	w.eventually("the order is read", func() bool { return w.plugin.engine.inflight.HasOrder(order.OrderID) })
	return w, p, order
}

func TestAPlanMayCountOnPodsThatAnOrderOfAQuotaRemoves(t *testing.T) {
	w, p, order := afterQuota(t)
	if n := w.plugin.engine.inflight.Count(); n != 0 {
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
