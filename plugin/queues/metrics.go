package queues

import "makeway.dev/makeway/plugin/internal/telemetry"

// The gate's metrics, in the scheduler's own registry.
var (
	gateRejections = telemetry.CounterVec("makeway_scheduler_queue_gate_rejections_total",
		"Pods that the queue gate turned away, before their scheduling cycle (in PreEnqueue) or in it, by reason: queue_full, victims_may_help (full, and pods of lower priority within it hold enough), limits_unknown.", "reason")

	gateWaiting = telemetry.Gauge("makeway_scheduler_queue_gate_waiting_pods",
		"Pods that wait for room in their queue.")

	gateActivated = telemetry.Counter("makeway_scheduler_queue_gate_woken_pods_total",
		"Pods that were tried again since their queue had room.")

	gateShut = telemetry.Gauge("makeway_scheduler_queue_gate_shut",
		"1 while no pod passes the queue gate because the limits of queues are not known, else 0.")
)
