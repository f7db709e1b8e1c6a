package streams

import (
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
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
	f := &Fence{Lease: types.NamespacedName{Namespace: "kube-system", Name: "kube-scheduler"}, Client: client}

	for _, holder := range []*string{nil, ptr.To(""), ptr.To(host + "-2_5d4"), ptr.To("another_5d4")} {
		holds(holder, 4)
		if got, err := f.Get(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "held by") {
			t.Errorf("held by %q: %+v, error %v", ptr.Deref(holder, ""), got, err)
		}
	}
	holds(ptr.To(host+"_5d4"), 5)
	if got, err := f.Get(t.Context(), ""); err != nil || got.Epoch != 5 {
		t.Errorf("%+v, error %v", got, err)
	}
	holds(ptr.To("another_5d4"), 6)
	if got, err := f.Get(t.Context(), ""); err != nil || got.Epoch != 5 {
		t.Errorf("later: %+v, error %v", got, err)
	}
}

func TestTheEpochOfALeaseThatWasMadeAnewIsReadOnceAnOrderWasRefusedForIt(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	holds := func(holder string, transitions int32) *clientsetfake.Clientset {
		return clientsetfake.NewClientset(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-scheduler"},
			Spec:       coordinationv1.LeaseSpec{LeaseTransitions: &transitions, HolderIdentity: &holder},
		})
	}
	f := &Fence{Lease: types.NamespacedName{Namespace: "kube-system", Name: "kube-scheduler"}, Client: holds(host+"_5d4", 5)}
	if got, err := f.Get(t.Context(), ""); err != nil || got.Epoch != 5 {
		t.Fatalf("%+v, error %v", got, err)
	}
	f.Client = holds(host+"_5d4", 0)

	f.Forget(4) // of an order of another epoch
	if got, err := f.Get(t.Context(), ""); err != nil || got.Epoch != 5 {
		t.Errorf("%+v, error %v", got, err)
	}
	f.Forget(5)
	if got, err := f.Get(t.Context(), ""); err != nil || got.Epoch != 0 {
		t.Errorf("made anew: %+v, error %v", got, err)
	}

	f.Client = holds("another_5d4", 1)
	f.Forget(0)
	if got, err := f.Get(t.Context(), ""); err == nil {
		t.Errorf("a scheduler that does not lead has epoch %d", got.Epoch)
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
		l := &Leadership{Fence: &Fence{Lease: types.NamespacedName{Namespace: "kube-system", Name: test.lease}, Client: clientsetfake.NewClientset(lease)}, Clock: testingclock.NewFakeClock(time.Unix(1000, 0))}
		l.Leads.Store(test.ran)

		if got := l.Now(t.Context()); got != test.want || l.Now(t.Context()) != test.want {
			t.Errorf("%s: leads %t, want %t", name, got, test.want)
		}
	}
}
