package orders

import (
	"slices"
	"strings"
	"time"

	"makeway.dev/makeway/plugin/tracing"
)

// Unanswered is an order in the stream whose outcome has not been read.
type Unanswered struct {
	OrderID      string
	PreemptorUID string
	Group        bool // the preemptor is a PodGroup
	createdAt    time.Time
	Message      []byte // as it was stored
	Span         tracing.Span
}

// Unanswered returns committed orders that were made before a time and whose end is not due yet, oldest first.
func (f *InFlight) Unanswered(before, now time.Time) []Unanswered {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var orders []Unanswered
	for uid, e := range f.byPod {
		// The last of gateSlack is left out: an evictor begins nothing after notAfter.
		if !e.Phase.stored() || !e.CreatedAt.Before(before) || !now.Before(e.OpensAt.Add(-GateSlack)) {
			continue
		}
		orders = append(orders, Unanswered{OrderID: e.OrderID, PreemptorUID: string(uid), Group: e.isGroup(), createdAt: e.CreatedAt, Message: e.Message, Span: e.Span})
	}
	slices.SortFunc(orders, func(a, b Unanswered) int {
		if order := a.createdAt.Compare(b.createdAt); order != 0 {
			return order
		}
		return strings.Compare(a.OrderID, b.OrderID)
	})
	return orders
}

// Publishing notes the message of an order that is about to be published, to be published again where
// the stream loses it. From then on it may be in the stream, whatever becomes of its pod. It returns
// errPodGone where the order has been forgotten, and errAwaitedOrderFailed where it has been given up: it must not be published
// any more.
func (f *InFlight) Publishing(orderID string, message []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.get(orderID)
	if e == nil {
		return ErrPodGone
	}
	if !f.happens(e, onStoring) {
		return errAwaitedOrderFailed
	}
	e.Message = message
	return nil
}
