package queues

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/perscheduler"
)

// Orders is what the queues ask of a plugin that makes room for pods.
type Orders interface {
	// InFlight reports whether a pod has an order in flight.
	InFlight(uid types.UID) bool
	// StoredOrderLives reports whether a pod's last order in the stream, which this process may not have read yet, makes
	// room or keeps it. In doubt it does.
	StoredOrderLives(ctx context.Context, uid types.UID) bool
}

// noOrders are those where no plugin makes room.
type noOrders struct{}

func (noOrders) InFlight(types.UID) bool                          { return false }
func (noOrders) StoredOrderLives(context.Context, types.UID) bool { return false }

var gates perscheduler.Registry[*Gate]

// GateOf is the gate of a scheduler until the context ends, of which a plugin that makes room for pods asks, too. It holds no pod where
// no profile has the plugin MakeWayQueues.
func GateOf(ctx context.Context, factory informers.SharedInformerFactory) *Gate {
	gate, _, _ := gates.Of(ctx, factory, func() (*Gate, error) {
		gate := NewGate(clock.RealClock{}, factory.Core().V1().Pods().Lister(), nil)
		gate.none.Store(true)
		return gate, nil
	})
	return gate
}

// Ask has the queues ask a plugin about orders.
func (g *Gate) Ask(orders Orders) { g.orders.Store(&orders) }

// asked is the plugin that is asked about orders; there is false where none makes room for pods.
func (g *Gate) asked() (orders Orders, there bool) {
	if orders := g.orders.Load(); orders != nil {
		return *orders, true
	}
	return noOrders{}, false
}

// Profiles are the names of the profiles whose pods queues may hold, sorted.
func (g *Gate) Profiles() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(slices.Values(g.profiles))
}

// addProfile takes in a profile whose pods queues may hold.
func (g *Gate) addProfile(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.profiles = append(g.profiles, name)
}
