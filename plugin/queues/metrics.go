package queues

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "makeway_scheduler"

// The gate's metrics, in the scheduler's own registry.
var (
	gateRejections = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "queue_gate_rejections_total", StabilityLevel: metrics.ALPHA,
		Help: "Pods that the queue gate turned away, before their scheduling cycle (in PreEnqueue) or in it, by reason: queue_full, victims_may_help (full, and pods of lower priority within it hold enough), limits_unknown.",
	}, []string{"reason"})

	gateWaiting = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "queue_gate_waiting_pods", StabilityLevel: metrics.ALPHA,
		Help: "Pods that wait for room in their queue.",
	})

	gateActivated = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "queue_gate_woken_pods_total", StabilityLevel: metrics.ALPHA,
		Help: "Pods that were tried again since their queue had room.",
	})

	conditionsWritten = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "queue_gate_conditions_total", StabilityLevel: metrics.ALPHA,
		Help: "Conditions of pods that were written to say that their queue holds them, which is no reason to add nodes.",
	})

	gateShut = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "queue_gate_shut", StabilityLevel: metrics.ALPHA,
		Help: "1 while no pod passes the queue gate because the limits of queues are not known, else 0.",
	})
)

// registerMetrics may not run while a goroutine of a gate sets one of them.
var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(gateRejections, gateWaiting, gateActivated, conditionsWritten, gateShut)
})
