"""Structured logs: one event a line, as JSON or as text for a terminal, on stderr.

Every line has `time` (RFC 3339, UTC), `level`, `event`, `component` and `identity`. An event is a
constant in snake_case; everything that varies is a key beside it, under the names that the
scheduler plugin uses too (`pod`, `pod_uid`, `order_id`, `request_id`, `node`, `victim_uid` ...).

Use `structlog.get_logger()` in modules, and `bound(order_id=...)` round the handling of one message,
so that every line in between, whatever task or module writes it, names the message.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import sys
from collections.abc import Iterator
from typing import Literal, TextIO, get_args

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from makeway.core.k8s.times import api_time

Format = Literal["json", "text"]
Level = Literal["debug", "info", "warning", "error"]

LEVELS: tuple[str, ...] = get_args(Level)

_NO_NEWS = "returning true from eof_received()"
"""What asyncio of Python 3.11 says at the end of a connection that began in clear and went on with TLS."""

_FIRST_KEYS = ("time", "level", "event", "component", "identity")


def configure(
    format: Format,  # noqa: A002 - named as the option is
    level: Level,
    component: str,
    identity: str,
    stream: TextIO | None = None,
) -> None:
    """Set up logging for this process. Called once, by the command, before anything is logged.

    Args:
        format: "json" for machines, "text" for a person.
        level: lines below it are dropped before they are rendered.
        component: which service this is, such as "planner".
        identity: which process of that service; see `makeway.runtime.process.identity`.
        stream: where lines go; stderr when None.
    """
    out = stream or sys.stderr
    threshold = _number(level)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        _stamp,
        _who(component, identity),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[*shared, *_renderers(format, colours=out.isatty())],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    _route_libraries(out, shared, _renderers(format, colours=out.isatty()), threshold)


@contextlib.contextmanager
def bound(**ids: object) -> Iterator[None]:
    """Add these ids to every line logged inside the block, in this task and those it starts."""
    with structlog.contextvars.bound_contextvars(**ids):
        yield


def _number(level: str) -> int:
    if level not in LEVELS:
        raise ValueError(f"log level {level!r}: use one of {', '.join(LEVELS)}")
    return logging.getLevelNamesMapping()[level.upper()]


def _renderers(format: Format, *, colours: bool) -> list[Processor]:  # noqa: A002 - as above
    if format == "json":
        return [structlog.processors.format_exc_info, _first_keys_first, _as_json]
    if format == "text":
        return [
            structlog.dev.ConsoleRenderer(
                colors=colours, timestamp_key="time", exception_formatter=structlog.dev.plain_traceback
            )
        ]
    raise ValueError(f"log format {format!r}: use json or text")


def _stamp(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["time"] = api_time(datetime.datetime.now(datetime.UTC), "microseconds")
    return event


def _who(component: str, identity: str) -> Processor:
    def add(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["component"] = component
        event["identity"] = identity
        return event

    return add


def _first_keys_first(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    ordered = {key: event[key] for key in _FIRST_KEYS if key in event}
    return {**ordered, **event}


def _as_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


def _route_libraries(out: TextIO, shared: list[Processor], last: list[Processor], threshold: int) -> None:
    """Send what libraries log with the standard module through the same pipe, warnings and worse only."""
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    handler.addFilter(lambda record: not str(record.msg).startswith(_NO_NEWS))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(threshold, logging.WARNING))
