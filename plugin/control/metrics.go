package control

import (
	"time"

	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/wire"
)

var (
	controlRevision = telemetry.Gauge("makeway_scheduler_control_revision",
		"Revision of the effective control state; 0 where none has been read.")

	controlPublished = telemetry.Gauge("makeway_scheduler_control_published_timestamp_seconds",
		"Unix time at which the effective control state was published; its age is the time since. 0 where none has been read.")

	controlMode = telemetry.GaugeVec("makeway_scheduler_control_mode",
		"1 for the mode of the effective control state, 0 for the other ones: off, observe, enforce. Namespaces and profiles may be held to less.", "mode")

	brakeGauge = telemetry.GaugeVec("makeway_scheduler_brake",
		"What the brake (ConfigMap makeway-brake) holds in this scheduler, by scope: cluster (1 where it is set everywhere, else 0), namespaces (how many it is set for).", "scope")
)

// show sets the metrics of the control state.
func show(state *wire.ControlState, published time.Time) {
	controlRevision.Set(float64(state.Revision))
	controlPublished.Set(float64(published.Unix()))
	for mode := range restriction {
		value := 0.0
		if mode == state.Mode {
			value = 1
		}
		controlMode.WithLabelValues(mode).Set(value)
	}
}

// showBrake sets the metrics of the brake.
func showBrake(found *Brake) {
	everywhere := 0.0
	if found != nil && found.everywhere {
		everywhere = 1
	}
	brakeGauge.WithLabelValues("cluster").Set(everywhere)
	brakeGauge.WithLabelValues("namespaces").Set(float64(len(found.Names())))
}
