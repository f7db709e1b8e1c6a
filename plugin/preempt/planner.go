package preempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// errBreakerOpen says that the planner is not asked for a while.
var errBreakerOpen = errors.New("the planner has not answered lately and is not asked for a while")

// errTooLarge says that the planner cannot be asked about a pod, which says nothing of the planner.
var errTooLarge = errors.New("the pod, with the orders in flight, is too large to be asked about")

// errUnreadable says that the planner's answer is not understood, though it is of this version.
var errUnreadable = errors.New("the planner's answer cannot be read")

// Labels of makeway_scheduler_plan_request_duration_seconds.
const (
	planAnswered     = "answered"
	planNoResponders = "no_responders"
	planTimeout      = "timeout"
	planDisconnected = "disconnected"
	planMalformed    = "malformed"
)

// unaskableReasons are those of a planner that cannot read a question, which is most probably due to the pod in it.
var unaskableReasons = []string{"MalformedPod", "MalformedRequest"}

// question is what a cycle asks the planner: so many candidates for a pod among some nodes, under a mode.
type question struct {
	pod        *v1.Pod
	mode       string
	nodes      potential
	candidates int
	refused    []string // pods to leave out
	full       bool     // set the columns aside
}

// same reports whether the question is another one over again. O(names of nodes).
func (q question) same(other question) bool {
	return q.pod == other.pod && q.mode == other.mode && q.candidates == other.candidates && q.full == other.full && slices.Equal(q.refused, other.refused) && q.nodes.equal(other.nodes)
}

// plan asks for so many candidates, without the nodes that failed; the result says why there is none.
func (a *attempt) plan(ctx context.Context, candidates int) (*wire.PlanReply, *preemptResult) {
	ended := func(end preemptResult) (*wire.PlanReply, *preemptResult) { return nil, &end }
	reply, err := a.answer(ctx, question{pod: a.pod, mode: a.mode, nodes: a.left(), candidates: candidates, refused: a.refused, full: a.full})
	if err != nil {
		return ended(a.unreachable(a.engine.breaker, orders.RefOf(a.pod), err))
	}
	switch {
	case reply.Status == wire.StatusNotSynced && reply.Refusal != nil && slices.Contains(unaskableReasons, reply.Refusal.Reason):
		a.engine.retry.planUnavailable(orders.RefOf(a.pod), time.Time{})
		return ended(preemptResult{kind: endUnaskable, message: "the planner cannot read the question: " + wire.Beginning(reply.Refusal.Message, maxMessageBytes)})
	case reply.Status == wire.StatusNotSynced:
		a.engine.retry.planUnavailable(orders.RefOf(a.pod), time.Time{})
		message := "the planner does not say why"
		if refusal := reply.Refusal; refusal != nil {
			message = wire.Beginning(refusal.Message, maxMessageBytes)
		}
		return ended(preemptResult{kind: endNotSynced, message: "no plan: " + message})
	case len(reply.Candidates)+len(reply.Unmodelled) == 0:
		return ended(a.refusal(ctx, reply))
	}
	return reply, nil
}

// observe asks the planner and does not wait: what it answers is recorded there, and nothing is done here.
func (a *attempt) observe() preemptResult {
	a.engine.retry.modeHeld(orders.RefOf(a.pod), a.engine.retry.now())
	q := question{pod: a.pod, mode: a.mode, nodes: a.left(), candidates: a.args.MaxCandidates, refused: a.refused, full: a.full}
	goroutines.GoRecovered(a.span.In(a.engine.life), "observe", func(ctx context.Context) { _, _ = a.query(ctx, q, false) })
	return preemptResult{kind: endObserved, message: "mode observe"}
}

// answer returns the planner's reply, to the prefetched question where it is the same, else to a new one.
func (a *attempt) answer(ctx context.Context, q question) (*wire.PlanReply, error) {
	if asked := a.prefetch; asked != nil {
		a.prefetch = nil
		if asked.same(q) {
			asked.result = prefetchUsed
			a.asked = asked.at
			return asked.await(ctx)
		}
		asked.result = prefetchChanged
	}
	a.asked = a.engine.retry.now()
	return a.query(ctx, q, false)
}

// mayAsk reports whether there is time for one more plan: one that the attempt's own end cut short would count as
// a planner's failure.
func mayAsk(ctx context.Context, planTimeout time.Duration) bool {
	deadline, _ := ctx.Deadline()
	return ctx.Err() == nil && time.Until(deadline) >= planTimeout
}

// query sends a question and waits for its answer; prefetched says that it is asked while the filters run.
func (pl *MakeWay) query(ctx context.Context, q question, prefetched bool) (*wire.PlanReply, error) {
	request, err := pl.planRequest(q.pod, q.mode, q.nodes.nodes, q.candidates, prefetched)
	if err != nil {
		return nil, err
	}
	request.RefusedVictims, request.IgnoreColumns = q.refused, q.full
	return pl.ask(ctx, request)
}

// ask sends one plan request and waits for its answer.
func (pl *MakeWay) ask(ctx context.Context, request *wire.PlanRequest) (*wire.PlanReply, error) {
	return askPlanner(ctx, pl, inquiry[wire.PlanReply]{
		subject: pl.engine.subjects.Plan, request: request, id: request.RequestID,
		timeout: pl.args.PlanTimeout.Duration, breaker: pl.engine.breaker,
		decode: wire.DecodePlanReply, idOf: func(reply *wire.PlanReply) string { return reply.RequestID },
	})
}

// inquiry is a question to the planner, with how its answer is read.
type inquiry[Reply any] struct {
	subject string
	request any
	id      string
	timeout time.Duration
	breaker *breaker
	decode  func([]byte) (*Reply, error)
	idOf    func(*Reply) string
}

// askPlanner sends a question and waits for its answer, at most its time-out. Failures count towards its breaker; an answer of
// any kind closes it.
func askPlanner[Reply any](ctx context.Context, pl *MakeWay, q inquiry[Reply]) (*Reply, error) {
	data, err := wire.Encode(q.request)
	if err != nil {
		return nil, err
	}
	if len(data) > wire.MaxBytes {
		return nil, fmt.Errorf("%w: the plan request takes %d bytes, NATS carries at most %d", errTooLarge, len(data), wire.MaxBytes)
	}
	if !q.breaker.allow() {
		return nil, errBreakerOpen
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	ctx, span := pl.engine.tracer.Begin(ctx, "request", "request_id", q.id)
	reply, result, err := exchange(ctx, pl, q, data)
	span.End(err, "result", result)
	planRequestDuration.WithLabelValues(result).Observe(time.Since(start).Seconds())
	if err != nil {
		if result == planNoResponders {
			q.breaker.unheard()
		} else {
			q.breaker.failed(time.Since(start))
		}
		pl.engine.inflight.Notify() // the breaker's metric is set there
		klog.FromContext(ctx).Info("plan_request_failed", "request_id", q.id, "reason", err.Error())
		return nil, err
	}
	if q.breaker.succeeded() {
		pl.engine.inflight.Notify() // as above
	}
	return reply, nil
}

// exchange is one request and its checked answer, with the metric's label.
func exchange[Reply any](ctx context.Context, pl *MakeWay, q inquiry[Reply], data []byte) (*Reply, string, error) {
	raw, err := pl.engine.bus.Request(ctx, q.subject, data)
	switch {
	case errors.Is(err, natsbus.ErrNoResponders):
		return nil, planNoResponders, errors.New("no planner answers")
	case errors.Is(err, natsbus.ErrNotSent):
		return nil, planDisconnected, err
	case err != nil:
		return nil, planTimeout, fmt.Errorf("no answer within %s: %w", q.timeout, err)
	}
	reply, err := q.decode(raw)
	if err != nil {
		var malformed *wire.MalformedError
		if errors.As(err, &malformed) && malformed.Reason != wire.ReasonUnknownVersion {
			err = fmt.Errorf("%w: %w", errUnreadable, err)
		}
		return nil, planMalformed, err
	}
	if id := q.idOf(reply); id != q.id {
		return nil, planMalformed, fmt.Errorf("an answer to %q", id)
	}
	return reply, planAnswered, nil
}

// unreachable ends an attempt without a plan; the pod, or the group by one of its members, is tried again, since no event of
// the cluster tells when the planner is back.
func (pl *MakeWay) unreachable(breaker *breaker, pod wire.PodRef, err error) preemptResult {
	_, probeAt := breaker.current()
	switch {
	case errors.Is(err, errTooLarge):
		pl.engine.retry.planUnavailable(pod, time.Time{})
		return preemptResult{kind: endTooLarge, message: "no plan: " + err.Error()}
	case errors.Is(err, errUnreadable):
		pl.engine.retry.planUnavailable(pod, time.Time{})
		return preemptResult{kind: endUnaskable, message: err.Error()}
	case errors.Is(err, errBreakerOpen):
		pl.engine.retry.tryAt(pod, probeAt)
	default:
		pl.engine.retry.planUnavailable(pod, probeAt)
	}
	return preemptResult{kind: endUnreachable, message: "no plan: " + err.Error()}
}
