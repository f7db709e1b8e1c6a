package orders

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

// Asking notes that the planner is asked to store an order. From then on it may be in the stream, whatever becomes of its pod. The error
// is ErrPodGone where the order has been forgotten, and errGivenUp where it has been given up: it must not be asked for any more.
func (f *InFlight) Asking(orderID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.byOrder[orderID]
	switch {
	case e == nil:
		return ErrPodGone
	case !f.happens(e, onStoring):
		return errGivenUp
	}
	return nil
}

// Stored notes the order that the stream has: some of its victims may be another order's, or leave by themselves. It is a no-op where the
// outcome came first.
func (f *InFlight) Stored(order *wire.EvictionOrder, opensAt time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.byOrder[order.OrderID]
	if !f.happens(e, onStored) {
		return
	}
	e.OpensAt, e.Awaited = opensAt, map[types.UID]string{}
	for _, a := range order.Awaited {
		e.Awaited[types.UID(a.UID)] = a.OrderID
	}
	e.Victims = slices.DeleteFunc(e.Victims, func(uid types.UID) bool {
		_, awaited := e.Awaited[uid]
		return awaited
	})
}
