package preempt

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/tracing"
)

// This file is the life of a preemption's span: it begins where a plan is asked for, goes on with the order, and ends when it is
// known what becomes of that. Its children are "request" and "publish"; the planner's and the evictors' are theirs.

// beginSpan begins the span of a preemption for a pod or a pod group.
func (e *engine) beginSpan(ctx context.Context, preemptor klog.ObjectRef, uid types.UID) (context.Context, tracing.Span) {
	return e.planner.Tracer.Begin(ctx, "preemption", "preemptor", preemptor, "preemptor_uid", uid)
}

// attemptSpan begins the span of an attempt, or goes on with that of its prefetched question.
func (pl *MakeWay) attemptSpan(ctx context.Context, asked *ask.Prefetch, pod *v1.Pod) (context.Context, tracing.Span) {
	if asked == nil {
		return pl.engine.beginSpan(ctx, klog.KObj(pod), pod.UID)
	}
	span := asked.Span
	asked.Span = tracing.Span{}
	return span.In(ctx), span
}

// endAttempt ends the span of an attempt that began no order; that of one that did goes on with the order.
func endAttempt(span tracing.Span, end preemptResult) {
	if end.kind != endNominated {
		span.End(nil, "result", end.kind, "message", end.message)
	}
}
