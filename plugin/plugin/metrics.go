package plugin

import (
	"time"

	"k8s.io/component-base/metrics"

	"makeway.dev/makeway/plugin/internal/telemetry"
)

// Labels of makeway_preemption_executions_total. The plugin's operations are "commit", from the
// nomination to the order in the stream, and "order", from there to its outcome.
const (
	operationCommit = "commit"
	operationOrder  = "order"
	resultSuccess   = "succeeded"
	resultError     = "failed"
)

// The plugin's metrics, in the scheduler's own registry.
var (
	attemptsTotal = telemetry.CounterVec("makeway_scheduler_attempts_total",
		"PostFilter calls by result: nominated, room_on_its_way, refused, unverifiable, unfinished, hopeless, in_flight, victims_leaving, never_preempts, pod_group, placed, delayed, unaskable, orders_not_stored, no_evictor, breaker_open, planner_late, off, observed, planner_unreachable, planner_not_synced, too_large, error, panic.", "result")

	unplannedTotal = telemetry.CounterVec("makeway_scheduler_unplanned_total",
		"PostFilter and PodGroupPostFilter calls that ended without a plan, and would leave the pod to the plugins after MakeWay, by what became of it: left (to them), or held, so that nothing is evicted: restricted (something restricts preemption), unknown (it is not known whether anything does), stopped (by the brake or the evictors' breaker).", "result")

	postFilterDuration = telemetry.Histogram("makeway_scheduler_postfilter_duration_seconds",
		"How long PostFilter took.", telemetry.Latency())

	groupAttemptsTotal = telemetry.CounterVec("makeway_scheduler_group_attempts_total",
		"PodGroupPostFilter calls, by result as makeway_scheduler_attempts_total has them.", "result")

	groupPostFilterDuration = telemetry.Histogram("makeway_scheduler_group_postfilter_duration_seconds",
		"How long PodGroupPostFilter took.", telemetry.Latency())

	plansPrefetched = telemetry.CounterVec("makeway_scheduler_plans_ahead_total",
		"Plans that were asked for while the filters ran, by what became of them: used, changed (other nodes may help than was expected; asked again), unneeded (the pod fits, or could not preempt).", "result")

	latePlans = telemetry.CounterVec("makeway_scheduler_late_plans_total",
		"Plans that had not come when their cycle ended, which waits as long as its filters took, by what became of them: used (in the preemptor's next cycle), outdated (the pod, its group, its mode or the policy had changed), expired (2 s over), lost (no answer came), dropped (too many were kept).", "result")

	verificationDuration = telemetry.Histogram("makeway_scheduler_verification_duration_seconds",
		"How long verifying the candidates of one plan with the scheduler's filters took.", telemetry.Latency())

	refusalSamples = telemetry.CounterVec("makeway_scheduler_refusal_samples_total",
		"Nodes that a planner ruled out and that were verified with the scheduler's filters, by result: confirmed, missed (the refusal was wrong; the pod is tried in full), undecided (planner and scheduler saw the node differently, or a plugin failed).", "result")

	orderToLastVictimGone = telemetry.Histogram("makeway_scheduler_order_to_last_victim_gone_seconds",
		"From an order's creation until its last victim had left the scheduler's cache.", metrics.ExponentialBuckets(0.01, 2, 16))

	victimsPerOrder = telemetry.Histogram("makeway_scheduler_victims",
		"Victims of one nomination, awaited pods not counted.", []float64{0, 1, 2, 4, 8, 16, 32, 64})

	breakerGauge = telemetry.Gauge("makeway_scheduler_breaker_state",
		"The circuit breaker round questions about pods to the planner: 0 closed, 1 half-open, 2 open.")

	groupBreakerGauge = telemetry.Gauge("makeway_scheduler_group_breaker_state",
		"The circuit breaker round questions about pod groups to the planner: 0 closed, 1 half-open, 2 open: plans for groups take longer than groupPlanTimeout, or no planner answers.")

	orderBreakerGauge = telemetry.Gauge("makeway_scheduler_order_breaker_state",
		"The circuit breaker round the evictors: 0 closed, 1 half-open, 2 open: eviction orders are not stored, not carried out, or refused by the evictors' breaker.")

	futileTotal = telemetry.CounterVec("makeway_scheduler_futile_orders_total",
		"Eviction orders that were not carried out, by reason: not_stored (the stream could not be read or written), no_outcome (no evictor ended it by notAfter), breaker_open, breaker_open_namespace (refused: the evictors' breaker is open, for all or for the namespace).", "reason")

	inFlightGauge = telemetry.Gauge("makeway_scheduler_orders_in_flight",
		"Preemptors with an order whose victims have not all left.")

	refusedGauge = telemetry.Gauge("makeway_scheduler_refused_pods",
		"Pods that are kept to be tried again when a time or an object they depend on comes.")

	spansTotal = telemetry.CounterVec("makeway_scheduler_spans_total",
		"Spans of traces, by result: exported, failed (the collector did not take them), dropped (too many waited). None where no endpoint is configured.", "result")

	executionsTotal = telemetry.CounterVec("makeway_preemption_executions_total",
		"Asynchronous preemption work that ended, by operation (commit: until the order is stored; order: until its outcome) and result (succeeded, failed).", "operation", "result")

	executionDuration = telemetry.HistogramVec("makeway_preemption_execution_duration_seconds",
		"How long asynchronous preemption work took, by operation (commit, order) and result (succeeded, failed).", telemetry.Latency(), "operation", "result")
)

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
