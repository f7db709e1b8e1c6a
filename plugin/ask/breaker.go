package ask

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/telemetry"
)

// How the breaker behaves. A planner that says nothing for as long as a question lasts, a second at least, is away. A probe every
// 30 s at the latest finds one that is back; pods are tried again for it one by one, since each try costs the scheduler its filters.
const (
	BreakerThreshold = 3
	breakerFirstOpen = time.Second
	breakerLongest   = 30 * time.Second
	// MaxPlanTimeout is how long one plan request may take at most.
	MaxPlanTimeout = 5 * time.Second
)

// Breaker knows whether the planner is away, so that cycles do not wait for it, and nominate no pod whose order it would not store. After a question without an answer, while no other was
// answered either, nothing is asked for a while; then one request probes, and the while doubles where that fails.
// Safe for concurrent use.
type Breaker struct {
	clock clock.PassiveClock
	shown *metrics.Gauge // its state; nil: nowhere

	mu       sync.Mutex
	state    telemetry.BreakerState
	failures int           // at once, in a row, while closed
	openFor  time.Duration // the length of the current or next while
	until    time.Time     // when the next probe is due
	cheap    bool          // requests fail at once: they cost nothing
	answered time.Time     // when the last answer came
	takes    time.Duration // how long an answer takes, of late
}

// NewBreaker is closed. Its state is shown by a metric, where one is given.
func NewBreaker(clock clock.PassiveClock, shown *metrics.Gauge) *Breaker {
	b := &Breaker{clock: clock, shown: shown, openFor: breakerFirstOpen}
	b.become(telemetry.Closed)
	return b
}

// become changes the state. The caller holds the lock.
func (b *Breaker) become(state telemetry.BreakerState) {
	b.state = state
	if b.shown != nil {
		b.shown.Set(float64(state))
	}
}

// Allow reports whether a request may be sent now. Each allowed request must be followed by Succeeded, Silent or failed.
func (b *Breaker) Allow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == telemetry.Closed || b.cheap {
		return true
	}
	// Where a probe is on its way, its caller is lost once that has lasted longer than any request.
	if b.clock.Now().Before(b.until) {
		return false
	}
	b.become(telemetry.HalfOpen)
	b.until = b.clock.Now().Add(MaxPlanTimeout)
	return true
}

// Away reports whether the planner has said nothing lately, so that no answer is worth a cycle's time.
func (b *Breaker) Away() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state != telemetry.Closed && !b.cheap
}

// Succeeded closes the breaker, and reports whether it was open.
func (b *Breaker) Succeeded() (wasOpen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wasOpen = b.state != telemetry.Closed
	b.become(telemetry.Closed)
	b.failures, b.openFor, b.cheap, b.answered = 0, breakerFirstOpen, false, b.clock.Now()
	return wasOpen
}

// Took takes in how long an answer took: an eighth of how long one takes of late.
func (b *Breaker) Took(took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.takes += (took - b.takes) / 8
}

// Takes is how long an answer takes of late.
func (b *Breaker) Takes() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.takes
}

// Silent counts a question that was asked at a time and has no answer. It opens the breaker where no other was answered since.
func (b *Breaker) Silent(asked time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.answered.After(asked):
		return
	case b.state == telemetry.HalfOpen:
		b.openFor = min(2*b.openFor, breakerLongest)
	case b.state == telemetry.Open && !b.cheap:
		return // one more of those that were asked before it opened
	}
	b.become(telemetry.Open)
	b.cheap, b.until = false, b.clock.Now().Add(b.openFor)
}

// failed counts a request that failed at once, such as one that NATS returned since no planner listens. That costs a cycle nothing, so
// that requests go on, and the first planner that is back is heard by the first that comes; but pods are tried again for it
// one by one, as if the planner were away, since each try costs the scheduler its filters.
func (b *Breaker) failed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	if b.state == telemetry.Closed && b.failures < BreakerThreshold {
		return
	}
	b.become(telemetry.Open)
	b.cheap, b.openFor, b.until = true, breakerFirstOpen, b.clock.Now().Add(breakerFirstOpen)
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

// Current is the state, and when a request may be sent again.
func (b *Breaker) Current() (telemetry.BreakerState, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == telemetry.Closed {
		return b.state, b.clock.Now()
	}
	return b.state, b.until
}
