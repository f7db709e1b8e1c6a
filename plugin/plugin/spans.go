package plugin

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

// attemptSpan begins the span of an attempt, or goes on with that of its question: a prefetched one, or one whose answer was late.
func (pl *MakeWay) attemptSpan(ctx context.Context, asked *ask.Prefetch, pod *v1.Pod) (context.Context, tracing.Span) {
	if asked == nil {
		return pl.engine.goOn(ctx, pl.engine.planner.LatePods.Span(pod.UID), klog.KObj(pod), pod.UID)
	}
	span := asked.Span
	asked.Span = tracing.Span{}
	return span.In(ctx), span
}

// goOn goes on with the span of an attempt before, or begins one where there is none.
func (e *engine) goOn(ctx context.Context, span tracing.Span, preemptor klog.ObjectRef, uid types.UID) (context.Context, tracing.Span) {
	if span == (tracing.Span{}) {
		return e.beginSpan(ctx, preemptor, uid)
	}
	return span.In(ctx), span
}

// endAttempt ends the span of an attempt that began no order, and whose question is not kept: both go on with it.
func endAttempt(span tracing.Span, end preemptResult, kept bool) {
	if end.kind != endNominated && !kept {
		span.End(nil, "result", end.kind, "message", end.message)
	}
}
