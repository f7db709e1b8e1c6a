package plugin

import (
	"errors"
	"testing"
	"time"

	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// ordered is a world whose order for pod p is stored, made long enough ago to be looked up.
func ordered(t *testing.T) (*world, *wire.EvictionOrder) {
	t.Helper()
	w, p, _ := simple(t, setup{}, nil)
	w.nominated(p, "n1")
	w.show(p, "n1")
	order := w.order(1)
	w.eventually("the order is known to be stored", func() bool { return w.entry("p").Phase == orders.Committed })
	return w, order
}

// late is when an order that was just made is looked up.
func late() time.Time { return time.Now().Add(orders.UnansweredAfter + time.Second) }

// wipe forgets all that is stored.
func (b *fakeBus) wipe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages, b.ids = nil, map[string]uint64{}
}

func TestAnOrderThatItsStreamHasLostIsThePlannersToStoreAgain(t *testing.T) {
	w, _ := ordered(t)
	w.bus.wipe()

	w.plugin.engine.reconcile(w.ctx, late())

	if w.orders() != 0 {
		t.Error("it was published")
	}
	if w.entry("p").Phase != orders.Committed {
		t.Error("the order is not taken for live any more")
	}
}

func TestAnOrderThatIsStillThereIsLeftAlone(t *testing.T) {
	w, _ := ordered(t)

	w.plugin.engine.reconcile(w.ctx, late())

	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	if len(w.bus.messages) != 1 {
		t.Errorf("%d messages", len(w.bus.messages))
	}
}

func TestAnOutcomeThatWasNeverReadIsLookedUp(t *testing.T) {
	w, order := ordered(t)
	w.deaf(3)
	w.end(order, wire.ResultSucceeded)

	w.plugin.engine.reconcile(w.ctx, late())

	w.eventually("the order has succeeded", func() bool { e := w.entry("p"); return e == nil || e.Phase != orders.Committed })
}

func TestNothingIsPublishedWhileItIsNotKnownWhatIsStored(t *testing.T) {
	w, _ := ordered(t)
	w.bus.wipe()
	w.bus.mu.Lock()
	w.bus.lastErr = errors.New("no answer")
	w.bus.mu.Unlock()

	w.plugin.engine.reconcile(w.ctx, late())

	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	if len(w.bus.messages) != 0 {
		t.Errorf("%d messages", len(w.bus.messages))
	}
}
