"""Following the outcomes of all evictors: what was evicted lately counts wherever it was evicted.

So the caps hold across restarts, and for several evictors: what an earlier process, or another one, evicted
in the last ten minutes is read before the first order is taken.
"""

from __future__ import annotations

import asyncio

from makeway.bus.client import Bus
from makeway.bus.following import follow_outcomes
from makeway.bus.messages import Outcome
from makeway.bus.nats.follow import Start
from makeway.evictor.limits.caps import Caps
from makeway.evictor.limits.windows import TEN_MINUTES
from makeway.evictor.retry import Clock


class FollowingOutcomes:
    """Tells `Caps` of each outcome of this cluster."""

    def __init__(self, bus: Bus, cluster_uid: str, caps: Caps, clock: Clock) -> None:
        self._bus = bus
        self._cluster_uid = cluster_uid
        self._caps = caps
        self._clock = clock
        self.read = asyncio.Event()
        """Set when those of the last ten minutes have been read."""

    async def follow_forever(self) -> None:
        """Follow until the process ends."""
        since = Start.at_time(self._clock.now() - TEN_MINUTES)
        await follow_outcomes(self._bus, self._cluster_uid, since, take=self._take, caught_up=self.read)

    def _take(self, outcome: Outcome) -> None:
        self._caps.ended(outcome, self._clock.now())
