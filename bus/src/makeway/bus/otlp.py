"""Spans by OpenTelemetry's SDK, sent by OTLP over HTTP. Imported where a process traces; see `tracing`."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Span, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from makeway.bus import metrics
from makeway.bus.tracing import TRACEPARENT, OpenSpan, Tracer

MOST_WAITING: Final = 2048
"""Spans that wait to be sent; further ones are dropped."""

CLOSE_SECONDS: Final = 2.0
"""How long the last spans are waited for when a process ends."""

_PLAIN: Final = re.compile(r"[^\s\x00-\x1f?#]+")
"""A path follows the endpoint, so no query may; no host and no path has blanks."""

_PROPAGATOR: Final = TraceContextTextMapPropagator()


class OtlpSpan(OpenSpan):
    """A span that is ended by hand."""

    def __init__(self, opened: Span) -> None:
        self._span = opened

    def current(self) -> AbstractContextManager[object]:
        """Return a block in which it is the current span."""
        return trace.use_span(self._span)

    def end(self, failed: str = "", /, **about: object) -> None:
        """End it, and say how."""
        if self._span.is_recording():
            _tell(self._span, failed, about)
            self._span.end()


class OtlpTracer(Tracer):
    """The spans of a process. Sampling, headers and TLS: as OpenTelemetry's environment variables say."""

    def __init__(self, endpoint: str, *, service: str, instance: str) -> None:
        _check(endpoint)
        # Retries are many where the collector is away; what it does not take after them is an error.
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        sending = _CountingExporter(f"{endpoint.rstrip('/')}/v1/traces")
        resource = Resource.create({"service.name": service, "service.instance.id": instance})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(_Bounded(sending))
        self._tracer = self._provider.get_tracer("makeway")

    def span(
        self, name: str, parent: str | None, about: Mapping[str, object]
    ) -> AbstractContextManager[object]:
        """Return a block that is a span; as `tracing.span`."""
        context = None if parent is None else _PROPAGATOR.extract({TRACEPARENT: parent}, Context())
        return self._tracer.start_as_current_span(name, context, attributes=_attributes(about))

    def begin(self, name: str, about: Mapping[str, object]) -> OtlpSpan:
        """Begin a trace."""
        return OtlpSpan(self._tracer.start_span(name, Context(), attributes=_attributes(about)))

    def tell(self, failed: str, about: Mapping[str, object]) -> None:
        """Say more about the current span."""
        _tell(trace.get_current_span(), failed, about)

    def traceparent(self) -> str:
        """Return the current span as a header's value; empty where there is none."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier.get(TRACEPARENT, "")

    def close(self) -> None:
        """Send what waits, for `CLOSE_SECONDS` at the most."""
        closing = threading.Thread(target=self._provider.shutdown, name="traces-close", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


class _CountingExporter(OTLPSpanExporter):
    """An exporter that knows how many spans wait for it, and counts what becomes of them."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self._lock = threading.Lock()
        self._waiting = 0

    def admits(self) -> bool:
        """Report whether one more span may wait; it does then."""
        with self._lock:
            if self._waiting >= MOST_WAITING:
                return False
            self._waiting += 1
            return True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans. Called by the thread of the batches alone."""
        with self._lock:
            self._waiting -= len(spans)
        result = super().export(spans)
        metrics.SPANS.labels("exported" if result is SpanExportResult.SUCCESS else "failed").inc(len(spans))
        return result


class _Bounded(BatchSpanProcessor):
    """Batches of spans, of which too many are dropped and counted."""

    def __init__(self, sending: _CountingExporter) -> None:
        super().__init__(sending, max_queue_size=MOST_WAITING)
        self._sending = sending

    def on_end(self, span: ReadableSpan) -> None:
        """Have a span that has ended sent, and do not wait for it."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._sending.admits():
            super().on_end(span)
        else:
            metrics.SPANS.labels("dropped").inc()


def _check(endpoint: str) -> None:
    """Raise ValueError where spans could never be sent to an endpoint, or where it holds a password."""
    if "@" in endpoint:
        raise ValueError(
            "--otlp-endpoint: a URL without a user and a password, which are taken from the header that "
            "OTEL_EXPORTER_OTLP_HEADERS names"
        )
    try:
        url = urlsplit(endpoint)
        sendable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # brackets without an address, a port that is none
        sendable = False
    if not sendable or not _PLAIN.fullmatch(endpoint):
        raise ValueError(f"--otlp-endpoint {endpoint}: not a URL such as http://collector:4318")


def _tell(span: Span, failed: str, about: Mapping[str, object]) -> None:
    span.set_attributes(_attributes(about))
    if failed:
        span.set_status(StatusCode.ERROR, failed)


def _attributes(about: Mapping[str, object]) -> dict[str, str | int | float]:
    return {
        f"makeway.{name}": value if isinstance(value, int | float) else str(value)
        for name, value in about.items()
        if value not in (None, "")
    }
