package natsbus

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// denialMemory is how long a publish or subscription that NATS denied counts as trouble, as in planner and evictor.
const denialMemory = time.Minute

// Denials remembers the last thing that NATS denied this process's login; nil knows of none.
type Denials struct {
	Clock clock.PassiveClock
	last  atomic.Pointer[denial]
}

type denial struct {
	at     time.Time
	reason string
}

// Note takes in an error of the NATS client.
func (d *Denials) Note(kind string, err error) {
	if kind == KindPermission {
		d.last.Store(&denial{at: d.Clock.Now(), reason: err.Error()})
	}
}

// Lately is what NATS denied within the last minute; empty where it denied nothing.
func (d *Denials) Lately() string {
	if d == nil {
		return ""
	}
	last := d.last.Load()
	if last == nil || d.Clock.Since(last.at) > denialMemory {
		return ""
	}
	return last.reason
}
