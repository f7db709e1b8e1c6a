package streams

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "makeway_scheduler"

// The metrics of what is read from the streams and written to them, in the scheduler's own registry.
var (
	signatureFailures = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "signature_failures_total", StabilityLevel: metrics.ALPHA,
		Help: "Messages whose signature does not hold, by kind (order, quota-order, control, outcome) and reason: unsigned, unknown-key, invalid-signature. They count for nothing where signatures are required.",
	}, []string{"kind", "reason"})

	signingKeyInfo = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "signing_key_info", StabilityLevel: metrics.ALPHA,
		Help: "1 for the key that this scheduler signs orders with, by kind and key id.",
	}, []string{"kind", "key_id"})

	signingKeyUnknown = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "signing_key_unknown", StabilityLevel: metrics.ALPHA,
		Help: "1 where ConfigMap makeway-keys does not hold the key that this scheduler signs with, else 0, by kind: what it signs, the others refuse.",
	}, []string{"kind"})

	ordersRepublished = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "orders_republished_total", StabilityLevel: metrics.ALPHA,
		Help: "Orders that their stream had lost and that were published again.",
	})
)

// RegisterMetrics registers the metrics of what is read and written with the scheduler's own, once.
var RegisterMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(signatureFailures, signingKeyInfo, signingKeyUnknown, ordersRepublished)
})
