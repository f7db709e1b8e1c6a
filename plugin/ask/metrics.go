package ask

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "makeway_scheduler"

// requestDuration is in the scheduler's own registry.
var requestDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
	Subsystem: subsystem, Name: "plan_request_duration_seconds", StabilityLevel: metrics.ALPHA,
	Help:    "How long a plan request took by result: answered, no_responders, timeout, disconnected, malformed.",
	Buckets: metrics.ExponentialBuckets(0.001, 2, 15),
}, []string{"result"})

// RegisterMetrics registers the metric of questions with the scheduler's own, once.
var RegisterMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(requestDuration) })
