"""Traces of preemptions, as OpenTelemetry has them: spans that go on over NATS by the header `traceparent`.

Off until `use`: nothing of OpenTelemetry is imported then, no header is written, and a span
costs a microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

TRACEPARENT: Final = "traceparent"

_WELL_FORMED: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

_NO_SPAN: Final = nullcontext()


class OpenSpan:
    """A span that is not one block of code; this one is none."""

    def current(self) -> AbstractContextManager[object]:
        """Return a block in which spans and messages are the span's children."""
        return _NO_SPAN

    def end(self, failed: str = "", /, **about: object) -> None:
        """End the span, and say how, as `tell`. What is said after its end is ignored."""


class Tracer:
    """What makes spans; this one makes none."""

    def span(
        self, name: str, parent: str | None, about: Mapping[str, object]
    ) -> AbstractContextManager[object]:
        """Return a block that is a span."""
        return _NO_SPAN

    def begin(self, name: str, about: Mapping[str, object]) -> OpenSpan:
        """Begin a trace."""
        return OpenSpan()

    def tell(self, failed: str, about: Mapping[str, object]) -> None:
        """Say more about the current span."""

    def traceparent(self) -> str:
        """Return the current span as a header's value; empty where there is none."""
        return ""


@dataclass
class _Process:
    """What makes this process's spans."""

    tracer: Tracer = field(default_factory=Tracer)


_process: Final = _Process()


def use(tracer: Tracer) -> None:
    """Have a tracer make this process's spans from here on."""
    _process.tracer = tracer


def span(name: str, parent: str | None = None, /, **about: object) -> AbstractContextManager[object]:
    """Return a block that is a span: a child of the current one, or, with `parent`, of that `traceparent`.

    An empty `parent` begins a trace. An exception that leaves the block is an error of the span. `about`: its
    attributes, by the names that the log has.
    """
    return _process.tracer.span(name, parent, about)


def begin(name: str, /, **about: object) -> OpenSpan:
    """Begin a trace with a span that `OpenSpan.end` ends."""
    return _process.tracer.begin(name, about)


def tell(failed: str = "", /, **about: object) -> None:
    """Say more about the current span; `failed`: why it is an error, empty where it is none."""
    _process.tracer.tell(failed, about)


def headers() -> dict[str, str]:
    """Return the headers of a message that is sent for the current span; none where there is none."""
    traceparent = _process.tracer.traceparent()
    return {TRACEPARENT: traceparent} if traceparent else {}


def traceparent_of(message_headers: Mapping[str, str] | None) -> str:
    """Return a message's `traceparent`; empty where it has none, or none that is well formed."""
    value = message_headers.get(TRACEPARENT, "") if message_headers else ""
    return value if _WELL_FORMED.fullmatch(value) else ""
