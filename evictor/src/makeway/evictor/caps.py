"""Keeping to the policy's caps: what is over a rate waits in line, without a slot, until its time is over.

The line goes by the order's place, as that for slots does. One that waits for a cap of the whole cluster lets
none of a lower priority pass, so that an important order is not kept waiting by many small ones. Of its own
priority, smaller ones pass: else one tenant's large order would hold up everyone else's.

Each evictor counts what it evicts when it decides to, and what the others' outcomes tell. So the caps hold
for all evictors together, but for what those have under way whose outcomes are not written.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import structlog

from makeway.bus.messages import EvictionOrder, Outcome
from makeway.core.policy.rates import Rates
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.rates import Evictions, OverCap, victims_of

MOST_WAITING: Final = 400
"""Orders that wait for a rate in one evictor. Those in hand are 500: some are left for what need not wait."""

MOST_AWAITING: Final = 250
"""Orders that wait for other orders in one evictor; each asks the stream every two seconds."""

MARGIN: Final = timedelta(seconds=1)
"""So long before its `not_after` an order stops waiting, so that its outcome is there in time."""

QUOTA_WAITS: Final = timedelta(seconds=5)
"""How long a victim of a quota may have to wait for a cap to be kept in line."""

POLL_SECONDS: Final = 1.0
"""The longest wait between two looks."""

_SHORT_LINE: Final = 20
_INSTANT: Final = timedelta(microseconds=1)
_SERVE_EVERY: Final = timedelta(seconds=0.2)

_log = structlog.get_logger()


class Waiting(Protocol):
    """The clock of an order that waits, and holds no slot meanwhile."""

    def now(self) -> datetime:
        """The time, UTC."""

    async def idle(self, seconds: float, until: asyncio.Event) -> None:
        """Wait, at most until the event is set."""


@dataclass(eq=False)
class Reservation:
    """Victims that an order may evict, by namespace, and since when; the others are taken back."""

    party: str
    victims: Mapping[str, int]
    place: tuple[bool, int, int] = (False, 0, 0)
    over: OverCap | None = None
    at: datetime | None = None
    waited: bool = False
    allowed: asyncio.Event = field(default_factory=asyncio.Event)


class Caps:
    """One evictor's. `rates`: those in force now; `identity`: of this evictor, in outcomes."""

    def __init__(self, rates: Callable[[], Rates], identity: str, metrics: EvictorMetrics) -> None:
        self._rates = rates
        self._identity = identity
        self._metrics = metrics
        self._evictions = Evictions()
        self._line: list[Reservation] = []
        self._awaiting = 0
        self._served = datetime.min.replace(tzinfo=UTC)

    async def reserve(
        self,
        order: EvictionOrder,
        victims: Mapping[str, int],
        clock: Waiting,
        place: tuple[bool, int, int],
        go_on: Callable[[], None],
    ) -> Reservation | OverCap:
        """Wait until an order may evict these victims; return what stands in the way where its time ends.

        Victims of a quota that the caps let go later than in a moment do not wait: the planner orders them
        again when they may, and tells of the wait. `go_on` is called before each look, and raises where the
        order has been stopped.
        """
        wanted = Reservation(party_of(order), victims, place)
        if not victims:
            return wanted
        insort(self._line, wanted, key=lambda one: one.place)
        try:
            while True:
                go_on()
                self._serve(clock.now())
                if wanted.at is not None:
                    return wanted
                if wanted.over is not None and not wanted.waited:
                    wanted.waited = True
                    self._metrics.over_caps.labels(wanted.over.cap, "waited").inc()
                    _log.warning("order_over_cap", cap=wanted.over.cap, message=wanted.over.message)
                ends = order.not_after - MARGIN
                if wanted.over is not None and (
                    clock.now() >= ends
                    or len(self._line) > MOST_WAITING
                    or (order.kind == "quota" and not self._may_go_soon(wanted, clock.now()))
                ):
                    self._metrics.over_caps.labels(wanted.over.cap, "refused").inc()
                    return self.with_room(wanted.over, wanted.party, victims, clock.now(), together=True)
                pause = POLL_SECONDS if wanted.over is not None else _SERVE_EVERY.total_seconds()
                await clock.idle(pause, wanted.allowed)
        except BaseException:
            self.settle([wanted], {}, clock.now())
            raise
        finally:
            if wanted in self._line:
                self._line.remove(wanted)

    def with_room(
        self, over: OverCap, party: str, victims: Mapping[str, int], now: datetime, *, together: bool
    ) -> OverCap:
        """Return when victims may go, one of them or all `together`, and the cap that holds till then.

        `over`: what stands in the way now, which is another cap where that one ends earlier.
        """
        rates, evictions = self._rates(), self._evictions
        if (room := evictions.room(rates, party, victims, now, together=together)) is None:
            return over
        first = victims if together else dict.fromkeys(list(victims)[:1], 1)
        return replace(evictions.over(rates, party, first, room.at - _INSTANT) or over, room=room)

    def _may_go_soon(self, wanted: Reservation, now: datetime) -> bool:
        """Report whether victims may go in a moment, if none go for others meanwhile."""
        room = self._evictions.room(self._rates(), wanted.party, wanted.victims, now, together=True)
        return room is not None and room.at - now <= QUOTA_WAITS

    def settle(self, reserved: Iterable[Reservation], evicted: Mapping[str, int], now: datetime) -> None:
        """Take back what an order did not evict of what it had reserved. `evicted`: by namespace."""
        left = dict(evicted)
        for one in reserved:
            if one.at is None:
                continue
            back = {}
            for namespace, count in one.victims.items():
                used = min(count, left.get(namespace, 0))
                left[namespace] = left.get(namespace, 0) - used
                back[namespace] = used - count
            if any(back.values()):
                self._evictions = self._evictions.adding(back, one.at, now, party=one.party)

    def count(self, victims: Mapping[str, int], now: datetime) -> None:
        """Count pods, by namespace, that were evicted without a reservation of this process."""
        self._evictions = self._evictions.adding(victims, now, now)

    def ended(self, outcome: Outcome, now: datetime) -> None:
        """Count what another evictor's outcome, or one of an earlier process, tells."""
        if outcome.evictor == self._identity:
            return
        for namespace, at in victims_of(outcome):
            self._evictions = self._evictions.adding({namespace: 1}, at, now)

    @contextmanager
    def awaiting(self) -> Iterator[bool]:
        """Count an order that waits for others; False where too many do."""
        self._awaiting += 1
        try:
            yield self._awaiting <= MOST_AWAITING
        finally:
            self._awaiting -= 1

    def describe(self, now: datetime) -> str:
        """Return how much of the caps is used, for a person."""
        evictions, rates = self._evictions, self._rates()
        said = (
            f"{evictions.minute.total(now)} of {rates.minute} victims in the last minute, "
            f"{evictions.ten_minutes.total(now)} of {rates.ten_minutes} in ten minutes"
        )
        return f"{said}; orders that wait: {len(self._line)}" if self._line else said

    def _show(self, now: datetime) -> None:
        evictions, rates = self._evictions, self._rates()
        self._metrics.recent.labels("minute").set(evictions.minute.total(now))
        self._metrics.recent.labels("ten-minutes").set(evictions.ten_minutes.total(now))
        self._metrics.allowed.labels("minute").set(rates.minute)
        self._metrics.allowed.labels("ten-minutes").set(rates.ten_minutes)
        self._metrics.held.set(len(self._line))

    def _serve(self, now: datetime) -> None:
        """Allow what the rates allow, in the order of the line. O(orders that wait), five times a second."""
        if len(self._line) > _SHORT_LINE and now - self._served < _SERVE_EVERY:
            return
        self._served = now
        self._show(now)
        rates = self._rates()
        first: Reservation | None = None  # the first that waits for a cap of the whole cluster
        least = 0  # so many victims wait for one, and so do more
        for one in tuple(self._line):
            count = sum(one.victims.values())
            if first is not None and (one.place[1] > first.place[1] or count >= least):
                one.over = first.over
                continue
            one.over = self._evictions.over(rates, one.party, one.victims, now)
            if one.over is None:
                self._line.remove(one)
                one.at = now
                self._evictions = self._evictions.adding(one.victims, now, now, party=one.party)
                one.allowed.set()
            elif one.over.everywhere:
                first, least = first or one, count


def party_of(order: EvictionOrder) -> str:
    """Return whom an order evicts for, as people read it."""
    preemptor = order.room_for
    return f"queue {order.queue}" if preemptor is None else f"namespace {preemptor.namespace}"
