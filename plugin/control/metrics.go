package control

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"makeway.dev/makeway/plugin/wire"
)

const subsystem = "makeway_scheduler"

var (
	controlRevision = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "control_revision", StabilityLevel: metrics.ALPHA,
		Help: "Revision of the effective control state; 0 where none has been read.",
	})

	controlPublished = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "control_published_timestamp_seconds", StabilityLevel: metrics.ALPHA,
		Help: "Unix time at which the effective control state was published; its age is the time since. 0 where none has been read.",
	})

	controlMode = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "control_mode", StabilityLevel: metrics.ALPHA,
		Help: "1 for the mode of the effective control state, 0 for the other ones: off, observe, enforce. Namespaces and profiles may be held to less.",
	}, []string{"mode"})

	brakeGauge = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "brake", StabilityLevel: metrics.ALPHA,
		Help: "What the brake (ConfigMap makeway-brake) holds in this scheduler, by scope: cluster (1 where it is set everywhere, else 0), namespaces (how many it is set for).",
	}, []string{"scope"})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(controlRevision, controlPublished, controlMode, brakeGauge)
})

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
