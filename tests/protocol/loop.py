"""Virtual time and processes that live in it: one thread, no wall clock, no order that depends on addresses.

The services' own coroutines run here. A process may be killed or stopped wherever it waits; what it had sent
by then is on its way all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)

CURRENT: ContextVar[Process | None] = ContextVar("CURRENT", default=None)
"""The process whose code runs."""


class StuckError(Exception):
    """Nothing can happen any more, and the simulation has not ended."""


class _Selector:
    """Waits by moving the time on."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise StuckError
        if timeout > 0:
            self._loop.virtual = self._loop.next_due()
        return []

    def close(self) -> None:
        pass


class _Task(asyncio.Task[Any]):
    """Sets of tasks have an order that does not depend on where they lie in memory."""

    count = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _Task.count += 1
        self._number = _Task.count
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose time is a number."""

    def __init__(self) -> None:
        super().__init__()
        self.virtual = 0.0
        self._selector = _Selector(self)
        self._clock_resolution = 1e-9
        _Task.count = 0
        self.set_task_factory(_create_task)
        self.set_exception_handler(self._failed)
        self.failures: list[BaseException | str] = []

    def time(self) -> float:
        return self.virtual

    def next_due(self) -> float:
        """When the next timer is due."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return max(self.virtual, timers[0].when()) if timers else self.virtual

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _failed(self, _: Any, context: dict[str, Any]) -> None:
        self.failures.append(context.get("exception") or str(context.get("message")))


def _create_task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, *, context: Context | None = None, **named: Any
) -> asyncio.Task[Any]:
    task = _Task(coroutine, loop=loop, context=context, **named)
    process = (context.get(CURRENT) if context is not None else CURRENT.get()) or None
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(process.forget)
    return task


class Process:
    """One process: its tasks, its clock, and whether it runs. `number`: counts its starts."""

    def __init__(self, loop: VirtualLoop, name: str, number: int, offset: float) -> None:
        self.loop = loop
        self.name = name
        self.identity = f"{name}_{number}"
        self.offset = offset
        self.alive = True
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._thawed: asyncio.Event | None = None
        self._context = copy_context()
        self._context.run(CURRENT.set, self)

    def now(self) -> datetime:
        """What its clock shows."""
        return START + timedelta(seconds=round(self.loop.virtual + self.offset, 6))

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
        await self.run_on()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a task of this process."""
        task = self.loop.create_task(coroutine, context=self._context.copy())
        task.add_done_callback(self._ended)
        return task

    def call(self, act: Callable[..., None], *args: Any) -> None:
        """Call a function as this process, where it lives; after it runs again where it is stopped."""
        if not self.alive:
            return
        if self.stopped:
            self.spawn(self._later(act, args))
        else:
            self._context.copy().run(act, *args)

    async def _later(self, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        await self.run_on()
        act(*args)

    @property
    def stopped(self) -> bool:
        """Whether it is stopped, and may go on."""
        return self._thawed is not None

    def stop(self, seconds: float) -> None:
        """Stop it for a while, as SIGSTOP does."""
        if self.alive and self._thawed is None:
            self._thawed = asyncio.Event()
            self.loop.call_later(seconds, self.go_on)

    def go_on(self) -> None:
        """Let it run again."""
        if self._thawed is not None:
            self._thawed.set()
            self._thawed = None

    async def run_on(self) -> None:
        """Pass a point at which the process may be stopped or dead."""
        while self._thawed is not None:
            await self._thawed.wait()
        if not self.alive:
            raise asyncio.CancelledError

    def kill(self) -> None:
        """End it at once: what its tasks still do reaches nobody."""
        self.alive = False
        self.go_on()
        for task in tuple(self.tasks):
            task.cancel()

    def forget(self, task: asyncio.Task[Any]) -> None:
        """Drop a task that has ended."""
        self.tasks.pop(task, None)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and self.alive:
            self.loop.failures.append(error)


def close(loop: VirtualLoop) -> None:
    """End what still runs."""
    for _ in range(5):
        tasks = sorted(asyncio.all_tasks(loop), key=hash)
        if not tasks:
            break
        for task in tasks:
            task.cancel()
        with contextlib.suppress(StuckError):
            loop.run_until_complete(asyncio.wait(tasks, timeout=30))
    loop.close()
