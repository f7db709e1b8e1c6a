package orders

import (
	"time"

	"makeway.dev/makeway/plugin/wire"
)

// Times of an order's life, as the plugin sees it.
const (
	// storedWithin is how long after it was asked for an order may be stored: the nomination has to show before. For each further member
	// of a group, of which a plan has 5,000 at the most, it may be memberStored later: the scheduler writes one nomination after the other.
	storedWithin = 5 * time.Second
	memberStored = 20 * time.Millisecond
	// AnsweredWithin is how much later the answer is still waited for.
	AnsweredWithin = 2 * time.Second
	// shownWithin is how long after an order was made its nomination may not show yet though its victims leave. Where it does not by then,
	// it was taken back before the informer could show it.
	shownWithin = time.Minute
	// GateSlack is how long after an order's notAfter the gate opens by itself: the evictor begins
	// nothing after notAfter, so nothing is in flight any more.
	GateSlack = 2 * time.Second
	// clocksDiffer is how far the planner's clock may be from that of the evictors, which both hold theirs to the API server's.
	clocksDiffer = 10 * time.Second
	// Settle is how long after the pod informer's delete event a victim counts as gone from the scheduler's cache: its own
	// handler of that event runs beside the plugin's.
	Settle = 5 * time.Millisecond
	// leavingHold is how long a pod comes to no cycle once its order has succeeded, and after it failed a cycle while its victims were
	// leaving, unless the last of them leaves. Where cycles follow one another it doubles, up to longestLeavingHold.
	leavingHold        = time.Second
	longestLeavingHold = 4 * time.Second
	// earlyRetries bounds how often a cycle is repeated that met a victim of its order; and how often the delay doubles.
	earlyRetries = 5
	// earlyRetryDelay is the first delay of such a repetition; it doubles.
	earlyRetryDelay = 50 * time.Millisecond
	// releasedLasts is how long a preemptor that was activated keeps the place in its queue without coming to a cycle:
	// something else may hold it.
	releasedLasts = 5 * time.Minute
	// outcomeMemory bounds how many outcomes are remembered for orders that have not been read yet.
	outcomeMemory = 4096

	// RevertWait is how long a failed order waits for the informer to show that the evictor has taken
	// the nomination back, so that the next cycle does not start with it.
	RevertWait = 500 * time.Millisecond
	// TooLargeWait is how long a preemptor waits whose commit no message carries: the same plan would be made again at once.
	TooLargeWait = 10 * time.Second
	// AnswerFresh is how old an outcome may be to tell that evictors are at work.
	AnswerFresh = time.Minute
)

// StoredWithin is how long after it was asked for the order of so many pods may be stored.
func StoredWithin(pods int) time.Duration {
	return storedWithin + time.Duration(pods-1)*memberStored
}

// OpensAt is when the gate of an order that has just been stored opens by itself: when no evictor begins anything for it any more. That is its
// notAfter, as far as the planner's clock and this one can agree on it: it was made a moment ago.
func OpensAt(order *wire.EvictionOrder, now time.Time) time.Time {
	ends := now.Add(order.NotAfter.Sub(order.CreatedAt.Time))
	if order.NotAfter.After(ends) {
		ends = Earlier(order.NotAfter.Time, ends.Add(clocksDiffer))
	}
	return ends.Add(GateSlack)
}
