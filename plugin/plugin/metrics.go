package plugin

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/control"
	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/tracing"
	"makeway.dev/makeway/plugin/wire"
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
		"PostFilter calls by result: nominated, room_on_its_way, refused, unverifiable, unfinished, hopeless, in_flight, victims_leaving, never_preempts, pod_group, placed, delayed, unaskable, orders_not_stored, no_evictor, planner_late, off, observed, planner_unreachable, planner_not_synced, too_large, error, panic.", "result")

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
		"Plans that had not come when their cycle ended, which waits as long as its filters took, by what became of them: used (in the preemptor's next cycle), outdated (the pod, its group, its mode or the policy had changed), expired (30 s over), lost (no answer came), dropped (too many were kept; also those that were not asked for since they would have come late).", "result")

	verificationDuration = telemetry.Histogram("makeway_scheduler_verification_duration_seconds",
		"How long verifying the candidates of one plan with the scheduler's filters took.", telemetry.Latency())

	refusalSamples = telemetry.CounterVec("makeway_scheduler_refusal_samples_total",
		"Nodes that a planner ruled out and that were verified with the scheduler's filters, by result: confirmed, missed (the refusal was wrong; the pod is tried in full), undecided (planner and scheduler saw the node differently, or a plugin failed).", "result")

	orderToLastVictimGone = telemetry.Histogram("makeway_scheduler_order_to_last_victim_gone_seconds",
		"From an order's creation until its last victim had left the scheduler's cache.", metrics.ExponentialBuckets(0.01, 2, 16))

	breakerGauge = telemetry.Gauge("makeway_scheduler_breaker_state",
		"The circuit breaker round questions about pods to the planner: 0 closed, 1 half-open, 2 open.")

	groupBreakerGauge = telemetry.Gauge("makeway_scheduler_group_breaker_state",
		"The circuit breaker round questions about pod groups to the planner: 0 closed, 1 half-open, 2 open: plans for groups take longer than groupPlanTimeout, or no planner answers.")

	orderBreakerGauge = telemetry.Gauge("makeway_scheduler_order_breaker_state",
		"The circuit breaker round commits to the planner: 0 closed, 1 half-open, 2 open: no planner answers them, or their orders are not stored.")

	refusedGauge = telemetry.Gauge("makeway_scheduler_refused_pods",
		"Pods that are kept to be tried again when a time or an object they depend on comes.")

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

// The life of a preemption's span: it begins where a plan is asked for, goes on with the order, and ends when it is
// known what becomes of that. Its children are "request" and "publish"; the planner's and the evictors' are theirs.

// goOn goes on with the span of the question that an attempt begins with, a prefetched one or one whose answer was late, or begins
// that of a preemption for a pod or a pod group where there is none.
func (e *engine) goOn(ctx context.Context, prefetch *ask.Prefetch, preemptor klog.ObjectRef, uid types.UID) (context.Context, tracing.Span) {
	asked := e.planner.Late.Of(uid)
	if prefetch != nil {
		asked = prefetch.Asked
	}
	if asked == nil {
		return e.planner.Tracer.Begin(ctx, "preemption", "preemptor", preemptor, "preemptor_uid", uid)
	}
	return asked.Span.In(ctx), asked.Span
}

// endSpan ends the span of an attempt that began no order, and whose question is not kept: both go on with it.
func (p *preemptor) endSpan(end preemptResult) {
	if end.kind != endNominated && !p.kept {
		p.span.End(nil, "result", end.kind, "message", end.message)
	}
}

// status is what this scheduler answers when it is asked how it is. Whether it leads it does not say:
// kube-scheduler's election does not tell its plugins.
func (e *engine) status() *wire.ComponentStatus {
	own := *e.ownMode.Load()
	status := &wire.ComponentStatus{
		APIVersion: wire.APIVersion,
		Component:  "scheduler",
		Identity:   e.identity,
		Version:    wire.Version,
		At:         wire.At(e.clock.Now()),
		Mode:       e.control.Mode(own, ""),
		OwnMode:    own,
		Trouble:    e.trouble(),
		Signatures: e.store.Signatures.Describe(),
		Kubernetes: version.DefaultKubeBinaryVersion,
		QueueGates: e.gate.Profiles(),
	}
	if uid, err := e.control.ClusterUID(); err == nil {
		status.ClusterUID = uid
	}
	brake := e.control.Brake()
	status.Brake = brake.Scope()
	named := slices.Clone(brake.Names())
	if state := e.control.State(); state != nil {
		status.Revision = state.Revision
		status.PolicyRevision = state.PolicyRevision
		status.ToldPolicyRevision = state.PolicyRevision
		status.QueuesRevision = state.QueuesRevision
		named = slices.AppendSeq(named, maps.Keys(state.NamespaceModes))
	}
	if len(named) > 0 {
		status.NamespaceModes = map[string]string{}
		for _, namespace := range named {
			status.NamespaceModes[namespace] = e.control.Mode(own, namespace)
		}
	}
	return status
}

// addProfile takes in one more profile: the status names the mode that does most.
func (e *engine) addProfile(mode string) {
	if before := e.ownMode.Load(); before == nil || control.MoreRestrictive(*before, mode) == *before {
		e.ownMode.Store(&mode)
	}
}

// trouble is what keeps this scheduler from preempting, or from stopping to.
func (e *engine) trouble() string {
	if unread := e.control.BrakeTrouble(); unread != "" {
		return unread
	}
	if e.store.Signatures.Incomplete() {
		return "signatures are required: " + e.store.Signatures.Describe()
	}
	if denied := e.denied(); denied != "" {
		return denied
	}
	if state, _ := e.planner.Pods.Current(); state != telemetry.Closed {
		return "the planner has not answered recently"
	}
	if state, _ := e.planner.Commits.Current(); state != telemetry.Closed {
		return notStored
	}
	return ""
}
