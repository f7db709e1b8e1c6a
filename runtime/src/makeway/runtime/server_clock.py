"""How far a process's clock is from the API server's, by the Date header of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn, Protocol

import structlog
from prometheus_client import Gauge

from makeway.runtime.kube import ApiError, ApiUnavailable

SKEW: Final = timedelta(seconds=10)
"""How far a clock may be from the API server's: `notAfter` lies a minute ahead, and others read it."""

IMPAIRS: Final = timedelta(seconds=2)
"""How far off the clock of a process that leads may be where another could lead."""

READ_SECONDS: Final = 10.0
AGAIN_SECONDS: Final = 2.0
"""Between two readings, and after one by which it is off: it may come from a server that was stopped."""

_log = structlog.get_logger()


class ServerClock(Protocol):
    """What is used of `makeway.runtime.kube.Api`."""

    async def server_time(self) -> datetime:
        """Return the server's time, cut off to the second; raises ApiError, ApiUnavailable."""


async def read_ahead(api: ServerClock, now: Callable[[], datetime]) -> timedelta:
    """Return how far a clock is ahead of the API server's, as `ahead_of`.

    Raises:
        ApiError, ApiUnavailable: the server does not say.
    """
    before = now()
    server = await api.server_time()
    return ahead_of(server, before, now())


def ahead_of(server: datetime, before: datetime, after: datetime) -> timedelta:
    """Return how far a clock is ahead of the server's at the least; negative: behind; 0 where they may agree.

    The server said its time, cut to the second, somewhere between `before` and `after`. Pure.
    """
    if before > server + timedelta(seconds=1):
        return before - server - timedelta(seconds=1)
    return min(after - server, timedelta(0))


def told(ahead: timedelta) -> str:
    """Return how far a clock is off, for a person: it `is … the API server's`."""
    word = "ahead of" if ahead > timedelta(0) else "behind"
    return f"{abs(ahead).total_seconds():.0f} s {word} the API server's"


class HeldClock:
    """The clock of a process that leads, held to the API server's.

    `ahead`: how far it is ahead by the last reading; negative: behind. `component`: what the process is.
    `gauge`: shows how far it is ahead, in seconds.
    """

    def __init__(
        self,
        api: ServerClock,
        component: str,
        gauge: Gauge,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.ahead = timedelta(0)
        self._api = api
        self._component = component
        self._gauge = gauge
        self._now = now

    def unfit(self) -> str:
        """Return why no order of this process would be carried out as it is meant; empty where one would."""
        return self._off_by_more_than(SKEW)

    def impaired(self) -> str:
        """Return why another whose clock is right would lead better; empty where this one is."""
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
        self._gauge.set(ahead.total_seconds())
        if (trouble := self.impaired()) and not before:
            _log.error("clock_off", reason=trouble)
        elif before and not trouble:
            _log.warning("clock_agrees")

    def _off_by_more_than(self, most: timedelta) -> str:
        return f"this {self._component}'s clock is {told(self.ahead)}" if abs(self.ahead) > most else ""
