package preempt

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/streams"
)

const subsystem = "makeway_scheduler"

// Labels of makeway_preemption_executions_total. The plugin's operations are "commit", from the
// nomination to the order in the stream, and "order", from there to its outcome.
const (
	operationCommit = "commit"
	operationOrder  = "order"
	resultSuccess   = "succeeded"
	resultError     = "failed"
)

// latency are buckets from 1 ms to 16 s: a plan request is at the low end, an order at the high end.
var latency = metrics.ExponentialBuckets(0.001, 2, 15)

// The plugin's metrics, in the scheduler's own registry.
var (
	attemptsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "attempts_total", StabilityLevel: metrics.ALPHA,
		Help: "PostFilter calls by result: nominated, room_on_its_way, refused, unverifiable, unfinished, hopeless, in_flight, victims_leaving, never_preempts, pod_group, placed, delayed, unaskable, orders_not_stored, no_evictor, breaker_open, planner_late, off, observed, planner_unreachable, planner_not_synced, too_large, error, panic.",
	}, []string{"result"})

	unplannedTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "unplanned_total", StabilityLevel: metrics.ALPHA,
		Help: "PostFilter and PodGroupPostFilter calls that ended without a plan, and would leave the pod to the plugins after MakeWay, by what became of it: left (to them), or held, so that nothing is evicted: restricted (something restricts preemption), unknown (it is not known whether anything does), stopped (by the brake or the evictors' breaker).",
	}, []string{"result"})

	postFilterDuration = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "postfilter_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help: "How long PostFilter took.", Buckets: latency,
	})

	groupAttemptsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "group_attempts_total", StabilityLevel: metrics.ALPHA,
		Help: "PodGroupPostFilter calls, by result as makeway_scheduler_attempts_total has them.",
	}, []string{"result"})

	groupPostFilterDuration = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "group_postfilter_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help: "How long PodGroupPostFilter took.", Buckets: latency,
	})

	plansPrefetched = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "plans_ahead_total", StabilityLevel: metrics.ALPHA,
		Help: "Plans that were asked for while the filters ran, by what became of them: used, changed (other nodes may help than was expected; asked again), unneeded (the pod fits, or could not preempt).",
	}, []string{"result"})

	latePlans = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "late_plans_total", StabilityLevel: metrics.ALPHA,
		Help: "Plans that had not come when their cycle ended, which waits as long as its filters took, by what became of them: used (in the preemptor's next cycle), outdated (the pod, its group, its mode or the policy had changed), expired (2 s over), lost (no answer came), dropped (too many were kept).",
	}, []string{"result"})

	verificationDuration = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "verification_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help: "How long verifying the candidates of one plan with the scheduler's filters took.", Buckets: latency,
	})

	refusalSamples = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "refusal_samples_total", StabilityLevel: metrics.ALPHA,
		Help: "Nodes that a planner ruled out and that were verified with the scheduler's filters, by result: confirmed, missed (the refusal was wrong; the pod is tried in full), undecided (planner and scheduler saw the node differently, or a plugin failed).",
	}, []string{"result"})

	orderToLastVictimGone = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "order_to_last_victim_gone_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "From an order's creation until its last victim had left the scheduler's cache.",
		Buckets: metrics.ExponentialBuckets(0.01, 2, 16),
	})

	victimsPerOrder = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "victims", StabilityLevel: metrics.ALPHA,
		Help: "Victims of one nomination, awaited pods not counted.", Buckets: []float64{0, 1, 2, 4, 8, 16, 32, 64},
	})

	breakerGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "breaker_state", StabilityLevel: metrics.ALPHA,
		Help: "The circuit breaker round questions about pods to the planner: 0 closed, 1 half-open, 2 open.",
	})

	groupBreakerGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "group_breaker_state", StabilityLevel: metrics.ALPHA,
		Help: "The circuit breaker round questions about pod groups to the planner: 0 closed, 1 half-open, 2 open: plans for groups take longer than groupPlanTimeout, or no planner answers.",
	})

	orderBreakerGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "order_breaker_state", StabilityLevel: metrics.ALPHA,
		Help: "The circuit breaker round the evictors: 0 closed, 1 half-open, 2 open: eviction orders are not stored, not carried out, or refused by the evictors' breaker.",
	})

	futileTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "futile_orders_total", StabilityLevel: metrics.ALPHA,
		Help: "Eviction orders that were not carried out, by reason: not_stored (the stream could not be read or written), no_outcome (no evictor ended it by notAfter), breaker_open, breaker_open_namespace (refused: the evictors' breaker is open, for all or for the namespace).",
	}, []string{"reason"})

	inFlightGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "orders_in_flight", StabilityLevel: metrics.ALPHA,
		Help: "Preemptors with an order whose victims have not all left.",
	})

	refusedGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "refused_pods", StabilityLevel: metrics.ALPHA,
		Help: "Pods that are kept to be tried again when a time or an object they depend on comes.",
	})

	spansTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "spans_total", StabilityLevel: metrics.ALPHA,
		Help: "Spans of traces, by result: exported, failed (the collector did not take them), dropped (too many waited). None where no endpoint is configured.",
	}, []string{"result"})

	messagesIgnored = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "ignored_messages_total", StabilityLevel: metrics.ALPHA,
		Help: "Messages of the streams of orders, outcomes and control states that were ignored, by reason: too-large, too-deep, not-json, invalid, unknown-version, unknown-type, wrong-subject, other-cluster, not-after-too-far, old-revision, future-revision, unusable-queues, unsigned, unknown-key, invalid-signature, other.",
	}, []string{"reason"})

	natsErrors = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "nats_errors_total", StabilityLevel: metrics.ALPHA,
		Help: "Errors that the NATS client reported, by kind: permission (a publish or subscription was denied), other.",
	}, []string{"kind"})

	repliesRefused = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "replies_refused_total", StabilityLevel: metrics.ALPHA,
		Help: "Questions about the scheduler's status that asked to be answered elsewhere than in an inbox of makeway's, and were left alone: the answer could have been stored as a message.",
	})

	executionsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "makeway_preemption_executions_total", StabilityLevel: metrics.ALPHA,
		Help: "Asynchronous preemption work that ended, by operation (commit: until the order is stored; order: until its outcome) and result (succeeded, failed).",
	}, []string{"operation", "result"})

	executionDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "makeway_preemption_execution_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help: "How long asynchronous preemption work took, by operation (commit, order) and result (succeeded, failed).", Buckets: latency,
	}, []string{"operation", "result"})
)

var registerMetrics = sync.OnceFunc(func() {
	goroutines.RegisterMetrics()
	ask.RegisterMetrics()
	streams.RegisterMetrics()
	legacyregistry.MustRegister(
		attemptsTotal, postFilterDuration, groupAttemptsTotal, groupPostFilterDuration, plansPrefetched, latePlans, verificationDuration, refusalSamples, orderToLastVictimGone,
		victimsPerOrder, breakerGauge, groupBreakerGauge, orderBreakerGauge, futileTotal, inFlightGauge, refusedGauge, messagesIgnored, spansTotal, natsErrors, repliesRefused, executionsTotal, executionDuration,
		unplannedTotal,
	)
})

// executed records the end of a piece of asynchronous work. The result is known only then, so this is
// called with it and never deferred with a value taken early.
func executed(operation string, err error, took time.Duration) {
	result := resultSuccess
	if err != nil {
		result = resultError
	}
	executionsTotal.WithLabelValues(operation, result).Inc()
	executionDuration.WithLabelValues(operation, result).Observe(took.Seconds())
}

// countSpans counts what becomes of spans of traces.
func countSpans(result string, spans int) { spansTotal.WithLabelValues(result).Add(float64(spans)) }
