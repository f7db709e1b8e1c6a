"""How many pods may be evicted in a while: what is over which cap. Pure.

The caps bound what orders can do that pass every other check, be they forged, or planned by a defect. By
default they hold quotas, and orders that the API server does not bear out; others are counted.

A *party* is whom the evictions are for: a preemptor's namespace, or a queue. From four fifths of a cap for
the whole cluster on, only parties go on that have used less than a fifth of it themselves, so that one
tenant does not use up what the others need.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Literal

from makeway.bus.messages import Outcome
from makeway.core.policy.rates import Rates
from makeway.evictor.limits.windows import MINUTE, TEN_MINUTES, SlidingWindow, Windows

Cap = Literal["victims-per-minute", "victims-per-namespace", "victims-share"]
"""What is exceeded: the reason of a refusal, and a metric's label."""


@dataclass(frozen=True)
class OverCap:
    """What evictions wait for: a cap, and a sentence about it.

    `everywhere`: whether as many victims have to wait whomever they go for, and wherever they are; no more
    than may go at all, for which nothing waits. `room`: what the caps will allow.
    """

    cap: Cap
    message: str
    everywhere: bool = False
    room: Room | None = None


@dataclass(frozen=True)
class Room:
    """When the next victims may go for a party, if none go meanwhile, and how many may then."""

    at: datetime
    victims: int


@dataclass(frozen=True)
class Evictions:
    """What was evicted lately. The maps hold only what counts still: no more entries than evictions."""

    minute: SlidingWindow = field(default_factory=partial(SlidingWindow, MINUTE))
    ten_minutes: SlidingWindow = field(default_factory=partial(SlidingWindow, TEN_MINUTES))
    parties: Windows = field(default_factory=partial(Windows, TEN_MINUTES))
    namespaces: Windows = field(default_factory=partial(Windows, MINUTE))

    def adding(
        self, victims: Mapping[str, int], at: datetime, now: datetime, *, party: str | None = None
    ) -> Evictions:
        """Return it with victims by namespace counted, or taken back where negative."""
        count = sum(victims.values())
        parties = {party: count} if party is not None else {}
        return Evictions(
            minute=self.minute.adding(count, at, now),
            ten_minutes=self.ten_minutes.adding(count, at, now),
            parties=self.parties.adding(parties, at, now),
            namespaces=self.namespaces.adding(victims, at, now),
        )

    def over(self, rates: Rates, party: str, victims: Mapping[str, int], now: datetime) -> OverCap | None:
        """Return what keeps these victims from being evicted now; None where nothing does."""
        count = sum(victims.values())
        caps: tuple[tuple[Cap, SlidingWindow, int, str], ...] = (
            ("victims-per-minute", self.minute, rates.minute, "minute"),
            ("victims-share", self.ten_minutes, rates.ten_minutes, "ten minutes"),
        )
        for cap, window, most, span in caps:
            total = window.total(now)
            own = self.parties.of(party).recent(window.span, now)
            kept = most // 5 if own >= most // 5 else 0
            if total + count > most - kept:
                said = f"{count} more victims than the {total} of the last {span}: the policy allows {most}"
                if total + count <= most:
                    said += f", the last fifth for others than {party}, for which {own} went"
                return OverCap(cap, said, everywhere=count <= most < total + count)
        for namespace, more in victims.items():
            there = self.namespaces.of(namespace)
            total = there.total(now)
            if rates.namespace is not None and total + more > rates.namespace:
                said = (
                    f"{more} more victims in namespace {namespace} than the {total} of the last minute: "
                    f"the policy allows {rates.namespace}"
                )
                return OverCap("victims-per-namespace", said)
        return None

    def room(
        self, rates: Rates, party: str, victims: Mapping[str, int], now: datetime, *, together: bool = False
    ) -> Room | None:
        """Return when one of these victims may go, or all `together`, and how many may then; None for never.

        What counts only gets less with time, so it is searched for by halves among the moments at which a
        bucket is over. O(log buckets · buckets).
        """
        moments = [now, *sorted({at for at in self._ends(party, victims, now) if at > now})]
        wanted = [victims] if together else [{namespace: 1} for namespace in victims]

        def allowed(at: datetime) -> bool:
            return any(self.over(rates, party, one, at) is None for one in wanted)

        place = bisect_left(moments, True, key=allowed)
        if place == len(moments):
            return None
        at = moments[place]
        most = sum(victims.values())
        fits = bisect_right(range(1, most + 1), False, key=lambda n: self._over_total(rates, party, n, at))
        return Room(at, max(1, fits))

    def _over_total(self, rates: Rates, party: str, count: int, now: datetime) -> bool:
        return self.over(replace(rates, namespace=None), party, {"": count}, now) is not None

    def _ends(self, party: str, namespaces: Iterable[str], now: datetime) -> Iterator[datetime]:
        """Return the moments at which something counts no more for a party."""
        own = self.parties.of(party)
        yield from own.ends(MINUTE)
        for window in (
            self.minute,
            self.ten_minutes,
            own,
            *(self.namespaces.of(n) for n in namespaces),
        ):
            yield from window.ends(window.span)


def victims_of(outcome: Outcome) -> Iterable[tuple[str, datetime]]:
    """Return the namespace and the time of each victim that an ended order evicted.

    Where the order had been given out before, those that were leaving or gone count too: the evictor that
    had it first may have ended before it wrote what it did.
    """
    again = outcome.deliveries > 1
    for victim in outcome.victims:
        if victim.deleted_at is not None:
            yield victim.namespace, victim.deleted_at
        elif again and victim.result in ("terminating", "gone"):
            yield victim.namespace, outcome.finished_at
