"""Units that keep growing while orders take them: after some refusals their late pods are left alone. Pure.

A pod that joins a unit after its order was written refuses the order, and the next one has that pod. A tenant
that adds pods faster than orders come would so keep every preemptor waiting. kube-scheduler takes the pods
that it saw when it decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from makeway.core.recent import Recent

REFUSALS: Final = 2
"""So many orders are refused for late pods of one unit."""

REMEMBERED: Final = timedelta(minutes=5)
"""How long after the last such refusal it is known that the unit grows."""

MOST_UNITS: Final = 1000
"""Of so many units, those refused last."""


class LateMembers:
    """One evictor's; after a restart, and by another one, orders are refused again."""

    def __init__(self) -> None:
        self._refused = Recent[str, tuple[int, datetime]](MOST_UNITS)

    def refused(self, unit: str, now: datetime) -> None:
        """Note that an order was refused for late pods of a unit."""
        self._refused[unit] = self._count(unit, now) + 1, now

    def growing(self, units: Iterable[str], now: datetime) -> frozenset[str]:
        """Return those of `units` whose late pods keep no order any more."""
        return frozenset(unit for unit in units if self._count(unit, now) >= REFUSALS)

    def _count(self, unit: str, now: datetime) -> int:
        count, last = self._refused.get(unit, (0, now))
        return count if now - last <= REMEMBERED else 0
