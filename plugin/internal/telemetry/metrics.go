// Package telemetry is what several packages show of themselves in the same way.
package telemetry

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// made are the metrics of all packages.
var made []metrics.Registerable

// Register registers the metrics of all packages with the scheduler's own, once. It may not run while a goroutine sets one of them:
// plugins call it before they start any.
var Register = sync.OnceFunc(func() { legacyregistry.MustRegister(made...) })

func keep[M metrics.Registerable](metric M) M {
	made = append(made, metric)
	return metric
}

// Counter makes a metric for Register, as the functions below do. They are called where package variables are initialized.
func Counter(name, help string) *metrics.Counter {
	return keep(metrics.NewCounter(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}))
}

// CounterVec has labels.
func CounterVec(name, help string, labels ...string) *metrics.CounterVec {
	return keep(metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels))
}

// Gauge has none.
func Gauge(name, help string) *metrics.Gauge {
	return keep(metrics.NewGauge(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}))
}

// Latency returns buckets from 1 ms to 16 s: a plan request is at the low end, an order at the high end.
func Latency() []float64 { return metrics.ExponentialBuckets(0.001, 2, 15) }

// Histogram has no labels.
func Histogram(name, help string, buckets []float64) *metrics.Histogram {
	return keep(metrics.NewHistogram(&metrics.HistogramOpts{Name: name, Help: help, Buckets: buckets, StabilityLevel: metrics.ALPHA}))
}

// HistogramVec has labels.
func HistogramVec(name, help string, buckets []float64, labels ...string) *metrics.HistogramVec {
	return keep(metrics.NewHistogramVec(&metrics.HistogramOpts{Name: name, Help: help, Buckets: buckets, StabilityLevel: metrics.ALPHA}, labels))
}

// BreakerState is what a circuit breaker lets through. The numbers are those of the metrics.
type BreakerState int

const (
	Closed   BreakerState = 0 // everything
	HalfOpen BreakerState = 1 // one, as a probe
	Open     BreakerState = 2 // nothing
)
