package preempt

import (
	"os"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"makeway.dev/makeway/plugin/wire"
)

func TestTheEpochIsThatOfALeaseThatThisSchedulerHolds(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-scheduler"},
		Spec:       coordinationv1.LeaseSpec{LeaseTransitions: ptr.To[int32](4)},
	}
	client := clientsetfake.NewClientset(lease)
	holds := func(holder *string, transitions int32) {
		t.Helper()
		lease.Spec.HolderIdentity, lease.Spec.LeaseTransitions = holder, &transitions
		if _, err := client.CoordinationV1().Leases("kube-system").Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	args := defaultArgs()
	args.Lease = LeaseReference{Namespace: "kube-system", Name: "kube-scheduler"}
	f := &fence{args: &args, client: client}

	for _, holder := range []*string{nil, ptr.To(""), ptr.To(host + "-2_5d4"), ptr.To("another_5d4")} {
		holds(holder, 4)
		if got, err := f.get(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "held by") {
			t.Errorf("held by %q: %+v, error %v", ptr.Deref(holder, ""), got, err)
		}
	}
	holds(ptr.To(host+"_5d4"), 5)
	if got, err := f.get(t.Context(), ""); err != nil || got.Epoch != 5 {
		t.Errorf("%+v, error %v", got, err)
	}
	holds(ptr.To("another_5d4"), 6)
	if got, err := f.get(t.Context(), ""); err != nil || got.Epoch != 5 {
		t.Errorf("later: %+v, error %v", got, err)
	}
}

func TestTheEpochOfALeaseThatWasMadeAnewIsReadOnceAnOrderWasRefusedForIt(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	args := defaultArgs()
	args.Lease = LeaseReference{Namespace: "kube-system", Name: "kube-scheduler"}
	holds := func(holder string, transitions int32) *clientsetfake.Clientset {
		return clientsetfake.NewClientset(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-scheduler"},
			Spec:       coordinationv1.LeaseSpec{LeaseTransitions: &transitions, HolderIdentity: &holder},
		})
	}
	f := &fence{args: &args, client: holds(host+"_5d4", 5)}
	if got, err := f.get(t.Context(), ""); err != nil || got.Epoch != 5 {
		t.Fatalf("%+v, error %v", got, err)
	}
	f.client = holds(host+"_5d4", 0)

	f.forget(4) // of an order of another epoch
	if got, err := f.get(t.Context(), ""); err != nil || got.Epoch != 5 {
		t.Errorf("%+v, error %v", got, err)
	}
	f.forget(5)
	if got, err := f.get(t.Context(), ""); err != nil || got.Epoch != 0 {
		t.Errorf("made anew: %+v, error %v", got, err)
	}

	f.client = holds("another_5d4", 1)
	f.forget(0)
	if got, err := f.get(t.Context(), ""); err == nil {
		t.Errorf("a scheduler that does not lead has epoch %d", got.Epoch)
	}
}

func TestAnOrderRefusedForAFutureEpochHasTheEpochReadAgain(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	e := w.plugin.engine
	w.nominated(p, "n1")
	w.show(p, "n1")
	order := w.order(1)
	e.fence.mu.Lock()
	e.fence.read = &wire.Fence{Kind: "lease", Epoch: 5}
	e.fence.mu.Unlock()

	e.applyOutcome(w.ctx, &wire.Outcome{OrderID: order.OrderID, Result: wire.ResultRefused, Reason: reasonFutureEpoch, Epoch: 5})

	e.fence.mu.Lock()
	defer e.fence.mu.Unlock()
	if e.fence.read != nil {
		t.Errorf("it stays %+v", e.fence.read)
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

	if got, err := w.plugin.engine.fence.get(t.Context(), ""); err != nil || got.Epoch != 7 || counted() != 1 {
		t.Errorf("%+v, error %v, counted %d times", got, err, counted())
	}
}

func TestAStandbyKnowsThatItLeadsWhenItHoldsTheLeaseOrRunsACycle(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-scheduler"}}
	for name, test := range map[string]struct {
		holder string
		lease  string
		ran    bool
		want   bool
	}{
		"another holds it":     {holder: "another_5d4", lease: "kube-scheduler", want: false},
		"another, and a cycle": {holder: "another_5d4", lease: "kube-scheduler", ran: true, want: true},
		"this one holds it":    {holder: host + "_5d4", lease: "kube-scheduler", want: true},
		"no election":          {holder: "another_5d4", lease: "", want: true},
		"no such lease":        {holder: "another_5d4", lease: "other", want: true},
	} {
		lease.Spec.HolderIdentity = &test.holder
		args := defaultArgs()
		args.Lease = LeaseReference{Namespace: "kube-system", Name: test.lease}
		l := &leadership{fence: &fence{args: &args, client: clientsetfake.NewClientset(lease)}, clock: testingclock.NewFakeClock(start)}
		l.leads.Store(test.ran)

		if got := l.now(t.Context()); got != test.want || l.now(t.Context()) != test.want {
			t.Errorf("%s: leads %t, want %t", name, got, test.want)
		}
	}
}
