package memory

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/orders"
)

// How the breaker round the evictors behaves. An order that is not carried out costs its preemptor notAfter, so two
// in a row are enough; an evictor that is back is noticed by its first outcome, or by the next probe.
const (
	FutileOrders  = 2
	futileFirst   = 5 * time.Second
	futileLongest = time.Minute
)

// Futility is why an order came to nothing through no fault of its pods: the label of the metric.
type Futility string

const (
	NotStored  Futility = "not_stored" // the stream could not be read or written
	NotStarted Futility = "no_outcome" // stored, and no evictor ended it by notAfter
	// Refused, since the evictors' breaker is open: for all, or for the preemptor's namespace.
	RefusedForAll       Futility = "breaker_open"
	RefusedForNamespace Futility = "breaker_open_namespace"
)

// String says it for a pod's condition.
func (f Futility) String() string {
	switch f {
	case NotStored:
		return "eviction orders cannot be stored"
	case RefusedForAll:
		return "the evictors' breaker is open"
	case RefusedForNamespace:
		return "the evictors' breaker is open for the pod's namespace"
	}
	return "no evictor answers"
}

// OrderBreaker keeps preemptors from being nominated for orders that are not carried out: a nomination ends the chain of
// PostFilter plugins, and nothing after it would come to pass. Once orders of this process, of whichever pods, have
// come to nothing in a row, it is open: MakeWay answers so that a plugin listed after it may act, unless the evictors'
// breaker is why. After a while one
// order probes, and the while doubles where that comes to nothing too. Safe for concurrent use.
type OrderBreaker struct {
	clock clock.PassiveClock
	lasts time.Duration // what an order lasts at most, from nomination to the end of its time

	mu      sync.Mutex
	failed  map[Futility]int // in a row
	why     Futility         // it is open for; empty: it is closed
	openFor time.Duration
	until   time.Time // when the next probe is due
	probe   string    // the order that probes; empty: none
	last    time.Time // when an order came to nothing last
}

func newOrderBreaker(clock clock.PassiveClock, notAfter time.Duration) *OrderBreaker {
	return &OrderBreaker{clock: clock, lasts: orders.StoredWithin(1) + notAfter + 2*orders.GateSlack, failed: map[Futility]int{}, openFor: futileFirst}
}

// isOpen reports why no order may be begun now, and when one may; empty where one may.
func (b *OrderBreaker) isOpen() (why Futility, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why == "" || !b.clock.Now().Before(b.until) {
		return "", time.Time{}
	}
	if b.probe != "" {
		return b.why, b.clock.Now().Add(b.openFor)
	}
	return b.why, b.until
}

// begin notes that an order is begun; while the breaker is open it is the probe. One whose end is not told is
// given up after its time.
func (b *OrderBreaker) begin(orderID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why != "" {
		b.probe, b.until = orderID, b.clock.Now().Add(b.lasts)
	}
}

// Futile notes that an order came to nothing.
func (b *OrderBreaker) Futile(orderID string, why Futility) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed[why]++
	b.last = b.clock.Now()
	switch {
	case b.why == "" && b.failed[why] < FutileOrders:
		return
	case b.why == "":
	case b.probe == orderID:
		b.openFor = min(2*b.openFor, futileLongest)
	default:
		return // an order from before it opened
	}
	b.why, b.probe, b.until = why, "", b.clock.Now().Add(b.openFor)
}

// refusedLast is when an order came to nothing last.
func (b *OrderBreaker) refusedLast() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// Stored notes that an order is in the stream. It reports whether that closes the breaker.
func (b *OrderBreaker) Stored() (closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed[NotStored] = 0
	return b.why == NotStored && b.close()
}

// Answered notes that an evictor has written an outcome, of whichever order. It reports whether that closes the breaker.
func (b *OrderBreaker) Answered() (closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed[NotStarted] = 0
	return b.why == NotStarted && b.close()
}

// CarriedOut notes that an evictor has carried an order out, or would have, were it of another namespace. It reports
// whether that closes the breaker.
func (b *OrderBreaker) CarriedOut() (closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed[RefusedForAll] = 0
	return b.why == RefusedForAll && b.close()
}

// Undecided notes an order whose end says nothing of the evictors: where it was the probe, another one is due.
func (b *OrderBreaker) Undecided(orderID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probe == orderID {
		b.probe, b.until = "", b.clock.Now()
	}
}

func (b *OrderBreaker) close() bool {
	b.why, b.probe, b.openFor = "", "", futileFirst
	return true
}

// State is for the metric and the status of the component; why is empty where it is closed.
func (b *OrderBreaker) State() (state telemetry.BreakerState, why Futility) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.why == "":
		return telemetry.Closed, ""
	case b.probe != "" || !b.clock.Now().Before(b.until):
		return telemetry.HalfOpen, b.why
	}
	return telemetry.Open, b.why
}
