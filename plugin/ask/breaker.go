package ask

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/telemetry"
)

// How the breaker behaves. Three time-outs of the default 100 ms are what a dead planner costs at most;
// a probe every 30 s at the latest is what one that comes back waits at most. Beyond three time-outs,
// failures cost the scheduling cycles at most one part in breakerShare of their time, however many
// successes come between them, as far as a probe every 30 s lets them.
const (
	BreakerThreshold = 3
	breakerFirstOpen = time.Second
	breakerLongest   = 30 * time.Second
	breakerShare     = 20
	// MaxPlanTimeout is how long one plan request may take at most.
	MaxPlanTimeout = 5 * time.Second
)

// Breaker keeps a dead planner from costing every scheduling cycle a time-out. After three failures in
// a row nothing is asked for a while; then one request probes, and the while doubles where that fails.
// A planner that answers now and then is not asked either while its failures have cost more than their
// share. Safe for concurrent use.
type Breaker struct {
	clock     clock.PassiveClock
	allowance time.Duration // what failures may cost at once

	mu       sync.Mutex
	state    telemetry.BreakerState
	failures int           // in a row, while closed
	openFor  time.Duration // the length of the current or next while
	until    time.Time     // when the next probe is due
	cheap    bool          // the last failure cost nothing: no planner has subscribed to requests
	lost     time.Duration // what failures have cost, less one part in breakerShare of the time since; bounded for breakerLongest
	lostAt   time.Time     // when that was
}

func NewBreaker(clock clock.PassiveClock, planTimeout time.Duration) *Breaker {
	return &Breaker{clock: clock, allowance: BreakerThreshold * planTimeout, openFor: breakerFirstOpen}
}

// allow reports whether a request may be sent now. Each allowed request must be followed by succeeded or failed.
func (b *Breaker) allow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == telemetry.Closed || b.cheap {
		return true
	}
	// Where a probe is on its way, its caller is lost once that has lasted longer than any request.
	if b.clock.Now().Before(b.until) {
		return false
	}
	b.state = telemetry.HalfOpen
	b.until = b.clock.Now().Add(MaxPlanTimeout)
	return true
}

// succeeded closes the breaker, and reports whether it was open.
func (b *Breaker) succeeded() (wasOpen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wasOpen = b.state != telemetry.Closed
	b.state, b.failures, b.openFor, b.cheap = telemetry.Closed, 0, breakerFirstOpen, false
	return wasOpen
}

// Failed counts a failure and what it has cost, and opens the breaker where it is the third in a row, or
// a probe's, or where failures have cost too much lately.
func (b *Breaker) Failed(took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	b.lost = min(max(b.lost-now.Sub(b.lostAt)/breakerShare, 0)+took, b.allowance+breakerLongest/breakerShare)
	b.lostAt, b.cheap = now, false
	wait := max(b.lost-b.allowance, 0) * breakerShare
	b.failures++
	switch {
	case b.state != telemetry.Closed:
		b.openFor = min(2*b.openFor, breakerLongest)
		wait = max(wait, b.openFor)
	case b.failures >= BreakerThreshold:
		wait = max(wait, b.openFor)
	case wait == 0:
		return
	}
	b.state = telemetry.Open
	b.until = now.Add(wait)
}

// unheard counts a request that NATS returned at once, since no planner listens. That costs a cycle nothing, so that
// requests go on, and the first planner that is back is heard by the first that comes; but pods are tried again for it
// one by one, as if the breaker were open, since each try costs the scheduler its filters.
func (b *Breaker) unheard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	if b.state == telemetry.Closed && b.failures < BreakerThreshold {
		return
	}
	b.state, b.cheap, b.openFor, b.until = telemetry.Open, true, breakerFirstOpen, b.clock.Now().Add(breakerFirstOpen)
}

// Attempts is how many of so many attempts are worth making now: all that ask, one where a request would be a
// probe, none before that.
func (b *Breaker) Attempts(most int) int {
	state, until := b.Current()
	switch {
	case state == telemetry.Closed:
		return most
	case b.clock.Now().Before(until):
		return 0
	}
	return min(most, 1)
}

// Current is the state, for the metric, and when a request may be sent again.
func (b *Breaker) Current() (telemetry.BreakerState, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == telemetry.Closed {
		return b.state, b.clock.Now()
	}
	return b.state, b.until
}
