package queues

import "time"

// A pod that was activated is not activated again before activationBackoffInitial is over; that doubles with each time up to
// activationBackoffMax, as the scheduler's own back-off does (podInitialBackoff, podMaxBackoff).
const (
	activationBackoffInitial = time.Second
	activationBackoffMax     = 10 * time.Second
)

// activationBackoff is how often a pod has been activated in vain, and until when it is left in peace.
type activationBackoff struct {
	activations int
	until       time.Time
}

// over reports whether the pod may be activated.
func (p activationBackoff) over(now time.Time) bool { return !now.Before(p.until) }

// next is the activationBackoff after one more activation.
func (p activationBackoff) next(now time.Time) activationBackoff {
	if now.After(p.until.Add(activationBackoffMax)) {
		p.activations = 0
	}
	pause := min(activationBackoffInitial<<min(p.activations, 10), activationBackoffMax)
	return activationBackoff{activations: p.activations + 1, until: now.Add(pause)}
}
