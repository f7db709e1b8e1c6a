package plugin

import (
	"os"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"makeway.dev/makeway/plugin/internal/pluginargs"
	"makeway.dev/makeway/plugin/wire"
)

func TestAnOrderRefusedForAFutureEpochHasTheEpochReadAgain(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-scheduler"},
		Spec:       coordinationv1.LeaseSpec{LeaseTransitions: ptr.To[int32](5), HolderIdentity: ptr.To(host + "_5d4")},
	}
	w, p, _ := simple(t, setup{objects: []runtime.Object{lease}, args: func(a *MakeWayArgs) {
		a.Lease = pluginargs.LeaseReference{Namespace: "kube-system", Name: "kube-scheduler"}
	}}, nil)
	e := w.plugin.engine
	w.nominated(p, "n1")
	w.show(p, "n1")
	order := w.order(1)
	lease.Spec.LeaseTransitions = ptr.To[int32](0)
	if _, err := w.client.CoordinationV1().Leases("kube-system").Update(w.ctx, lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	e.applyOutcome(w.ctx, &wire.Outcome{OrderID: order.OrderID, Result: wire.ResultRefused, Reason: reasonFutureEpoch, Epoch: 5})

	if got, err := e.leadership.Fence.Get(w.ctx, ""); err != nil || got.Epoch != 0 {
		t.Errorf("it stays %+v, error %v", got, err)
	}
}

func TestWithoutALeaseEachStartIsCountedOnce(t *testing.T) {
	w := newWorld(t, setup{}, []*v1.Node{node("n1")})
	counted := func() int {
		w.bus.mu.Lock()
		defer w.bus.mu.Unlock()
		return w.bus.epochs
	}

	w.eventually("the start is counted", func() bool { return counted() > 0 })

	if got, err := w.plugin.engine.leadership.Fence.Get(t.Context(), ""); err != nil || got.Epoch != 7 || counted() != 1 {
		t.Errorf("%+v, error %v, counted %d times", got, err, counted())
	}
}
