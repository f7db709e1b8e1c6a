package preempt

import (
	"errors"
	"testing"
	"time"

	"makeway.dev/makeway/plugin/wire"
)

// ordered is a world whose order for pod p is stored, made long enough ago to be looked up.
func ordered(t *testing.T) (*world, *wire.EvictionOrder) {
	t.Helper()
	w, p, _ := simple(t, setup{}, nil)
	w.nominated(p, "n1")
	w.show(p, "n1")
	order := w.order(1)
	w.eventually("the order is known to be stored", func() bool { return w.entry("p").phase == committed })
	f := w.plugin.engine.inflight
	f.mu.Lock()
	f.byPod["p"].createdAt = time.Now().Add(-unansweredAfter - time.Second)
	f.mu.Unlock()
	return w, order
}

// wipe forgets all that is stored.
func (b *fakeBus) wipe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages, b.ids = nil, map[string]uint64{}
}

func TestAnOrderThatItsStreamHasLostIsPublishedAgainAsItWas(t *testing.T) {
	w, order := ordered(t)
	w.bus.mu.Lock()
	first := w.bus.messages[0]
	w.bus.mu.Unlock()
	w.bus.wipe()

	w.plugin.engine.reconcile(w.ctx)
	w.plugin.engine.reconcile(w.ctx)

	w.bus.mu.Lock()
	stored := w.bus.messages
	w.bus.mu.Unlock()
	if len(stored) != 1 || string(stored[0].Data) != string(first.Data) || stored[0].Subject != first.Subject {
		t.Fatalf("stored %d messages, want the order %s alone", len(stored), order.OrderID)
	}
	if w.entry("p").phase != committed {
		t.Error("the order is not taken for live any more")
	}
}

func TestAnOrderThatIsStillThereIsLeftAlone(t *testing.T) {
	w, _ := ordered(t)

	w.plugin.engine.reconcile(w.ctx)

	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	if len(w.bus.messages) != 1 {
		t.Errorf("%d messages", len(w.bus.messages))
	}
}

func TestAnOutcomeThatWasNeverReadIsLookedUp(t *testing.T) {
	w, order := ordered(t)
	w.bus.mu.Lock()
	w.bus.follows = nil
	w.bus.mu.Unlock()
	w.end(order, wire.ResultSucceeded)

	w.plugin.engine.reconcile(w.ctx)

	w.eventually("the order has succeeded", func() bool { e := w.entry("p"); return e == nil || e.phase != committed })
}

func TestNothingIsPublishedWhileItIsNotKnownWhatIsStored(t *testing.T) {
	w, _ := ordered(t)
	w.bus.wipe()
	w.bus.mu.Lock()
	w.bus.lastErr = errors.New("no answer")
	w.bus.mu.Unlock()

	w.plugin.engine.reconcile(w.ctx)

	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	if len(w.bus.messages) != 0 {
		t.Errorf("%d messages", len(w.bus.messages))
	}
}

func TestUnansweredOrders(t *testing.T) {
	now := time.Unix(1000, 0)
	made := func(id, pod string, at phase, age, left time.Duration) *inFlightPreemption {
		return &inFlightPreemption{orderID: id, preemptor: wire.PodRef{UID: pod}, phase: at, createdAt: now.Add(-age), opensAt: now.Add(left + gateSlack)}
	}
	f := newInflight()
	f.put(made("young", "a", committed, time.Second, time.Minute))
	f.put(made("later", "b", committed, 4*time.Second, time.Minute))
	f.put(made("oldest", "c", committed, 9*time.Second, time.Minute))
	f.put(made("not stored", "d", planned, 9*time.Second, time.Minute))
	f.put(made("ended", "e", leaving, 9*time.Second, time.Minute))
	f.put(made("past its notAfter", "f", committed, time.Minute, 0))

	var ids []string
	for _, order := range f.unanswered(now.Add(-unansweredAfter), now) {
		ids = append(ids, order.orderID)
	}

	if len(ids) != 2 || ids[0] != "oldest" || ids[1] != "later" {
		t.Errorf("%v", ids)
	}
}

func TestAnOrderThatWasGivenUpIsNotPublished(t *testing.T) {
	f := newInflight()
	now := time.Now()
	f.begin(&inFlightPreemption{orderID: "ord-1", preemptor: wire.PodRef{Namespace: "default", Name: "p", UID: "p"}, opensAt: now})
	f.due(now)

	if err := f.publishing("ord-1", []byte("order")); !errors.Is(err, errAwaitedOrderFailed) {
		t.Errorf("error %v, want that the awaited order failed", err)
	}
}
