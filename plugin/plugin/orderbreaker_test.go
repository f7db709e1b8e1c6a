package plugin

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/testutil"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/queues"
	"makeway.dev/makeway/plugin/wire"
)

func TestAnOrderThatIsStoredAndHasNoOutcomeInTimeCountsAgainstTheEvictors(t *testing.T) {
	for name, stored := range map[string]bool{"stored": true, "not stored": false} {
		t.Run(name, func(t *testing.T) {
			f, now := orders.NewInFlight(queues.NewGate(nil, corelisters.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)), nil)), time.Unix(1_000_000, 0)
			f.Begin(&orders.Order{OrderID: "ord", Preemptor: wire.PodRef{UID: "p"}, Node: "n1", OpensAt: now.Add(time.Minute)})
			if stored {
				f.Stored(&wire.EvictionOrder{OrderID: "ord"}, now.Add(time.Minute))
			}

			activations, _ := f.Due(now.Add(time.Minute))

			if len(activations) != 1 || !activations[0].Revert || activations[0].Unanswered != stored {
				t.Errorf("%+v", activations)
			}
		})
	}
}

func TestAnOrderWithoutAnOutcomeIsMeasuredSinceItWasMade(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	measured := func() float64 {
		seconds, err := testutil.GetHistogramMetricValue(executionDuration.WithLabelValues(operationOrder, resultError))
		if err != nil {
			t.Fatal(err)
		}
		return seconds
	}
	before := measured()
	order := &orders.Order{OrderID: "ord", Preemptor: orders.RefOf(p), Node: "n1", CreatedAt: time.Now().Add(-time.Minute)}
	order.Unanswered = true

	w.plugin.engine.applyActivation(w.ctx, orders.Activation{Order: order, Revert: true})

	if took := measured() - before; took < 60 {
		t.Errorf("measured %.1f s", took)
	}
}

func TestOrdersThatAreNotStoredShutTheBreaker(t *testing.T) {
	for name, broken := range map[string]func(*fakeBus){
		"no commit is delivered": func(b *fakeBus) { b.publish = func(int) (bool, error) { return false, natsbus.ErrNotSent } },
		"no planner answers":     func(b *fakeBus) { b.publish = func(int) (bool, error) { return false, natsbus.ErrNoResponders } },
		"the stream takes none": func(b *fakeBus) {
			b.commit = func(context.Context, *wire.CommitRequest) (*wire.CommitReply, error) {
				return &wire.CommitReply{Void: &wire.Void{Reason: "publish-refused", Message: "no space left"}}, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, _ := simple(t, setup{}, nil)
			broken(w.bus)
			w.show(p, "n1")
			w.eventually("the nomination shows", func() bool { return w.plugin.engine.current(orders.RefOf(p)).Status.NominatedNodeName == "n1" })

			w.nominated(p, "n1")
			w.eventually("the order is given up", func() bool { return w.entry("p") == nil })
			if w.plugin.mayPrefetch(p) {
				t.Error("a plan is prefetched")
			}
			if trouble := w.plugin.engine.trouble(); trouble != "eviction orders cannot be stored" {
				t.Errorf("trouble %q", trouble)
			}
			asked := w.asked()

			// The API still shows the nomination, which no order stands behind.
			result, status := w.cycle(p)
			if status.Code() != fwk.Unschedulable || result == nil || result.Mode() != fwk.ModeOverride || result.NominatedNodeName != "" {
				t.Errorf("result %+v, status %v, want the nomination cleared and others to act", result, status)
			}
			if !strings.Contains(status.Message(), "eviction orders cannot be stored") || w.asked() != asked {
				t.Errorf("message %q, asked %d times more", status.Message(), w.asked()-asked)
			}
			if result, _ = w.cycle(p); result != nil {
				t.Errorf("cleared twice: %+v", result)
			}
		})
	}
}

func TestANominationWithoutAnOrderIsClearedThoughThePlannerIsAway(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.bus.publish = func(int) (bool, error) { return false, natsbus.ErrNotSent }
	w.nominated(p, "n1")
	w.show(p, "n1")
	w.eventually("the order is given up", func() bool { return w.entry("p") == nil })
	w.bus.mu.Lock()
	w.bus.plan = nil
	w.bus.mu.Unlock()

	result, status := w.cycle(p)

	if status.Code() != fwk.Unschedulable || result == nil || result.Mode() != fwk.ModeOverride || result.NominatedNodeName != "" {
		t.Errorf("result %+v, status %v", result, status)
	}
}

// twoVictims is a world in which p fits n1 without both waits, which is in Permit, and bound.
func twoVictims(t *testing.T) (w *world, p, waits *v1.Pod) {
	t.Helper()
	p, waits = pod("p", "", high, whole).Obj(), pod("waits", "n1", low, medium).Obj()
	w = newWorld(t, setup{}, []*v1.Node{node("n1")}, p, waits, pod("bound", "n1", low, large).Obj())
	w.bus.plan = answers(candidate("n1", "!waits", "!bound"))
	w.plugin.Reserve(w.ctx, nil, waits, "n1")
	return w, p, waits
}

func TestAVictimInPermitIsNotThrownBackForAnOrderThatIsNotStored(t *testing.T) {
	w, p, waits := twoVictims(t)
	waitAtPermit(t, w.framework, waits, "Gate")
	w.bus.publish = func(int) (bool, error) { return false, natsbus.ErrNotSent }
	w.nominated(p, "n1")
	w.show(p, "n1")
	w.eventually("the order is given up", func() bool { return w.entry("p") == nil })

	w.framework.GetWaitingPod(waits.UID).Allow("Gate")

	if status := w.framework.WaitOnPermit(w.ctx, waits); !status.IsSuccess() {
		t.Errorf("it was preempted in memory: %v", status)
	}
}

func TestAVictimInPermitIsThrownBackOnceTheOrderIsStored(t *testing.T) {
	w, p, waits := twoVictims(t)
	waitAtPermit(t, w.framework, waits, "Gate")
	w.nominated(p, "n1")

	w.show(p, "n1")

	if order := w.order(1); len(order.Victims) != 1 || order.Victims[0].UID != "bound" {
		t.Errorf("victims %+v", order.Victims)
	}
	if status := w.framework.WaitOnPermit(w.ctx, waits); status.Code() != fwk.Error {
		t.Errorf("the waiting pod got %v, want an error, which lets it be tried again", status)
	}
}

func TestAPreemptorDoesNotWaitForAVictimThatWasBoundBeforeItCouldBeStoppedInMemory(t *testing.T) {
	w, p, waits := twoVictims(t)
	prebound(t, w.framework, waits.UID)
	w.nominated(p, "n1")

	w.show(p, "n1")

	if order := w.order(1); len(order.Victims) != 1 || order.Victims[0].UID != "bound" {
		t.Errorf("victims %+v", order.Victims)
	}
	w.eventually("it is not waited for", func() bool {
		e := w.entry("p")
		_, waiting := e.Remaining["waits"]
		return e.Phase == orders.Committed && !waiting && len(e.Victims) == 1
	})
}
