package streams

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"makeway.dev/makeway/plugin/wire"
)

// Fence has the epoch that this process's orders carry, so that an older leader's are refused. It is
// read once: where there is no Lease, at the start; else when the first order is committed, as long as the Lease names this
// process, and again where an evictor finds that the Lease counts less, as it was deleted and made anew. A scheduler that loses its Lease ends, so that the number stays right as long as the process lives; one that has
// lost it without knowing, before its first order, must not take its successor's number.
type Fence struct {
	Lease   types.NamespacedName // no name: there is no election
	Profile string
	Client  clientset.Interface
	Records Records

	mu   sync.Mutex
	read *wire.Fence
}

// Forget has the epoch read again, where it is the one that an order was refused for. A number from NATS stays: it is
// raised with each read, and no order is refused for it.
func (f *Fence) Forget(epoch int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read != nil && f.read.Kind == "lease" && f.read.Epoch == epoch {
		f.read = nil
	}
}

// Get reads the epoch, or returns the one read before. An error is not remembered.
func (f *Fence) Get(ctx context.Context, bucket string) (wire.Fence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read != nil {
		return *f.read, nil
	}
	lease := f.Lease
	if lease.Name == "" {
		epoch, err := f.Records.NextEpoch(ctx, bucket, f.Profile)
		if err != nil {
			return wire.Fence{}, err
		}
		f.read = &wire.Fence{Kind: "kv", Name: f.Profile, Epoch: epoch}
		return *f.read, nil
	}
	object, err := f.held(ctx)
	if err != nil {
		return wire.Fence{}, err
	}
	f.read = &wire.Fence{Kind: "lease", Name: lease.Name, Namespace: lease.Namespace}
	if object.Spec.LeaseTransitions != nil {
		f.read.Epoch = int64(*object.Spec.LeaseTransitions)
	}
	return *f.read, nil
}

// held is the Lease, where this process holds it.
func (f *Fence) held(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := f.Lease
	object, err := f.Client.CoordinationV1().Leases(lease.Namespace).Get(ctx, lease.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("lease %s/%s (set lease.name of MakeWayArgs to the scheduler's lease, or to \"\" where there is no leader election): %w", lease.Namespace, lease.Name, err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	// kube-scheduler names itself by its host and something random, which it does not tell its plugins.
	if holder := ptr.Deref(object.Spec.HolderIdentity, ""); !strings.HasPrefix(holder, host+"_") {
		return nil, fmt.Errorf("lease %s/%s is held by %q, not by this scheduler on %s (set lease.name of MakeWayArgs to the scheduler's lease, or to \"\" where there is no leader election)", lease.Namespace, lease.Name, holder, host)
	}
	return object, nil
}

// How often a standby looks whether it leads by now, and how long that may take.
const (
	leadsAgain = time.Second
	leadsWait  = 2 * time.Second
)

// Leadership knows whether this process schedules pods, or waits for a Lease to do so. A standby has a scheduling
// queue as well, whose pods come to no cycle. It never ends: a scheduler that loses its Lease exits.
type Leadership struct {
	Fence *Fence
	Clock clock.PassiveClock
	Leads atomic.Bool // known; a scheduling cycle sets it too

	mu      sync.Mutex
	asked   time.Time
	unknown bool // the Lease does not exist or may not be read
}

// Now reports whether this process leads; where that cannot be known it is taken to. It reads the Lease at most once
// a second.
func (l *Leadership) Now(ctx context.Context) bool {
	if l.Leads.Load() || l.Fence.Lease.Name == "" {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.Clock.Now()
	if at.Sub(l.asked) < leadsAgain {
		return l.unknown
	}
	l.asked = at
	ctx, cancel := context.WithTimeout(ctx, leadsWait)
	defer cancel()
	_, err := l.Fence.held(ctx)
	l.unknown = apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
	if err == nil {
		l.Leads.Store(true)
	}
	return err == nil || l.unknown
}
