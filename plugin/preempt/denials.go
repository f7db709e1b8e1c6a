package preempt

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/natsbus"
)

// denialMemory is how long a publish or subscription that NATS denied counts as trouble, as in planner and evictor.
const denialMemory = time.Minute

// denials remembers the last thing that NATS denied this scheduler's login; nil knows of none.
type denials struct {
	clock clock.PassiveClock
	last  atomic.Pointer[denial]
}

type denial struct {
	at     time.Time
	reason string
}

// note takes in an error of the NATS client, and counts it.
func (d *denials) note(kind string, err error) {
	natsErrors.WithLabelValues(kind).Inc()
	if kind == natsbus.KindPermission {
		d.last.Store(&denial{at: d.clock.Now(), reason: err.Error()})
	}
}

// lately is what NATS denied within the last minute; empty where it denied nothing.
func (d *denials) lately() string {
	if d == nil {
		return ""
	}
	last := d.last.Load()
	if last == nil || d.clock.Since(last.at) > denialMemory {
		return ""
	}
	return last.reason
}
