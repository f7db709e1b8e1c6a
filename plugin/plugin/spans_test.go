package plugin

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/tracing"
	"makeway.dev/makeway/plugin/wire"
)

// traced has a world's spans recorded.
func traced(w *world) *tracetest.SpanRecorder {
	recorder := tracetest.NewSpanRecorder()
	tracer := tracing.Of(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	w.plugin.engine.planner.Tracer = tracer
	return recorder
}

// ended is the span of a name that has ended, nil where none has.
func ended(recorder *tracetest.SpanRecorder, name string) sdktrace.ReadOnlySpan {
	for _, span := range recorder.Ended() {
		if span.Name() == name {
			return span
		}
	}
	return nil
}

func said(span sdktrace.ReadOnlySpan, key string) string {
	for _, one := range span.Attributes() {
		if string(one.Key) == "makeway."+key {
			return one.Value.AsString()
		}
	}
	return ""
}

func TestThePreemptionsSpanEndsWithTheOutcome(t *testing.T) {
	for result, want := range map[string]struct {
		result string
		code   codes.Code
	}{
		wire.ResultSucceeded: {"succeeded", codes.Unset},
		wire.ResultFailed:    {"failed", codes.Error},
	} {
		t.Run(result, func(t *testing.T) {
			w, p, _ := simple(t, setup{}, nil)
			recorder := traced(w)

			w.cycle(p)
			w.show(p, "n1")
			order := w.order(1)
			if ended(recorder, "preemption") != nil {
				t.Fatal("it has ended before the outcome")
			}
			w.end(order, result)

			w.eventually("the span ends", func() bool { return ended(recorder, "preemption") != nil })
			root := ended(recorder, "preemption")
			if said(root, "result") != want.result || root.Status().Code != want.code || said(root, "order_id") != order.OrderID || said(root, "preemptor_uid") != string(p.UID) {
				t.Errorf("%v %v", root.Status(), root.Attributes())
			}
			for _, name := range []string{"request", "commit"} {
				if child := ended(recorder, name); child == nil || child.Parent().SpanID() != root.SpanContext().SpanID() {
					t.Errorf("%s is no child of it", name)
				}
			}
		})
	}
}

func TestAPreemptionWithoutAnOrderEndsItsSpanAtOnce(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.bus.plan = nil
	recorder := traced(w)

	w.cycle(p)

	root, request := ended(recorder, "preemption"), ended(recorder, "request")
	if root == nil || said(root, "result") != string(endUnreachable) || request.Status().Code != codes.Error {
		t.Errorf("%v, %v", root, request)
	}
}

func TestAPodThatIsNotPlannedForHasNoSpan(t *testing.T) {
	w, p, _ := simple(t, setup{args: func(a *MakeWayArgs) { a.Mode = wire.ModeOff }}, nil)
	recorder := traced(w)

	w.cycle(p)

	if len(recorder.Started()) != 0 {
		t.Errorf("%d spans", len(recorder.Started()))
	}
}

func TestAPrefetchedQuestionIsAskedWithinThePreemptionsSpan(t *testing.T) {
	w, p := expecting(t, setup{}, nil)
	recorder := traced(w)

	state := w.begin(p)
	w.eventually("the planner is asked", func() bool { return ended(recorder, "request") != nil })
	w.plugin.PostFilter(w.ctx, state, p, rejecting())
	w.show(p, "n1")
	w.end(w.order(1), wire.ResultSucceeded)
	w.eventually("the span ends", func() bool { return ended(recorder, "preemption") != nil })

	if root, request := ended(recorder, "preemption"), ended(recorder, "request"); request.Parent().SpanID() != root.SpanContext().SpanID() {
		t.Error("the request is no child of it")
	}
}

func TestAPrefetchThatIsNotNeededEndsItsSpan(t *testing.T) {
	w, p := expecting(t, setup{}, nil)
	recorder := traced(w)

	state := w.begin(p)
	w.plugin.Reserve(w.ctx, state, on(p, "n1"), "n1")

	if root := ended(recorder, "preemption"); root == nil || said(root, "result") != ask.PrefetchUnneeded {
		t.Errorf("%v", root)
	}
}

func TestTheTraceIsThatOfTheCallersContext(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	recorder := traced(w)
	headers := map[string]string{}
	w.bus.sent = func(ctx context.Context, what string) {
		if found := tracing.Headers(ctx)[tracing.Header]; len(found) == 1 {
			headers[what] = found[0]
		}
	}

	w.cycle(p)
	w.show(p, "n1")
	w.order(1)

	w.eventually("it is committed", func() bool { return ended(recorder, "commit") != nil })
	for what, name := range map[string]string{"request": "request", "commit": "commit"} {
		context := ended(recorder, name).SpanContext()
		if want := "00-" + context.TraceID().String() + "-" + context.SpanID().String() + "-01"; headers[what] != want {
			t.Errorf("%s was sent with %q, want %q", what, headers[what], want)
		}
	}
}

func TestTheAttemptThatUsesALateAnswerGoesOnWithTheSpanOfTheOneThatAsked(t *testing.T) {
	w, p, answer := lateWorld(t, nil)
	recorder := traced(w)
	w.isLate(p)
	w.isLate(p)
	close(answer)
	w.eventually("it is tried again", func() bool { return w.activator.of(p.UID) == 1 })

	w.nominated(p, "n1")
	w.show(p, "n1")
	w.end(w.order(1), wire.ResultSucceeded)

	w.eventually("the span ends", func() bool { return ended(recorder, "preemption") != nil })
	root, request := ended(recorder, "preemption"), ended(recorder, "request")
	if said(root, "result") != "succeeded" || request.Parent().SpanID() != root.SpanContext().SpanID() {
		t.Errorf("%v, %v", root.Attributes(), request)
	}
}

func TestTheSpanOfAnAttemptWhoseLateAnswerIsNotUsedEnds(t *testing.T) {
	w, p, answer := lateWorld(t, nil)
	defer close(answer)
	recorder := traced(w)
	w.isLate(p)

	w.plugin.engine.planner.Late.Forget(p.UID)

	if root := ended(recorder, "preemption"); root == nil || said(root, "result") != "late" {
		t.Errorf("%v", root)
	}
}
