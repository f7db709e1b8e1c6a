package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/wire"
)

// recorded is what the limits of queues were last set to.
type recorded struct {
	set  string
	wait chan struct{} // nil: nothing is waited for
	err  error
}

func (r *recorded) SetLimits([]wire.QueueLimit) error { r.set = "limits"; return r.err }
func (r *recorded) NoQueues() {
	if r.wait != nil {
		<-r.wait
	}
	r.set = "none"
}
func (r *recorded) Assume(exist bool, _ string) (decided, shut bool) {
	r.set = map[bool]string{true: "assumed", false: "assumed none"}[exist]
	return true, exist
}

// believing are signatures that all hold, and what is set aside.
type believing struct{ setAside []error }

func (b *believing) Verify(*wire.Envelope, wire.SigningKind, string) error { return nil }
func (b *believing) SetAside(_ natsbus.Record, err error)                  { b.setAside = append(b.setAside, err) }
func (b *believing) Await(context.Context, clock.PassiveClock, func(context.Context, natsbus.Record)) {
}
func (b *believing) Keep(context.Context, func(context.Context, natsbus.Record)) {}

// controlling is a Control of cluster "cluster" over a fake API server, and what it ignores.
func controlling(limits Limits, queues types.NamespacedName, objects ...runtime.Object) (*Control, *clientsetfake.Clientset, *[]error) {
	client, signatures := clientsetfake.NewClientset(objects...), &believing{}
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	_ = namespaces.Add(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "cluster"}})
	c := New(Options{
		Client: client, Clock: clock.RealClock{}, QueuesAt: queues,
		Stream: Stream{Signatures: signatures}, Namespaces: corelisters.NewNamespaceLister(namespaces), Changed: func(bool) {},
	})
	c.UseLimits(limits)
	return c, client, &signatures.setAside
}

// record is a control state in its stream.
func record(t *testing.T, state *wire.ControlState) natsbus.Record {
	t.Helper()
	state.Mode, state.ClusterUID = wire.ModeEnforce, "cluster"
	data, err := wrap(wire.TypeControl, fmt.Sprintf("control-%d", state.Revision), "makeway/planner/test", "", wire.At(time.Now()), state)
	if err != nil {
		t.Fatal(err)
	}
	return natsbus.Record{Stream: time.Unix(1, 0), Data: data}
}

var queuesAt = types.NamespacedName{Namespace: "makeway-system", Name: "makeway-queues"}

func TestWithoutAControlStateTheConfigMapDecidesAboutTheGate(t *testing.T) {
	exists := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "makeway-system", Name: "makeway-queues"}}
	resource := schema.GroupResource{Resource: "configmaps"}
	for name, test := range map[string]struct {
		at      types.NamespacedName
		objects []runtime.Object
		err     error
		want    string
		again   bool
	}{
		"it does not exist":     {queuesAt, nil, nil, "assumed none", false},
		"it exists":             {queuesAt, []runtime.Object{exists}, nil, "assumed", true},
		"it exists, of no name": {types.NamespacedName{Namespace: "makeway-system"}, []runtime.Object{exists}, nil, "assumed none", false},
		"it is elsewhere":       {types.NamespacedName{Namespace: "x", Name: "makeway-queues"}, []runtime.Object{exists}, nil, "assumed none", false},
		"it may not be read":    {queuesAt, nil, apierrors.NewForbidden(resource, "makeway-queues", nil), "assumed none", false},
		"no answer":             {queuesAt, nil, apierrors.NewTimeoutError("late", 1), "assumed", true},
	} {
		_, ctx := ktesting.NewTestContext(t)
		limits := &recorded{}
		c, client, _ := controlling(limits, test.at, test.objects...)
		if test.err != nil {
			client.PrependReactor("list", "configmaps", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, test.err })
		}

		if err := c.Watch(ctx); err != nil {
			t.Fatal(err)
		}
		for c.queues.at.Name != "" && c.queues.trouble.Load() == nil && !c.queues.synced() {
			time.Sleep(time.Millisecond)
		}

		if again := c.FindQueues(ctx); again != test.again || limits.set != test.want {
			t.Errorf("%s: again %t, %s", name, again, limits.set)
		}
	}
}

func TestQueuesThatAreNoTreeLeaveTheLastControlStateInEffect(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	c, _, ignored := controlling(&recorded{err: errors.New("no root")}, queuesAt)
	c.Take(ctx, record(t, &wire.ControlState{Revision: 5}))

	c.Take(ctx, record(t, &wire.ControlState{Revision: 6, QueuesRevision: "q", Queues: []wire.QueueLimit{{Path: "root.a"}}}))

	var misplaced *wire.MisplacedError
	if c.State().Revision != 5 || len(*ignored) != 1 || !errors.As((*ignored)[0], &misplaced) || misplaced.Reason != wire.ReasonUnusableQueues {
		t.Errorf("revision %d, ignored %v", c.State().Revision, *ignored)
	}
}

func TestOfTwoControlStatesThatComeAtOnceTheNewerStaysInEffect(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	limits := &recorded{wait: make(chan struct{})}
	c, _, _ := controlling(limits, queuesAt)
	// both get past the comparison with the current one, if they can
	var took sync.WaitGroup
	for _, revision := range []int64{2, 1} {
		taken := record(t, &wire.ControlState{Revision: revision})
		took.Go(func() { c.Take(ctx, taken) })
		time.Sleep(20 * time.Millisecond)
	}
	close(limits.wait)
	took.Wait()

	if got := c.State().Revision; got != 2 {
		t.Errorf("revision %d is in effect", got)
	}
}

// wrap encodes a message in an envelope, as its writer does.
func wrap(eventType, id, source, subject string, at wire.Time, message any) ([]byte, error) {
	data, err := wire.Encode(message)
	if err != nil {
		return nil, err
	}
	return wire.Encode(&wire.Envelope{
		SpecVersion: wire.SpecVersion, ID: id, Source: source, Type: eventType, Time: at, DataContentType: "application/json", Subject: subject, Data: data,
	})
}
