package streams

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "makeway_scheduler"

// The metrics of what is read from the streams, in the scheduler's own registry.
var (
	signatureFailures = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "signature_failures_total", StabilityLevel: metrics.ALPHA,
		Help: "Messages whose signature does not hold, by kind (order, control, outcome) and reason: unsigned, unknown-key, invalid-signature. They count for nothing where signatures are required.",
	}, []string{"kind", "reason"})
)

// RegisterMetrics registers the metrics of what is read with the scheduler's own, once.
var RegisterMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(signatureFailures)
})
