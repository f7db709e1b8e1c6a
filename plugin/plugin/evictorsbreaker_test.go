package plugin

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/control"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// breakerOf is the ConfigMap of the evictors' breaker, open since a while for what the keys name.
func breakerOf(since time.Duration, keys ...string) *v1.ConfigMap {
	data := map[string]string{}
	for _, key := range keys {
		data[key] = time.Now().Add(-since).UTC().Format("2006-01-02T15:04:05.000Z") + " of a test"
	}
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "makeway-system", Name: control.Breaker}, Data: data}
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

func TestWhileTheEvictorsBreakerIsOpenNothingIsEvictedWithoutAPlan(t *testing.T) {
	for name, test := range map[string]struct {
		breaker *v1.ConfigMap
		why     map[string]string // by namespace; empty: others may act
	}{
		"for all": {breakerOf(time.Hour, "mismatches"), map[string]string{
			"default": "the evictors' breaker is open", "second": "the evictors' breaker is open",
		}},
		"for a namespace":                    {breakerOf(time.Minute, "wasted-victims.default"), map[string]string{"default": "breaker is open for the pod's namespace", "second": ""}},
		"for a namespace, ten minutes after": {breakerOf(11*time.Minute, "wasted-victims.default"), map[string]string{"default": ""}},
		"for nothing that is known":          {breakerOf(time.Minute, "another-cause"), map[string]string{"default": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, _ := simple(t, setup{objects: []runtime.Object{test.breaker}}, nil)
			w.bus.plan = nil
			w.tells(enforcing(1, nil), at(1))
			for namespace, why := range test.why {
				found := w.plugin.withoutPlan(namespace, high)
				if why == "" && found != leftToOthers || why != "" && (found.result != unplannedStopped || !strings.Contains(found.why, why)) {
					t.Errorf("%s: %+v", namespace, found)
				}
			}

			result, status := w.cycle(p)

			held := test.why["default"] != ""
			if result != nil || (status.Code() == fwk.UnschedulableAndUnresolvable) != held {
				t.Errorf("result %+v, status %v", result, status)
			}
		})
	}
}

func TestAPodIsTriedAgainWithTheNextOutcomeWherePlannersHeldPlansBack(t *testing.T) {
	for reason, kind := range map[string]outcomeKind{"NoEvictor": endNoEvictor, "OrdersNotStored": endNotStored} {
		t.Run(reason, func(t *testing.T) {
			w, p, _ := simple(t, setup{}, nil)
			plan, before := w.bus.plan, ownMetric(t, "makeway_scheduler_attempts_total", string(kind))
			w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
				return &wire.PlanReply{Status: wire.StatusNotSynced, Refusal: &wire.Refusal{Reason: reason, Message: "an order is tried now and then"}}, nil
			}

			result, status := w.cycle(p)

			if result != nil || status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "an order is tried now and then") || w.gated(p) {
				t.Fatalf("result %+v, status %v, want (nil, Unschedulable)", result, status)
			}
			if ended := ownMetric(t, "makeway_scheduler_attempts_total", string(kind)) - before; ended != 1 {
				t.Errorf("it ends %v times as %s", ended, kind)
			}
			w.bus.mu.Lock()
			w.bus.plan = plan
			w.bus.mu.Unlock()
			now := wire.At(time.Now())
			w.end(&wire.EvictionOrder{OrderID: "ord-of-another", ClusterUID: "cluster", CreatedAt: now, Preemptor: &wire.Preemptor{UID: "another"}}, wire.ResultExpired)
			w.eventually("the pod is activated", func() bool { return w.activator.of("p") == 1 })
			w.nominated(p, "n1")
		})
	}
}
