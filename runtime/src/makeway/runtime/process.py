"""A service's life: who it is, what runs in it, and how it ends.

A service is a handful of coroutines that are meant to run for ever. When one of them ends, whether
by an error or by returning, the process has lost a part of itself and exits with 1, to be
restarted whole: a process that goes on half alive is the failure that is not seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import os
import re
import secrets
import signal
import socket
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import structlog

from makeway.bus.component_status import Component, ComponentStatus
from makeway.bus.control import ControlState
from makeway.bus.messages import API_VERSION

EXIT_OK = 0
EXIT_FAILURE = 1

T = TypeVar("T")

_log = structlog.get_logger()


def identity() -> str:
    """A name for this process that no other has: `<host>_<pid>_<random>`.

    It is fit for a subject token and a CloudEvents source: what is not a letter or digit of the host
    name becomes `-`.
    """
    host = re.sub(r"[^A-Za-z0-9]", "-", socket.gethostname()) or "localhost"
    return f"{host}_{os.getpid()}_{secrets.token_hex(4)}"


@functools.cache
def version() -> str:
    """The version of this distribution."""
    return importlib.metadata.version("makeway")


def component_status(
    component: Component, identity: str, cluster_uid: str, control: ControlState | None = None, **own: Any
) -> ComponentStatus:
    """Return how a component of this version is.

    `control`: the control state that it follows, where it does. `own`: its other fields.
    """
    told: dict[str, Any] = {}
    if control is not None:
        told = {"revision": control.revision, "queues_revision": control.queues_revision}
    return ComponentStatus(
        api_version=API_VERSION,
        component=component,
        identity=identity,
        version=version(),
        at=datetime.now(UTC),
        cluster_uid=cluster_uid,
        **told,
        **own,
    )


async def until_set(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, for so long at the most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def run_until_signalled(
    *parts: Coroutine[Any, Any, object], expected: tuple[type[Exception], ...] = ()
) -> int:
    """Run the parts of a service side by side until SIGTERM or SIGINT, and return its exit code.

    On a signal every part is cancelled and awaited, so that each can finish what it holds in its
    `finally`; the code is 0. When a part ends by itself, the others are cancelled too and the code
    is 1; the reason is logged. A second signal during the shutdown ends the process at once, as the
    handlers are taken off after the first.

    `expected` are errors that are understood, such as a lost connection: logged without a traceback.
    """
    stop = asyncio.Event()
    tasks = [asyncio.create_task(part, name=getattr(part, "__qualname__", "part")) for part in parts]
    stopped = asyncio.create_task(stop.wait(), name="signal")
    with _signals_set(stop):
        try:
            done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*tasks, stopped):
                task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    ended = [task for task in tasks if task in done]
    if not ended and stopped in done:
        late = [r for r in results if isinstance(r, Exception)]
        for error in late:
            _log.error("shutdown_failed", error=str(error), error_type=type(error).__name__, exc_info=error)
        return EXIT_FAILURE if late else EXIT_OK
    for task in ended:
        _log_end(task, expected)
    return EXIT_FAILURE


async def unless_signalled(part: Coroutine[Any, Any, T]) -> T:
    """Return what `part`, a step of the start that may wait for long, returns.

    Without a handler the first process of a container gets no SIGTERM at all.

    Raises:
        SystemExit: with 0, on SIGTERM or SIGINT; the part was cancelled and has ended.
    """
    stop = asyncio.Event()
    task = asyncio.create_task(part)
    stopped = asyncio.create_task(stop.wait(), name="signal")
    with _signals_set(stop):
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            task.cancel()
            await asyncio.wait({task})
    if task.cancelled():
        raise SystemExit(EXIT_OK)
    return task.result()


def _log_end(task: asyncio.Task[object], expected: tuple[type[Exception], ...]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is None:
        _log.error("part_ended", part=task.get_name(), reason="it returned; it is meant to run for ever")
        return
    _log.error(
        "part_ended",
        part=task.get_name(),
        reason=str(error) or type(error).__name__,
        error_type=type(error).__name__,
        exc_info=None if isinstance(error, expected) else error,
    )


@contextlib.contextmanager
def _signals_set(event: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    wanted = (signal.SIGTERM, signal.SIGINT)

    def on_signal(received: signal.Signals) -> None:
        _log.info("stopping", signal=received.name)
        event.set()

    for number in wanted:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in wanted:
            loop.remove_signal_handler(number)
