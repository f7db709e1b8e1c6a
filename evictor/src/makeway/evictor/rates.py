"""How many pods may be evicted in a while: sliding windows, and what is over which cap. Pure.

The caps bound what orders can do that pass every other check, be they forged, or planned by a defect. A
window counts in buckets, so that it takes the same memory however much is counted; a bucket counts until all
of it is past, so that no more than the cap goes in any span of that length.

A *party* is whom the evictions are for: a preemptor's namespace, or a queue. From four fifths of a cap for
the whole cluster on, only parties go on that have used less than a fifth of it themselves, so that one
tenant does not use up what the others need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from makeway.bus.messages import Outcome
from makeway.core.policy.document import PolicyLimits

MINUTE: Final = timedelta(minutes=1)
TEN_MINUTES: Final = timedelta(minutes=10)

LEAST_SHARE: Final = 100
"""So many pods may always be evicted in ten minutes, however few there are: as many as an order may name."""

Cap = Literal["victims-per-minute", "victims-per-namespace", "victims-share"]
"""What is exceeded: the reason of a refusal, and a metric's label."""

_BUCKETS: Final = 60
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class SlidingWindow:
    """What was counted in the last `span`: (bucket, count), oldest first, at most 61 of them."""

    span: timedelta
    buckets: tuple[tuple[int, int], ...] = ()

    def adding(self, count: int, at: datetime, now: datetime) -> SlidingWindow:
        """Return it with more counted, or less where `count` is negative. O(1), by the number of buckets."""
        number = min(self._number(at), self._number(now))
        kept = {one: there for one, there in self.buckets if self._counts(one, now)}
        if self._counts(number, now):
            kept[number] = max(0, kept.get(number, 0) + count)
        return replace(self, buckets=tuple(sorted((one, there) for one, there in kept.items() if there)))

    def total(self, now: datetime) -> int:
        """Return what counts now."""
        return sum(count for number, count in self.buckets if self._counts(number, now))

    def recent(self, span: timedelta, now: datetime) -> int:
        """Return what was counted in the last `span`, which is no longer than the window's."""
        return sum(count for number, count in self.buckets if self._over(number) - self.span + span > now)

    def _counts(self, number: int, now: datetime) -> bool:
        return self._over(number) > now

    def _over(self, number: int) -> datetime:
        return _EPOCH + (number + 1) * (self.span / _BUCKETS) + self.span

    def _number(self, at: datetime) -> int:
        return (at - _EPOCH) // (self.span / _BUCKETS)


@dataclass(frozen=True)
class Rates:
    """The caps in force. `ten_minutes`: in pods."""

    minute: int
    ten_minutes: int
    namespace: int | None = None


def rates_of(limits: PolicyLimits, pods: int) -> Rates:
    """Return the caps that a policy means for a cluster of so many pods."""
    percent = limits.victims_percent_per_ten_minutes
    share = max(LEAST_SHARE, limits.victims_per_order, pods * percent // 100)
    return Rates(
        minute=limits.victims_per_minute,
        ten_minutes=share if percent < 100 else 10 * limits.victims_per_minute,
        namespace=limits.victims_per_namespace_and_minute,
    )


@dataclass(frozen=True)
class OverCap:
    """What evictions wait for: a cap, and a sentence about it.

    `everywhere`: whether as many victims have to wait whomever they go for, and wherever they are.
    """

    cap: Cap
    message: str
    everywhere: bool = False


@dataclass(frozen=True)
class Evictions:
    """What was evicted lately. The maps hold only what counts still: no more entries than evictions."""

    minute: SlidingWindow = SlidingWindow(MINUTE)
    ten_minutes: SlidingWindow = SlidingWindow(TEN_MINUTES)
    parties: Mapping[str, SlidingWindow] = field(default_factory=dict)
    namespaces: Mapping[str, SlidingWindow] = field(default_factory=dict)

    def adding(
        self, victims: Mapping[str, int], at: datetime, now: datetime, *, party: str | None = None
    ) -> Evictions:
        """Return it with victims by namespace counted, or taken back where negative."""
        count = sum(victims.values())
        parties = {party: count} if party is not None else {}
        return Evictions(
            minute=self.minute.adding(count, at, now),
            ten_minutes=self.ten_minutes.adding(count, at, now),
            parties=_adding(self.parties, parties, TEN_MINUTES, at, now),
            namespaces=_adding(self.namespaces, victims, MINUTE, at, now),
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
            own = self.parties.get(party, _NO_PARTY).recent(window.span, now)
            kept = most // 5 if own >= most // 5 else 0
            if total + count > most - kept:
                said = f"{count} more victims than the {total} of the last {span}: the policy allows {most}"
                if total + count <= most:
                    said += f", the last fifth for others than {party}, for which {own} went"
                return OverCap(cap, said, everywhere=total + count > most)
        for namespace, more in victims.items():
            there = self.namespaces.get(namespace, _NONE)
            total = there.total(now)
            if rates.namespace is not None and total + more > rates.namespace:
                said = (
                    f"{more} more victims in namespace {namespace} than the {total} of the last minute: "
                    f"the policy allows {rates.namespace}"
                )
                return OverCap("victims-per-namespace", said)
        return None


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


_NONE: Final = SlidingWindow(MINUTE)
_NO_PARTY: Final = SlidingWindow(TEN_MINUTES)


def _adding(
    windows: Mapping[str, SlidingWindow],
    more: Mapping[str, int],
    span: timedelta,
    at: datetime,
    now: datetime,
) -> Mapping[str, SlidingWindow]:
    kept = {name: window for name, window in windows.items() if window.total(now)}
    for name, count in more.items():
        kept[name] = kept.get(name, SlidingWindow(span)).adding(count, at, now)
    return kept
