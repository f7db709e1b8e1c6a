"""How far a process's clock is from the API server's, by the Date header of an answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Protocol

SKEW: Final = timedelta(seconds=10)
"""How far a clock may be from the API server's: `notAfter` lies a minute ahead, and others read it."""


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
