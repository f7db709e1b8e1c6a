package tracing_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"makeway.dev/makeway/plugin/tracing"
)

func eventually(t *testing.T, what string, true func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !true(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func TestWithoutAnEndpointThereAreNoSpans(t *testing.T) {
	tracer, err := tracing.New(t.Context(), tracing.Options{})
	if err != nil {
		t.Fatal(err)
	}

	ctx, span := tracer.Begin(t.Context(), "preemption", "pod", "a/b")
	span.Tell("node", "n1")
	span.End(errors.New("no"))

	if ctx != t.Context() || span.In(ctx) != ctx || tracing.Headers(ctx) != nil {
		t.Error("there is a span")
	}
}

func TestASpanReachesTheCollectorWithItsChild(t *testing.T) {
	var mu sync.Mutex
	spans := map[string]*trace.Span{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		request := &collector.ExportTraceServiceRequest{}
		if err := proto.Unmarshal(body, request); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, from := range request.ResourceSpans {
			for _, scope := range from.ScopeSpans {
				for _, span := range scope.Spans {
					spans[span.Name] = span
				}
			}
		}
	}))
	defer server.Close()
	ctx, end := context.WithCancel(context.Background())
	tracer, err := tracing.New(ctx, tracing.Options{Endpoint: server.URL + "/", Service: "makeway-scheduler"})
	if err != nil {
		t.Fatal(err)
	}

	within, span := tracer.Begin(ctx, "preemption", "pod", "a/b")
	_, child := tracer.Begin(span.In(ctx), "request")
	header := tracing.Headers(within)[tracing.Header]
	child.End(errors.New("no answer"))
	span.End(nil, "result", "refused")
	end()

	eventually(t, "the spans were not exported", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(spans) == 2
	})
	mu.Lock()
	defer mu.Unlock()
	root, request := spans["preemption"], spans["request"]
	if len(root.ParentSpanId) != 0 || string(request.ParentSpanId) != string(root.SpanId) || string(request.TraceId) != string(root.TraceId) {
		t.Errorf("%v is no child of %v", request, root)
	}
	if request.Status.Code != trace.Status_STATUS_CODE_ERROR || root.Status.GetCode() != trace.Status_STATUS_CODE_UNSET {
		t.Errorf("status %v and %v", request.Status, root.Status)
	}
	if len(header) != 1 || !regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`).MatchString(header[0]) {
		t.Errorf("traceparent %q", header)
	}
}

func TestACollectorThatDoesNotAnswerHoldsNoSpanUp(t *testing.T) {
	asked, ended, held := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-held
	}))
	defer server.Close()
	defer close(held)
	tracer, err := tracing.New(t.Context(), tracing.Options{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}

	go func() {
		for range 10_000 {
			_, span := tracer.Begin(t.Context(), "preemption")
			span.End(nil)
		}
		close(ended)
	}()

	// With room for 2,048 spans, of which a request takes 512, and ten seconds a request, spans that waited would take minutes.
	for _, reached := range []chan struct{}{asked, ended} {
		select {
		case <-reached:
		case <-time.After(30 * time.Second):
			t.Fatal("the collector is not asked, or the spans wait for it")
		}
	}
}

func TestAnEndpointIsAURLOfHTTP(t *testing.T) {
	for _, wrong := range []string{
		"collector:4318", "http://", "http://:4318", "grpc://collector:4317", "%", "http://collector:99999", "http://collector:0",
		"http://collector:port", "http://collector:4318?x=1", "http://collector/#x", "http://user:password@collector:4318",
	} {
		if tracing.Check(wrong) == nil {
			t.Errorf("%q is taken", wrong)
		}
		if _, err := tracing.New(t.Context(), tracing.Options{Endpoint: wrong}); err == nil {
			t.Errorf("spans go to %q", wrong)
		}
	}
	for _, right := range []string{"http://collector", "http://collector:/", "https://collector:4318/path/", "http://[::1]:4318"} {
		if err := tracing.Check(right); err != nil {
			t.Errorf("%q: %v", right, err)
		}
	}
}
