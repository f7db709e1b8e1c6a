"""Counting what happened lately, by key: for caps on evictions and for the breaker. Pure.

A window counts in buckets, so that it takes the same memory however much is counted; a bucket counts until
all of it is past, so that no more than a cap happens in any span of that length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

MINUTE: Final = timedelta(minutes=1)
TEN_MINUTES: Final = timedelta(minutes=10)

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

    def ends(self, span: timedelta) -> Iterator[datetime]:
        """Return when each bucket is out of the last `span`, which is no longer than the window's."""
        return (self._over(number) - self.span + span for number, _ in self.buckets)

    def _counts(self, number: int, now: datetime) -> bool:
        return self._over(number) > now

    def _over(self, number: int) -> datetime:
        return _EPOCH + (number + 1) * (self.span / _BUCKETS) + self.span

    def _number(self, at: datetime) -> int:
        return (at - _EPOCH) // (self.span / _BUCKETS)


@dataclass(frozen=True)
class Windows:
    """Windows of one span, by what is counted; only those in which something counts still."""

    span: timedelta
    by_key: Mapping[str, SlidingWindow] = field(default_factory=dict)

    def of(self, key: str) -> SlidingWindow:
        """Return the window of a key."""
        return self.by_key.get(key) or SlidingWindow(self.span)

    def adding(self, more: Mapping[str, int], at: datetime, now: datetime) -> Windows:
        """Return them with more counted, or less where it is negative. O(keys)."""
        kept = self.counting(now).by_key
        return replace(
            self, by_key={**kept, **{key: self.of(key).adding(count, at, now) for key, count in more.items()}}
        )

    def counting(self, now: datetime) -> Windows:
        """Return those in which something counts now. O(keys)."""
        kept = {key: window for key, window in self.by_key.items() if window.total(now)}
        return replace(self, by_key=kept)

    def without(self, key: str) -> Windows:
        """Return them with nothing counted of a key."""
        return replace(self, by_key={one: window for one, window in self.by_key.items() if one != key})
