"""Messages in the order of their causes: a decision, the order that carries it out, how that ended. Pure.

By their writers' times; where clocks differ, or a message comes late, a cause still precedes its effect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from makeway.bus.comparison import Comparison
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.core.causes import Happened, in_order
from makeway.core.recent import Recent

HOLD: Final = timedelta(seconds=0.25)
"""How long a message is held back for causes that come later."""

_REMEMBERED: Final = 10_000

T = TypeVar("T")


@dataclass(frozen=True)
class _Held(Generic[T]):
    item: T
    came: datetime


@dataclass
class Causes(Generic[T]):
    """Holds items back and gives them in order. O(held log held) for each that is due."""

    _held: list[Happened[_Held[T]]] = field(default_factory=list)
    _times: Recent[str, float] = field(default_factory=lambda: Recent(_REMEMBERED))

    def __bool__(self) -> bool:
        """Report whether anything is held."""
        return bool(self._held)

    def add(self, item: T, at: datetime, content: Any, now: datetime) -> None:
        """Hold an item. at: when it was written. content: the message by which its cause is known."""
        key, cause = _place(content)
        self._held.append(Happened(_Held(item, now), at.timestamp(), key, (cause,) if cause else ()))

    def due(self, now: datetime) -> list[T]:
        """Return what was held long enough, in order, as long as nothing that precedes it was not."""
        if not any(now - one.item.came >= HOLD for one in self._held):
            return []
        found = self._sorted()
        until = next((n for n, one in enumerate(found) if now - one.item.came < HOLD), len(found))
        # What is written by a clock that is behind holds up the others once.
        late = max((n + 1 for n, one in enumerate(found) if now - one.item.came >= 2 * HOLD), default=0)
        until = max(until, late)
        self._held = found[until:]
        return [one.item.item for one in found[:until]]

    def rest(self) -> list[T]:
        """Return all that is held, in order."""
        found, self._held = self._sorted(), []
        return [one.item.item for one in found]

    def _sorted(self) -> list[Happened[_Held[T]]]:
        """Sort, each no earlier than its cause, whose time is known or remembered."""
        found = in_order(self._held, self._times)
        for one in found:
            if one.key:
                self._times[one.key] = one.at
        return found


def _place(content: Any) -> tuple[str, str]:
    """Return the key of a message, and its cause's."""
    match content:
        case DecisionRecord() | Comparison():
            return content.decision_id, ""
        case EvictionOrder():
            return content.order_id, content.decision_id
        case Outcome():
            return "", content.order_id
        case _:
            return "", ""
