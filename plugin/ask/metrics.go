package ask

import "makeway.dev/makeway/plugin/internal/telemetry"

// requestDuration is in the scheduler's own registry.
var requestDuration = telemetry.HistogramVec("makeway_scheduler_plan_request_duration_seconds",
	"How long a plan request took by result: answered, no_responders, timeout, disconnected, malformed.", telemetry.Latency(), "result")
