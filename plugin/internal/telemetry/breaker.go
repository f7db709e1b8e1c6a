// Package telemetry is what several packages show of themselves in the same way.
package telemetry

// BreakerState is what a circuit breaker lets through. The numbers are those of the metrics.
type BreakerState int

const (
	Closed   BreakerState = 0 // everything
	HalfOpen BreakerState = 1 // one, as a probe
	Open     BreakerState = 2 // nothing
)
