"""One order in work: what is known of it so far, and whether anything more of it may begin."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NoReturn, TypeVar

from makeway.bus.messages import EvictionOrder
from makeway.core.policy.rules import PreemptorFacts
from makeway.evictor.act.cluster import Cluster
from makeway.evictor.act.events import Events
from makeway.evictor.act.holds import Holds
from makeway.evictor.act.progress import VictimProgress
from makeway.evictor.act.records import OrderRecords
from makeway.evictor.act.terms import terms_of
from makeway.evictor.judge import decide
from makeway.evictor.judge.late_members import LateMembers
from makeway.evictor.judge.verdicts import Expired, Failed, Refused, Stop
from makeway.evictor.limits.caps import Caps
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.limits.queue_guard import QueueGuard
from makeway.evictor.limits.slots import Turn
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import PermanentError, TemporaryError, reporter, retrying

CHECK_LASTS = timedelta(seconds=5)
"""How old a look at preemptor, node and fence may be when an effect begins. A process that was stopped for
longer may have lost its order: another gets it `ACK_WAIT_SECONDS` after the last word from this one, which
is at most `KEEP_SECONDS` older than the look. For marks the planner's own look counts, right before it stored
the order."""

EXTERNAL_CHECK_LASTS: Final = timedelta(seconds=1)
"""The same for a nominator's orders: the scheduler may clear the nomination, and knows of no order."""

T = TypeVar("T")


class Halt(Exception):  # noqa: N818 - control flow, not an error
    """Begin nothing more: the execution has stopped."""


@dataclass(frozen=True, kw_only=True)
class EvictorParts:
    """What all executions of one evictor share."""

    cluster: Cluster
    records: OrderRecords
    metrics: EvictorMetrics
    events: Events
    mode_guard: ModeGuard
    queue_guard: QueueGuard
    caps: Caps
    holds: Holds = field(default_factory=Holds)
    late_members: LateMembers = field(default_factory=LateMembers)


@dataclass
class StoppableClock:
    """An order's turn, whose waits end early when the execution stops, so that no retry outlives it."""

    turn: Turn
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more may begin."""
        return self.stopped.is_set()

    def now(self) -> datetime:
        """The time, UTC."""
        return self.turn.now()

    async def sleep(self, seconds: float) -> None:
        """Wait to try again."""
        await self._unless_stopped(self.turn.sleep(seconds))

    async def idle(self, seconds: float, until: asyncio.Event | None = None) -> None:
        """Wait for what others do."""
        await self._unless_stopped(self.turn.idle(seconds), *([until] if until is not None else []))

    async def _unless_stopped(self, waiting: Coroutine[None, None, None], *events: asyncio.Event) -> None:
        waits: list[Awaitable[object]] = [waiting, *(one.wait() for one in (self.stopped, *events))]
        tasks = {asyncio.ensure_future(one) for one in waits}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


class OrderWork:
    """One delivery of an order. `stop` (None: room was made) and `progress` tell how it ended."""

    def __init__(
        self,
        order: EvictionOrder,
        parts: EvictorParts,
        turn: Turn,
        *,
        stored_at: datetime,
        deliveries: int = 1,
    ) -> None:
        """`stored_at`: by the stream. `deliveries`: how often the order was given out, this time included."""
        self.order = order
        self.terms = terms_of(order)
        self.parts = parts
        self.turn = turn
        self.stored_at = stored_at
        self.deliveries = deliveries
        self.clock = StoppableClock(turn)
        self.progress = {v.uid: VictimProgress(v) for v in order.victims}
        self.preemptor = PreemptorFacts(0)
        self.stop: Stop | None = None
        self.unfinished: Stop | None = None
        """Why pods of a unit that has begun stay."""
        self.is_finishing = False
        """Whether only what is left of units that have begun still goes."""
        self.checked_at = stored_at
        """When preemptor, node and fence were looked at; the planner did before it stored the order."""

    def finish(self) -> None:
        """Let what is left of units go, though the order has stopped."""
        self.is_finishing = True
        self.clock = StoppableClock(self.turn)

    # ------------------------------------------------------------------------------------ stopping

    def may_act(self) -> None:
        """Called right before every effect, with no await in between."""
        self.may_begin()
        lasts = EXTERNAL_CHECK_LASTS if self.order.is_external else CHECK_LASTS
        if (age := self.clock.now() - self.checked_at) > lasts:
            raise TemporaryError(
                "stale", f"preemptor, node and fence were read {age.total_seconds():.0f} s ago"
            )

    def may_begin(self) -> None:
        """Called before whatever may lead to an effect."""
        if self.clock.is_stopped:
            raise Halt
        self.check_time()
        if (refused := self.parts.mode_guard.refusal_of(self.order)) is not None:
            self.halt(refused)

    def reconsider(self) -> None:
        """Called when the mode may have changed: what waits to be tried again need not wait to be told."""
        if (refused := self.parts.mode_guard.refusal_of(self.order)) is not None:
            self.stop_for(refused)

    def check_time(self, doing: str = "") -> None:
        """Stop where the order's time is over."""
        if (late := decide.expired(self.order, self.clock.now())) is not None:
            self.halt(Expired(f"{doing}: {late.message}") if doing else late)

    def stop_for(self, stop: Stop) -> None:
        """Let nothing more begin; the first reason stays."""
        if self.is_finishing:
            self.unfinished = self.unfinished or stop
        self.stop = self.stop or stop
        self.clock.stopped.set()

    def stays(self, stop: Failed | Refused) -> None:
        """Take note that a victim stays for good; where all go together the order stops."""
        if not self.is_finishing and self.terms.together:
            self.stop_for(stop)

    def halt(self, stop: Stop) -> NoReturn:
        """Stop, and leave what is being done."""
        self.stop_for(stop)
        raise Halt

    # ------------------------------------------------------------------------------------- retrying

    async def until_deadline(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read until `not_after`; what is refused, or takes longer, stops the execution."""

        async def attempt() -> T:
            async with self.turn.work():
                if self.clock.is_stopped:
                    raise Halt
                return await read()

        try:
            return await retrying(
                attempt,
                clock=self.clock,
                deadline=self.order.not_after,
                on_retry=reporter(self.parts.metrics, "read"),
            )
        except PermanentError as error:
            self.halt(Failed("read-refused", str(error)))
        except TemporaryError as error:
            self.halt(Expired(f"the API server or the bus gave no answer until notAfter: {error}"))
