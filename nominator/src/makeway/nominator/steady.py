"""The time as if nothing had set this machine's clock by less than a minute.

By it planners tell how long a question has waited, and how long it counts. Ids are looked for by their times,
so it follows a clock that is set by more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

FAR_OFF: Final = timedelta(minutes=1)
"""By so much the clock has to be set."""


class SteadyTime:
    """One process's. `wall`: the machine's clock, UTC. `passed`: seconds that nothing sets."""

    def __init__(
        self,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        passed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._passed = passed
        self._began = wall() - timedelta(seconds=passed())

    def now(self) -> datetime:
        """Return the time, UTC."""
        wall, passed = self._wall(), timedelta(seconds=self._passed())
        if abs(self._began + passed - wall) > FAR_OFF:
            self._began = wall - passed
        return self._began + passed


steady_now: Final = SteadyTime().now
