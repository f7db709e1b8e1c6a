// Package tracing has the spans of a preemption, as OpenTelemetry has them. They go on over NATS by the header
// traceparent. Without an endpoint there are none, and no goroutine. Ending a span never waits: spans are sent in
// batches by a goroutine, of a queue that is bounded. A trace decides nothing.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Header is the name of the header that a message carries its span in, as W3C Trace Context has it.
const Header = "traceparent"

// mostWaiting is how many spans wait to be sent; further ones are dropped.
const mostWaiting = 2048

// closeTimeout is how long the last spans are waited for when the context of New ends.
const closeTimeout = 2 * time.Second

// Options are where spans go, and by whom.
type Options struct {
	Endpoint string // a URL such as http://collector:4318; empty: there are no spans
	Service  string // what the process is called
	Instance string // which one it is
}

// Tracer begins spans. The zero value begins none.
type Tracer struct{ tracer trace.Tracer }

// Check reports what is wrong with an endpoint.
func Check(endpoint string) error {
	parsed, err := url.Parse(endpoint)
	if strings.Contains(endpoint, "@") {
		return errors.New("a URL without a user and a password, which are taken from the header that OTEL_EXPORTER_OTLP_HEADERS names")
	}
	if err != nil || parsed.Hostname() == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") ||
		!portIsOne(parsed.Port()) || strings.ContainsAny(endpoint, "?#") {
		return errors.New("a URL such as http://collector:4318; schemes http, https")
	}
	return nil
}

// portIsOne reports whether a URL's port is one, or none is named.
func portIsOne(port string) bool {
	number, err := strconv.ParseUint(port, 10, 16)
	return port == "" || (err == nil && number > 0)
}

// New returns what begins spans, until the context ends. Sampling, headers and TLS are as OpenTelemetry's environment
// variables say.
func New(ctx context.Context, options Options) (Tracer, error) {
	if options.Endpoint == "" {
		return Tracer{}, nil
	}
	if err := Check(options.Endpoint); err != nil {
		return Tracer{}, fmt.Errorf("tracing: %q: %w", options.Endpoint, err)
	}
	to, err := url.JoinPath(options.Endpoint, "v1/traces")
	if err != nil {
		return Tracer{}, fmt.Errorf("tracing: %w", err)
	}
	sender, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to))
	if err != nil {
		return Tracer{}, fmt.Errorf("tracing: %w", err)
	}
	from, err := resource.New(ctx, resource.WithFromEnv(), resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", options.Service), attribute.String("service.instance.id", options.Instance)))
	if err != nil {
		return Tracer{}, fmt.Errorf("tracing: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(from), sdktrace.WithBatcher(sender, sdktrace.WithMaxQueueSize(mostWaiting)))
	context.AfterFunc(ctx, func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = provider.Shutdown(closing) // what is lost is lost: the process ends
	})
	return Of(provider), nil
}

// Of returns what begins spans of a provider.
func Of(provider trace.TracerProvider) Tracer { return Tracer{provider.Tracer("makeway.dev/makeway")} }

// Begin begins a span: a child of the context's, or else a trace. about are its attributes, by the names that the log
// has, each followed by its value.
func (t Tracer) Begin(ctx context.Context, name string, about ...any) (context.Context, Span) {
	if t.tracer == nil {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, name)
	begun := Span{span}
	begun.Tell(about...)
	return ctx, begun
}

// Span is a part of a preemption. The zero value is none, of which everything may be said. It may be used by several
// goroutines; what is said after its end is ignored.
type Span struct{ span trace.Span }

// In returns a context in which spans and messages are the span's children.
func (s Span) In(ctx context.Context) context.Context {
	if s.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}

// Tell says more about the span, as Begin.
func (s Span) Tell(about ...any) {
	if s.span == nil {
		return
	}
	for i := 0; i+1 < len(about); i += 2 {
		s.span.SetAttributes(attribute.String("makeway."+fmt.Sprint(about[i]), fmt.Sprint(about[i+1])))
	}
}

// End ends the span, with an error where there was one. about: as Begin.
func (s Span) End(err error, about ...any) {
	if s.span == nil {
		return
	}
	s.Tell(about...)
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

// Headers are those of a message that is sent for the context's span; nil where there is none.
func Headers(ctx context.Context) map[string][]string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return map[string][]string{Header: {carrier[Header]}}
}
