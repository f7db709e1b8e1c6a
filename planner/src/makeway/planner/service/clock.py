"""A planner's clock, held to the API server's: by it orders are stored or late, and expire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn

import structlog

from makeway.planner.metrics import PlannerMetrics
from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.runtime.server_clock import SKEW, ServerClock, read_ahead, told

IMPAIRS: Final = timedelta(seconds=2)
"""How far off it may be where another planner could lead: bridges wait so long for an answer that is late."""

READ_SECONDS: Final = 10.0
AGAIN_SECONDS: Final = 2.0
"""Between two readings, and after one by which it is off: it may come from a server that was stopped."""

_log = structlog.get_logger()


class PlannerClock:
    """One planner's. `ahead`: by the last reading; negative: behind."""

    def __init__(
        self,
        api: ServerClock,
        metrics: PlannerMetrics,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.ahead = timedelta(0)
        self._api = api
        self._metrics = metrics
        self._now = now

    def unfit(self) -> str:
        """Return why no order of this planner would be carried out as it is meant; empty where one would."""
        return self._off_by_more_than(SKEW)

    def impaired(self) -> str:
        """Return why a planner whose clock is right would lead better; empty where this one's is."""
        return self._off_by_more_than(IMPAIRS)

    async def read_forever(self) -> NoReturn:
        """Read it now and then. An API server that does not answer says nothing of it."""
        while True:
            try:
                self._take(await read_ahead(self._api, self._now))
            except (ApiError, ApiUnavailable) as error:
                _log.debug("clock_not_read", error=str(error))
            await asyncio.sleep(AGAIN_SECONDS if self.impaired() else READ_SECONDS)

    def _take(self, ahead: timedelta) -> None:
        before, self.ahead = self.impaired(), ahead
        self._metrics.clock_ahead.set(ahead.total_seconds())
        if (trouble := self.impaired()) and not before:
            _log.error("clock_off", reason=trouble)
        elif before and not trouble:
            _log.warning("clock_agrees")

    def _off_by_more_than(self, most: timedelta) -> str:
        return f"this planner's clock is {told(self.ahead)}" if abs(self.ahead) > most else ""
