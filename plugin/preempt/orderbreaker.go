package preempt

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/orders"
)

// How the breaker round the evictors behaves. An order that is not carried out costs its preemptor notAfter, so two
// in a row are enough; an evictor that is back is noticed by its first outcome, or by the next probe.
const (
	futileOrders  = 2
	futileFirst   = 5 * time.Second
	futileLongest = time.Minute
)

// futility is why an order came to nothing through no fault of its pods: the label of the metric.
type futility string

const (
	notStored  futility = "not_stored" // the stream could not be read or written
	notStarted futility = "no_outcome" // stored, and no evictor ended it by notAfter
	// Refused, since the evictors' breaker is open: for all, or for the preemptor's namespace.
	refusedForAll       futility = "breaker_open"
	refusedForNamespace futility = "breaker_open_namespace"
)

// String says it for a pod's condition.
func (f futility) String() string {
	switch f {
	case notStored:
		return "eviction orders cannot be stored"
	case refusedForAll:
		return "the evictors' breaker is open"
	case refusedForNamespace:
		return "the evictors' breaker is open for the pod's namespace"
	}
	return "no evictor answers"
}

// orderBreaker keeps preemptors from being nominated for orders that are not carried out: a nomination ends the chain of
// PostFilter plugins, and nothing after it would come to pass. Once orders of this process, of whichever pods, have
// come to nothing in a row, it is open: MakeWay answers so that a plugin listed after it may act, unless the evictors'
// breaker is why. After a while one
// order probes, and the while doubles where that comes to nothing too. Safe for concurrent use.
type orderBreaker struct {
	clock clock.PassiveClock
	lasts time.Duration // what an order lasts at most, from nomination to the end of its time

	mu      sync.Mutex
	failed  map[futility]int // in a row
	why     futility         // it is open for; empty: it is closed
	openFor time.Duration
	until   time.Time // when the next probe may go
	probe   string    // the order that probes; empty: none
	last    time.Time // when an order came to nothing last
}

func newOrderBreaker(clock clock.PassiveClock, notAfter time.Duration) *orderBreaker {
	return &orderBreaker{clock: clock, lasts: orders.NominationWait + notAfter + 2*orders.GateSlack, failed: map[futility]int{}, openFor: futileFirst}
}

// isOpen reports why no order may be begun now, and when one may; empty where one may.
func (b *orderBreaker) isOpen() (why futility, until time.Time) {
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
func (b *orderBreaker) begin(orderID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why != "" {
		b.probe, b.until = orderID, b.clock.Now().Add(b.lasts)
	}
}

// futile notes that an order came to nothing.
func (b *orderBreaker) futile(orderID string, why futility) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed[why]++
	b.last = b.clock.Now()
	switch {
	case b.why == "" && b.failed[why] < futileOrders:
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
func (b *orderBreaker) refusedLast() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// stored notes that an order is in the stream. It reports whether that closes the breaker.
func (b *orderBreaker) stored() (closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed[notStored] = 0
	return b.why == notStored && b.close()
}

// answered notes that an evictor has written an outcome, of whichever order. It reports whether that closes the breaker.
func (b *orderBreaker) answered() (closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed[notStarted] = 0
	return b.why == notStarted && b.close()
}

// carriedOut notes that an evictor has carried an order out, or would have, were it of another namespace. It reports
// whether that closes the breaker.
func (b *orderBreaker) carriedOut() (closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed[refusedForAll] = 0
	return b.why == refusedForAll && b.close()
}

// undecided notes an order whose end says nothing of the evictors: where it was the probe, another one may go.
func (b *orderBreaker) undecided(orderID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probe == orderID {
		b.probe, b.until = "", b.clock.Now()
	}
}

func (b *orderBreaker) close() bool {
	b.why, b.probe, b.openFor = "", "", futileFirst
	return true
}

// state is for the metric and the status of the component; why is empty where it is closed.
func (b *orderBreaker) state() (state ask.State, why futility) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.why == "":
		return ask.Closed, ""
	case b.probe != "" || !b.clock.Now().Before(b.until):
		return ask.HalfOpen, b.why
	}
	return ask.Open, b.why
}

// reverted remembers preemptors whose nomination was deleted in memory and may still be in the API, with its node: after an
// order that was never stored, or that no evictor has taken back. The next cycle of the pod tells the scheduler to
// clear it there, by its own way of writing. Bounded by the pods that are pending. Safe for concurrent use.
type reverted struct {
	mu    sync.Mutex
	nodes map[types.UID]string
}

func newReverted() *reverted { return &reverted{nodes: map[types.UID]string{}} }

func (r *reverted) note(pod types.UID, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes[pod] = node
}

// take reports whether the nomination that the API shows was reverted, and forgets it then: said once, it is the
// scheduler's.
func (r *reverted) take(pod types.UID, nominated string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if node, ok := r.nodes[pod]; !ok || node != nominated {
		return false
	}
	delete(r.nodes, pod)
	return true
}

func (r *reverted) forget(pod types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, pod)
}
