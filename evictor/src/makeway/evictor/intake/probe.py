"""Whether the API server can be used at this moment, is the same cluster still, and has the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NoReturn

from makeway.evictor.retry import Clock
from makeway.runtime.connections import OtherClusterError
from makeway.runtime.kube import Api, ApiError, ApiUnavailable

INTERVAL_SECONDS = 10.0
"""Between two probes; one cheap read each."""


class ApiProbe:
    """Reads the cluster's UID and the server's clock now and then; `clock_read` is told how far it is off."""

    def __init__(
        self,
        api: Api,
        cluster_uid: str,
        clock: Clock,
        clock_read: Callable[[timedelta], None],
    ) -> None:
        self._api = api
        self._clock = clock
        self._clock_read = clock_read
        self._cluster_uid = cluster_uid
        self._trouble = ""

    def unhealthy(self) -> str:
        """What went wrong with the last probe; empty where nothing did."""
        return self._trouble

    async def probe_forever(self) -> NoReturn:
        """Probe until the process ends.

        Raises:
            OtherClusterError: the process has to start afresh.
        """
        while True:
            try:
                uid = await self._api.cluster_uid()
                await self._read_clock()
            except (ApiError, ApiUnavailable) as error:
                self._trouble = str(error)
            else:
                self._trouble = ""
                if uid != self._cluster_uid:
                    raise OtherClusterError(
                        f"{self._api.server} is cluster {uid}, it was {self._cluster_uid}"
                    )
            await asyncio.sleep(INTERVAL_SECONDS)

    async def _read_clock(self) -> None:
        before = self._clock.now()
        at = await self._api.server_time()
        self._clock_read(ahead_of(at, before, self._clock.now()))


def ahead_of(server: datetime, before: datetime, after: datetime) -> timedelta:
    """Return how far a clock is ahead of the server's at the least; negative: behind; 0 where they may agree.

    The server said its time, cut to the second, somewhere between `before` and `after`. Pure.
    """
    if before > server + timedelta(seconds=1):
        return before - server - timedelta(seconds=1)
    return min(after - server, timedelta(0))
