package orders

import (
	"slices"
	"strings"
	"time"
)

// Unanswered is an order in the stream whose outcome has not been read.
type Unanswered struct {
	OrderID   string
	createdAt time.Time
}

// Unanswered returns committed orders that were made before a time and whose end is not due yet, oldest first.
func (f *InFlight) Unanswered(before, now time.Time) []Unanswered {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var orders []Unanswered
	for _, e := range f.byPod {
		// The last of gateSlack is left out: an evictor begins nothing after notAfter.
		if !e.Phase.stored() || !e.CreatedAt.Before(before) || !now.Before(e.OpensAt.Add(-GateSlack)) {
			continue
		}
		orders = append(orders, Unanswered{OrderID: e.OrderID, createdAt: e.CreatedAt})
	}
	slices.SortFunc(orders, func(a, b Unanswered) int {
		if order := a.createdAt.Compare(b.createdAt); order != 0 {
			return order
		}
		return strings.Compare(a.OrderID, b.OrderID)
	})
	return orders
}
