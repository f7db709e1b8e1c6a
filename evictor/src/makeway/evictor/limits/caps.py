"""Keeping to the policy's caps: what is over a rate waits in line, without a slot, until its time is over.

The line goes by the order's place, as that for slots does. One that waits for a cap of the whole cluster lets
none of a lower priority pass, so that an important order is not kept waiting by many small ones. Of its own
priority, smaller ones pass: else one tenant's large order would hold up everyone else's.

Victims are counted twice: all of them, against the caps that the policy sets; and those of quotas and of
orders that the API server does not bear out, against the caps that hold where the policy sets none.

Each evictor counts what it evicts when it decides to, and what the others' outcomes tell. So the caps hold
for all evictors together, but for what those have under way whose outcomes are not written.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import structlog

from makeway.bus.messages import EvictionOrder, Outcome
from makeway.core.policy.rates import Rates
from makeway.core.text import counted
from makeway.evictor.judge.verdicts import Refused
from makeway.evictor.limits.rates import Evictions, OverCap, Room, victims_of
from makeway.evictor.metrics import EvictorMetrics

MOST_WAITING: Final = 400
"""Orders that wait for a rate in one evictor. Of those in hand some are left for what need not wait."""

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


class RatesInForce(Protocol):
    """The caps in force."""

    def __call__(self, *, verified: bool) -> Rates:
        """Return those for all orders (`verified`), or those for quotas and unverified orders."""


class Waiting(Protocol):
    """The clock of an order that waits, and holds no slot meanwhile."""

    def now(self) -> datetime:
        """The time, UTC."""

    async def idle(self, seconds: float, until: asyncio.Event) -> None:
        """Wait, at most until the event is set."""


@dataclass(eq=False)
class Reservation:
    """Victims that an order may evict, by namespace, and since when; the others are taken back.

    `verified`: the API server bears the order out, so that only caps that the policy sets hold it.
    """

    party: str
    victims: Mapping[str, int]
    verified: bool = False
    place: tuple[bool, int, int] = (False, 0, 0)
    over: OverCap | None = None
    at: datetime | None = None
    waited: bool = False
    allowed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class _First:
    """The first in line that waits for a cap of the whole cluster. `least`: so many victims wait for one."""

    priority: int
    over: OverCap
    least: int


class Caps:
    """One evictor's. `identity`: of this evictor, in outcomes."""

    def __init__(self, rates: RatesInForce, identity: str, metrics: EvictorMetrics) -> None:
        self._rates = rates
        self._identity = identity
        self._metrics = metrics
        self._all = Evictions()
        self._unverified = Evictions()
        self._line: list[Reservation] = []
        self._served = datetime.min.replace(tzinfo=UTC)

    async def reserve(
        self,
        order: EvictionOrder,
        victims: Mapping[str, int],
        clock: Waiting,
        place: tuple[bool, int, int],
        go_on: Callable[[], None],
        *,
        verified: bool = False,
        held: Callable[[OverCap], None] = lambda over: None,
    ) -> Reservation | OverCap:
        """Wait until an order may evict these victims; return what stands in the way where its time ends.

        `verified`: what the order says was read from the API server just now: who waits there for which node,
        of which priority, and that the victims run there. A quota's excess cannot be read so.

        Victims of a quota that the caps let go later than in a moment do not wait: the planner orders them
        again when they may, and tells of the wait. `go_on` is called before each look, and raises where the
        order has been stopped. `held` is called once where it has to wait.
        """
        wanted = Reservation(party_of(order), victims, verified and order.kind != "quota", place)
        ends = order.not_after - MARGIN
        if not victims:
            return wanted
        insort(self._line, wanted, key=lambda one: one.place)
        try:
            while True:
                if wanted.over is None or clock.now() < ends:  # else it ends by the name of its cap
                    go_on()
                    self._serve(clock.now())
                if wanted.at is not None:
                    return wanted
                if wanted.over is not None and not wanted.waited:
                    wanted.waited = True
                    held(self.with_room(wanted, clock.now()))
                    self._metrics.over_caps.labels(wanted.over.cap, "waited").inc()
                    _log.warning("order_over_cap", cap=wanted.over.cap, message=wanted.over.message)
                if wanted.over is not None and (
                    clock.now() >= ends
                    or len(self._line) > MOST_WAITING
                    or (order.kind == "quota" and not self._may_go_soon(wanted, clock.now()))
                ):
                    self._metrics.over_caps.labels(wanted.over.cap, "refused").inc()
                    return self.with_room(wanted, clock.now())
                pause = _SERVE_EVERY.total_seconds()
                if wanted.over is not None:
                    pause = min(POLL_SECONDS, (ends - clock.now()).total_seconds())
                await clock.idle(pause, wanted.allowed)
        except BaseException:
            self.settle([wanted], {}, clock.now())
            raise
        finally:
            if wanted in self._line:
                self._line.remove(wanted)

    def would_hold(self, order: EvictionOrder, victims: Mapping[str, int], now: datetime) -> bool:
        """Report whether an order would have to wait now, also if the API server bears it out."""
        over = self._all.over(self._rates(verified=True), party_of(order), victims, now)
        return over is not None or bool(self._line)

    def with_room(self, wanted: Reservation, now: datetime, *, together: bool = True) -> OverCap:
        """Return when victims may go, one of them or all `together`, and the cap that holds till then.

        That is another cap than the one that stands in the way now where that one ends earlier.
        """
        assert wanted.over is not None  # noqa: S101 - all callers have looked
        counts = [(self._all, self._rates(verified=True))]
        if not wanted.verified:
            counts.append((self._unverified, self._rates(verified=False)))
        party, victims = wanted.party, wanted.victims
        rooms = [held.room(rates, party, victims, now, together=together) for held, rates in counts]
        known = [room for room in rooms if room is not None]
        if len(known) < len(rooms):
            return wanted.over
        room = Room(max(room.at for room in known), min(room.victims for room in known))
        first = victims if together else dict.fromkeys(list(victims)[:1], 1)
        last = (held.over(rates, party, first, room.at - _INSTANT) for held, rates in counts)
        return replace(next((one for one in last if one is not None), wanted.over), room=room)

    def _may_go_soon(self, wanted: Reservation, now: datetime) -> bool:
        """Report whether victims may go in a moment, if none go for others meanwhile."""
        room = self.with_room(wanted, now).room
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
                self._add(back, one.at, now, party=one.party, verified=one.verified)

    def count(self, victims: Mapping[str, int], now: datetime, *, verified: bool = False) -> None:
        """Count pods, by namespace, that were evicted without a reservation of this process."""
        self._add(victims, now, now, verified=verified)

    def _add(
        self,
        victims: Mapping[str, int],
        at: datetime,
        now: datetime,
        *,
        party: str | None = None,
        verified: bool,
    ) -> None:
        self._all = self._all.adding(victims, at, now, party=party)
        if not verified:
            self._unverified = self._unverified.adding(victims, at, now, party=party)

    def ended(self, outcome: Outcome, now: datetime) -> None:
        """Count what another evictor's outcome, or one of an earlier process, tells.

        It does not say what that evictor has verified: all but quotas, with few exceptions.
        """
        if outcome.evictor == self._identity:
            return
        for namespace, at in victims_of(outcome):
            self._add({namespace: 1}, at, now, verified=outcome.kind != "quota")

    def describe(self, now: datetime) -> str:
        """Return how much of the caps is used, for a person."""
        some, every = self._rates(verified=False), self._rates(verified=True)
        minute, ten_minutes = self._all.minute.total(now), self._all.ten_minutes.total(now)
        said, scope = [], ""
        for span, used, unverified, most, of_all in (
            ("allowed in a minute", minute, self._unverified.minute, some.minute, every.minute),
            ("in ten", ten_minutes, self._unverified.ten_minutes, some.ten_minutes, every.ten_minutes),
        ):
            before, scope = scope, "" if most == of_all else "of quotas and unverified orders "
            held = unverified.total(now) if scope else used
            said.append(f"{'' if scope == before else scope or 'of all '}{held} of {most} {span}")
        waits = f"; orders that wait: {len(self._line)}" if self._line else ""
        recent = f"{counted(minute, 'victim')} in the last minute, {ten_minutes} in ten minutes"
        return f"{recent}; {', '.join(said)}{waits}"

    def show_recent(self, now: Callable[[], datetime]) -> None:
        """Have the metrics of what was evicted lately say it as of when they are read."""
        self._metrics.recent.labels("minute").set_function(lambda: self._all.minute.total(now()))
        self._metrics.recent.labels("ten-minutes").set_function(lambda: self._all.ten_minutes.total(now()))

    def _show(self) -> None:
        rates = self._rates(verified=False)
        self._metrics.allowed.labels("minute").set(rates.minute)
        self._metrics.allowed.labels("ten-minutes").set(rates.ten_minutes)
        self._metrics.held.set(len(self._line))

    def _serve(self, now: datetime) -> None:
        """Allow what the rates allow, in the order of the line. O(orders that wait), five times a second."""
        if len(self._line) > _SHORT_LINE and now - self._served < _SERVE_EVERY:
            return
        self._served = now
        self._show()
        rates = self._rates(verified=True), self._rates(verified=False)
        firsts = dict[int, _First]()
        for one in tuple(self._line):
            one.over = self._over(one, rates, firsts, now)
            if one.over is None:
                self._line.remove(one)
                one.at = now
                self._add(one.victims, now, now, party=one.party, verified=one.verified)
                one.allowed.set()

    def _over(
        self, one: Reservation, rates: tuple[Rates, Rates], firsts: dict[int, _First], now: datetime
    ) -> OverCap | None:
        """Return what one in line waits for; None for nothing. `firsts`: by what is counted."""
        count = sum(one.victims.values())
        for number, evictions in enumerate((self._all,) if one.verified else (self._all, self._unverified)):
            first = firsts.get(number)
            if first is not None and (one.place[1] > first.priority or count >= first.least):
                return first.over
            over = evictions.over(rates[number], one.party, one.victims, now)
            if over is not None and over.everywhere:
                firsts[number] = replace(first or _First(one.place[1], over, count), least=count)
            if over is not None:
                return over
        return None


def party_of(order: EvictionOrder) -> str:
    """Return whom an order evicts for, as people read it."""
    preemptor = order.room_for
    return f"queue {order.queue}" if preemptor is None else f"namespace {preemptor.namespace}"


def refused_by_cap(over: OverCap) -> Refused:
    """Return what a cap has against an order, and from when on some of its victims may be deleted."""
    if over.room is None:
        return Refused(over.cap, over.message)
    return Refused(over.cap, over.message, over.room.at, over.room.victims)
