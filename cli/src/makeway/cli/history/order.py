"""Messages in the order of their causes: a decision, the order that carries it out, how that ended. Pure.

By their writers' times; where clocks differ, or a message comes late, a cause still precedes its effect.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from makeway.bus.comparison import Comparison
from makeway.bus.messages import DecisionRecord, EvictionOrder, Outcome

HOLD: Final = timedelta(seconds=0.25)
"""How long a message is held back for causes that come later."""

_REMEMBERED: Final = 10_000

T = TypeVar("T")


@dataclass(frozen=True)
class _Held(Generic[T]):
    """key: what causes name it by. cause: the key of what must precede it; empty for none."""

    item: T
    at: datetime
    came: datetime
    rank: int
    key: str
    cause: str


@dataclass
class Causes(Generic[T]):
    """Holds items back and gives them in order. O(held log held) for each that is due."""

    _held: list[_Held[T]] = field(default_factory=list)
    _times: OrderedDict[str, datetime] = field(default_factory=OrderedDict)

    def __bool__(self) -> bool:
        """Report whether anything is held."""
        return bool(self._held)

    def add(self, item: T, at: datetime, content: Any, now: datetime) -> None:
        """Hold an item. at: when it was written. content: the message by which its cause is known."""
        rank, key, cause = _place(content)
        self._held.append(_Held(item, at, now, rank, key, cause))

    def due(self, now: datetime) -> list[T]:
        """Return what was held long enough, in order, as long as nothing that precedes it was not."""
        if not any(now - one.came >= HOLD for one in self._held):
            return []
        found = self._sorted()
        until = next((n for n, one in enumerate(found) if now - one.came < HOLD), len(found))
        # What is written by a clock that is behind holds up the others once.
        late = max((n + 1 for n, one in enumerate(found) if now - one.came >= 2 * HOLD), default=0)
        until = max(until, late)
        self._held = found[until:]
        return [one.item for one in found[:until]]

    def rest(self) -> list[T]:
        """Return all that is held, in order."""
        found, self._held = self._sorted(), []
        return [one.item for one in found]

    def _sorted(self) -> list[_Held[T]]:
        """Sort by time and rank, each no earlier than its cause, whose time is known or remembered."""
        placed: list[tuple[datetime, int, int]] = []
        for number, one in sorted(enumerate(self._held), key=lambda pair: pair[1].rank):
            at = max(one.at, self._times.get(one.cause, one.at))
            if one.key:
                self._times[one.key] = at
                self._times.move_to_end(one.key)
            placed.append((at, one.rank, number))
        while len(self._times) > _REMEMBERED:
            self._times.popitem(last=False)
        return [self._held[number] for _, _, number in sorted(placed)]


def _place(content: Any) -> tuple[int, str, str]:
    """Return rank, key and the cause's key of a message."""
    match content:
        case DecisionRecord() | Comparison():
            return 0, content.decision_id, ""
        case EvictionOrder():
            return 1, content.order_id, content.decision_id
        case Outcome():
            return 2, "", content.order_id
        case _:
            return 3, "", ""
