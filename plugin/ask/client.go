// Package ask asks planners: what would have to go for a pod, or for a pod group. A question and what the scheduler knows are values that
// callers pass in. Breakers know whether planners are away, answers that came too late for their cycle are kept for the next, and a plan
// that pods of a kind are expected to need is asked for while the filters run.
package ask

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/tracing"
	"makeway.dev/makeway/plugin/wire"
)

// ErrBreakerOpen says that the planner is not asked for a while.
var ErrBreakerOpen = errors.New("the planner did not answer and is not asked for a while")

// ErrTooLarge says that the planner cannot be asked about a pod, which says nothing of the planner.
var ErrTooLarge = errors.New("the pod, with the orders in flight, is too large to be asked about")

// ErrUnreadable says that the planner's answer is not understood, though it is of this version.
var ErrUnreadable = errors.New("the planner's answer cannot be read")

// Labels of makeway_scheduler_plan_request_duration_seconds.
const (
	planAnswered     = "answered"
	planNoResponders = "no_responders"
	planTimeout      = "timeout"
	planDisconnected = "disconnected"
	planMalformed    = "malformed"
)

// Unaskable reports whether a planner could not read a question, which is most probably due to the pod in it.
func Unaskable(refusal *wire.Refusal) bool {
	return refusal != nil && (refusal.Reason == "MalformedPod" || refusal.Reason == "MalformedRequest")
}

// Client asks planners. Safe for concurrent use.
type Client struct {
	Bus interface {
		Request(ctx context.Context, subject string, data []byte) ([]byte, error)
	}
	Subjects wire.Subjects
	Tracer   tracing.Tracer
	Pods     *Breaker      // round questions about pods
	Groups   *Breaker      // round questions about pod groups: plans for large ones that come too late keep no pod from being planned for
	Commits  *Breaker      // round commits: what a planner answers is worth no nomination while its orders are not stored
	History  *History      // of pods that needed plans
	Seen     *Seen         // how far the scheduler has come
	Least    time.Duration // that a cycle waits
	Late     *Late         // answers that came after their cycles
}

// Exchange sends a question and waits for its answer, at most as long as the question says. It may wait longer than its context says,
// and is called where nothing waits for it.
type Exchange func(context.Context) (*wire.PlanReply, error)

// Plan returns what sends a question, about a pod or a pod group, and waits for its answer; an error where nothing is sent. Failures count
// towards its breaker; an answer closes it.
func (c *Client) Plan(request *wire.PlanRequest) (Exchange, error) {
	subject, breaker := c.Subjects.Plan(), c.Pods
	if request.Group != nil {
		subject, breaker = c.Subjects.PlanGroup(), c.Groups
	}
	data, err := wire.Encode(request)
	if err != nil {
		return nil, err
	}
	if len(data) > wire.MaxBytes {
		return nil, fmt.Errorf("%w: the plan request takes %d bytes, NATS carries at most %d", ErrTooLarge, len(data), wire.MaxBytes)
	}
	if !breaker.Allow() {
		return nil, ErrBreakerOpen
	}
	return func(ctx context.Context) (*wire.PlanReply, error) {
		start, asked := time.Now(), breaker.clock.Now()
		ctx, cancel := context.WithTimeout(ctx, time.Duration(request.TimeoutMilliseconds)*time.Millisecond)
		defer cancel()
		ctx, span := c.Tracer.Begin(ctx, "request", "request_id", request.RequestID)
		raw, err := c.Bus.Request(ctx, subject, data)
		reply, result, err := replyTo(request, raw, err)
		span.End(err, "result", result)
		requestDuration.WithLabelValues(result).Observe(time.Since(start).Seconds())
		switch {
		case err == nil:
			breaker.Succeeded()
			breaker.Took(time.Since(start))
			return reply, nil
		case result == planTimeout:
			breaker.Silent(asked)
		default:
			breaker.failed()
		}
		klog.FromContext(ctx).Info("plan_request_failed", "request_id", request.RequestID, "reason", err.Error())
		return nil, err
	}, nil
}

// replyTo checks what a request has brought, an answer or an error; result is the metric's label.
func replyTo(request *wire.PlanRequest, raw []byte, err error) (reply *wire.PlanReply, result string, _ error) {
	switch {
	case errors.Is(err, natsbus.ErrNoResponders):
		return nil, planNoResponders, errors.New("no planner answers")
	case errors.Is(err, natsbus.ErrNotSent):
		return nil, planDisconnected, err
	case err != nil:
		return nil, planTimeout, fmt.Errorf("no answer within %s: %w", time.Duration(request.TimeoutMilliseconds)*time.Millisecond, err)
	}
	reply, err = wire.DecodeVersioned[wire.PlanReply](raw)
	if err != nil {
		var malformed *wire.MalformedError
		if errors.As(err, &malformed) && malformed.Reason != wire.ReasonUnknownVersion {
			err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		return nil, planMalformed, err
	}
	if reply.RequestID != request.RequestID {
		return nil, planMalformed, fmt.Errorf("an answer to %q", reply.RequestID)
	}
	return reply, planAnswered, nil
}

// requestDuration is in the scheduler's own registry.
var requestDuration = telemetry.HistogramVec("makeway_scheduler_plan_request_duration_seconds",
	"How long a plan request took by result: answered, no_responders, timeout, disconnected, malformed.", telemetry.Latency(), "result")
