package streams

import "makeway.dev/makeway/plugin/internal/telemetry"

var signatureFailures = telemetry.CounterVec("makeway_scheduler_signature_failures_total",
	"Messages whose signature does not hold, by kind (order, control, outcome) and reason: unsigned, unknown-key, invalid-signature. They count for nothing where signatures are required.", "kind", "reason")
