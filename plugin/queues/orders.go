package queues

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/perscheduler"
)

// StoredOrderLives is what the queues ask a plugin that makes room for pods: whether a pod's last order in the stream, which this process may
// not have read yet, makes room or keeps it. In doubt it does.
type StoredOrderLives = func(ctx context.Context, uid types.UID) bool

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

// Ask has the queues ask a plugin that makes room for pods.
func (g *Gate) Ask(lives StoredOrderLives) { g.orderLives.Store(&lives) }

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
