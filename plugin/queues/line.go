package queues

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"

	"makeway.dev/makeway/plugin/internal/perscheduler"
	"makeway.dev/makeway/plugin/wire"
)

// Orders is what the queues ask of a plugin that makes room for pods.
type Orders interface {
	// InFlight reports whether a pod has an order in flight.
	InFlight(uid types.UID) bool
	// StoredOrderLives reports whether a pod's last order in the stream, which this process may not have read yet, makes
	// room or keeps it. In doubt it does.
	StoredOrderLives(ctx context.Context, uid types.UID) bool
}

// Line is what a plugin that makes room for pods and the queues of one scheduler say to one another. Without queues nothing is said.
type Line struct {
	gate   atomic.Pointer[Gate] // nil: no profile has the plugin MakeWayQueues
	orders atomic.Pointer[Orders]

	mu       sync.Mutex
	profiles []string // whose pods queues may hold
}

var lines perscheduler.Registry[*Line]

// LineOf is the line of a scheduler until the context ends.
func LineOf(ctx context.Context, factory informers.SharedInformerFactory) *Line {
	line, _, _ := lines.Of(ctx, factory, func() (*Line, error) { return &Line{}, nil })
	return line
}

// Ask has the queues ask a plugin about orders.
func (l *Line) Ask(orders Orders) { l.orders.Store(&orders) }

// tell has the gate know, where there is one.
func (l *Line) tell(what func(*Gate)) {
	if gate := l.gate.Load(); gate != nil {
		what(gate)
	}
}

// ReserveQuota lets a preemptor with an order count in its queue.
func (l *Line) ReserveQuota(ref wire.PodRef) { l.tell(func(gate *Gate) { gate.ReserveQuota(ref) }) }

// ReleaseQuota ends that.
func (l *Line) ReleaseQuota(uid types.UID) { l.tell(func(gate *Gate) { gate.ReleaseQuota(uid) }) }

// Tried notes that a pod's cycle has ended without an order.
func (l *Line) Tried(uid types.UID) { l.tell(func(gate *Gate) { gate.Tried(uid) }) }

// AllowCycle lets a pod whose queue is full come to a cycle once more: what kept its preemption may have changed.
func (l *Line) AllowCycle(uid types.UID) { l.tell(func(gate *Gate) { gate.AllowCycle(uid) }) }

// QueueOf is the path of the queue that a pod counts in; ok is false where no limits are effective.
func (l *Line) QueueOf(pod *v1.Pod) (path string, ok bool) {
	if gate := l.gate.Load(); gate != nil {
		return gate.QueueOf(pod)
	}
	return "", false
}

// HasMax reports whether a max bounds the queue that a pod counts in, or one above it.
func (l *Line) HasMax(pod *v1.Pod) bool {
	gate := l.gate.Load()
	return gate != nil && gate.HasMax(pod)
}

// Profiles are the names of the profiles whose pods queues may hold, sorted.
func (l *Line) Profiles() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.profiles)
}

// addProfile takes in a profile whose pods queues may hold.
func (l *Line) addProfile(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.profiles = append(l.profiles, name)
	slices.Sort(l.profiles)
}

// inFlight and storedOrderLives are as Orders has them; without a plugin that makes room there are no orders.
func (l *Line) inFlight(uid types.UID) bool {
	orders := l.orders.Load()
	return orders != nil && (*orders).InFlight(uid)
}

func (l *Line) storedOrderLives(ctx context.Context, uid types.UID) bool {
	orders := l.orders.Load()
	return orders != nil && (*orders).StoredOrderLives(ctx, uid)
}
