package plugin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// refuse ends an order as an evictor does whose breaker is open.
func (w *world) refuse(order *wire.EvictionOrder, reason string, at time.Time) {
	w.t.Helper()
	w.tell(&wire.Outcome{
		OrderID: order.OrderID, Kind: "pod", ClusterUID: order.ClusterUID, Epoch: order.Fence.Epoch, Result: wire.ResultRefused, Reason: reason, Evictor: "test",
		StartedAt: order.CreatedAt, FinishedAt: wire.At(at), PreemptorUID: order.Preemptor.UID, Node: order.Node,
	})
}

// orderOf nominates a pod and returns the order that is stored for it.
func (w *world) orderOf(p *v1.Pod) *wire.EvictionOrder {
	w.t.Helper()
	w.nominated(p, "n1")
	w.show(p, "n1")
	var order *wire.EvictionOrder
	w.eventually("the order is stored", func() bool {
		w.bus.mu.Lock()
		defer w.bus.mu.Unlock()
		last, found := w.bus.last(w.plugin.engine.store.Subjects.Order(wire.KindPod, string(p.UID)))
		if !found {
			return false
		}
		read := &wire.EvictionOrder{}
		if _, err := wire.Unwrap(last.Data, wire.TypeOrder, read); err != nil || read.OrderID != w.entry(p.UID).OrderID {
			return false
		}
		order = read
		return w.entry(p.UID).Phase == orders.Committed
	})
	return order
}

// refused nominates a pod and has its order refused.
func (w *world) refused(p *v1.Pod, reason string) {
	w.t.Helper()
	w.refuse(w.orderOf(p), reason, time.Now())
	w.show(p, "")
	w.eventually("the order is given up", func() bool { return w.entry(p.UID) == nil })
}

// breakerWorld is one with a preemptor in each of two namespaces; the planner has the same victim for all.
func breakerWorld(t *testing.T, given setup) (w *world, p, other *v1.Pod) {
	t.Helper()
	p = pod("p", "", high, whole).Obj()
	other = pod("other", "", high, whole).Namespace("second").Obj()
	w = newWorld(t, given, []*v1.Node{node("n1")}, p, other, pod("victim", "n1", low, whole).Obj())
	w.bus.plan = answers(candidate("n1", "!victim"))
	return w, p, other
}

func TestTwoOrdersThatTheEvictorsBreakerRefusesStopPreemption(t *testing.T) {
	w, p, other := breakerWorld(t, setup{})
	for range memory.FutileOrders {
		w.refused(p, reasonBreakerOpen)
	}

	for _, pod := range []*v1.Pod{p, other} {
		result, status := w.cycle(pod)

		if result != nil || status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "the evictors' breaker is open") {
			t.Errorf("%s: result %+v, status %v, want (nil, UnschedulableAndUnresolvable)", pod.Name, result, status)
		}
		if found := w.plugin.withoutPlan(pod.Namespace, high); found.result != unplannedStopped || !strings.Contains(found.why, "the evictors' breaker is open") {
			t.Errorf("%s: without a plan: %+v", pod.Name, found)
		}
	}
	if w.plugin.mayPrefetch(p) {
		t.Error("a plan is prefetched")
	}
}

func TestOrdersRefusedForANamespaceHoldBackThatNamespaceAlone(t *testing.T) {
	w, p, other := breakerWorld(t, setup{})
	for range memory.FutileOrders {
		w.refused(p, reasonBreakerOpenNamespace)
	}

	result, status := w.cycle(p)
	if result != nil || status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "breaker is open for the pod's namespace") {
		t.Errorf("result %+v, status %v, want (nil, UnschedulableAndUnresolvable)", result, status)
	}
	if found := w.plugin.withoutPlan(p.Namespace, high); found.result != unplannedStopped || !strings.Contains(found.why, "breaker is open for the pod's namespace") {
		t.Errorf("without a plan: %+v", found)
	}
	if found := w.plugin.withoutPlan(other.Namespace, high); found != leftToOthers {
		t.Errorf("without a plan in another namespace: %+v", found)
	}
	if state, why := w.plugin.engine.memory.Orders.State(); state != telemetry.Closed {
		t.Errorf("open for all: %s", why)
	}
	w.nominated(other, "n1")
}

func TestAnOutcomeThatNamesAnotherNamespacesPreemptorHoldsNoneOfItsPodsBack(t *testing.T) {
	w, p, other := breakerWorld(t, setup{})
	for range memory.FutileOrders {
		order := w.orderOf(p)
		order.Preemptor.UID = string(other.UID)
		w.refuse(order, reasonBreakerOpenNamespace, time.Now())
		w.show(p, "")
		w.eventually("the order is given up", func() bool { return w.entry("p") == nil })
	}

	w.nominated(other, "n1")
}

func TestOneOutcomeToldManyTimesAndThoseOfUnknownOrdersOpenNothing(t *testing.T) {
	w, p, _ := breakerWorld(t, setup{})
	order := w.orderOf(p)
	for range 2 * memory.FutileOrders {
		w.refuse(order, reasonBreakerOpen, time.Now())
	}
	w.show(p, "")
	w.eventually("the order is given up", func() bool { return w.entry("p") == nil })
	for i := range 2 * memory.FutileOrders {
		unknown := *order
		unknown.OrderID = fmt.Sprintf("ord-unknown-%d", i)
		w.refuse(&unknown, reasonBreakerOpen, time.Now())
	}

	w.eventually("all were read", func() bool {
		return w.plugin.engine.inflight.Outcome(fmt.Sprintf("ord-unknown-%d", 2*memory.FutileOrders-1)) != nil
	})

	w.nominated(p, "n1")
}

func TestAnOrderThatIsCarriedOutClosesWhatTheEvictorsBreakerHadOpened(t *testing.T) {
	fresh, old := time.Now(), time.Now().Add(-2*orders.AnswerFresh)
	for name, test := range map[string]struct {
		result, reason string
		at             time.Time
		closes         bool
	}{
		"carried out":                                     {wire.ResultSucceeded, "", fresh, true},
		"refused for its namespace alone":                 {wire.ResultRefused, reasonBreakerOpenNamespace, fresh, true},
		"carried out long ago":                            {wire.ResultSucceeded, "", old, false},
		"cancelled, which a pod's author can bring about": {wire.ResultCancelled, "preemptor-gone", fresh, false},
		"failed for an order that it counted on":          {wire.ResultFailed, "awaited-order-failed", fresh, false},
		"refused by the breaker":                          {wire.ResultRefused, reasonBreakerOpen, fresh, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, _ := breakerWorld(t, setup{})
			for range memory.FutileOrders {
				w.refused(p, reasonBreakerOpen)
			}

			w.tell(&wire.Outcome{OrderID: "ord-of-another", Kind: "pod", ClusterUID: "cluster", Result: test.result, Reason: test.reason, Evictor: "test",
				StartedAt: wire.At(test.at), FinishedAt: wire.At(test.at), PreemptorUID: "another", Node: "n1"})
			w.eventually("it was read", func() bool { return w.plugin.engine.inflight.Outcome("ord-of-another") != nil })

			closed := func() bool { state, _ := w.plugin.engine.memory.Orders.State(); return state == telemetry.Closed }
			if test.closes {
				w.eventually("it closes", closed)
			} else if time.Sleep(50 * time.Millisecond); closed() {
				t.Error("it is closed")
			}
		})
	}
}
