package natsbus

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/utils/clock"
)

// denialMemory is how long a publish or subscription that NATS denied counts as trouble, as in planner and evictor.
const denialMemory = time.Minute

// denials remember the last thing that NATS denied this process's login.
type denials struct {
	clock clock.PassiveClock
	last  atomic.Pointer[denial]
}

type denial struct {
	at     time.Time
	reason string
}

// note counts an error of the NATS client.
func (d *denials) note(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		natsErrors.WithLabelValues("other").Inc()
		return
	}
	natsErrors.WithLabelValues("permission").Inc()
	d.last.Store(&denial{at: d.clock.Now(), reason: err.Error()})
}

func (d *denials) lately() string {
	last := d.last.Load()
	if last == nil || d.clock.Since(last.at) > denialMemory {
		return ""
	}
	return last.reason
}
