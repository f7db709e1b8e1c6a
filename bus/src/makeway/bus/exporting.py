"""Sending a process's spans, where an endpoint for them is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from makeway.bus import tracing


@contextmanager
def exporting(endpoint: str, *, service: str, instance: str) -> Iterator[None]:
    """Send this process's spans to `endpoint` within the block; nothing where it is empty.

    `service`, `instance`: what the process is called in traces.

    Raises:
        ModuleNotFoundError: the extra `tracing` is not installed.
        ValueError: the endpoint is no URL of http or https.
    """
    if not endpoint:
        yield
        return
    from makeway.bus.otlp import OtlpTracer  # noqa: PLC0415 - an extra, which only a process that traces has

    tracer = OtlpTracer(endpoint, service=service, instance=instance)
    tracing.use(tracer)
    try:
        yield
    finally:
        tracing.use(tracing.Tracer())
        tracer.close()
