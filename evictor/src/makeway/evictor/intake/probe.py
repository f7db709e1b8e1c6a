"""Whether the API server can be used at this moment, is the same cluster still, and has the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn

from makeway.evictor.retry import Clock
from makeway.runtime.connections import OtherClusterError
from makeway.runtime.kube import Api, ApiError, ApiUnavailable
from makeway.runtime.server_clock import read_ahead

INTERVAL_SECONDS = 10.0
"""Between two probes; one cheap read each."""

AGAIN_SECONDS = 1.0
"""The same while there is no answer: no order is taken meanwhile."""


class ApiProbe:
    """Reads the cluster's UID and the server's clock now and then.

    `clock_read` is told how far it is off, and reports whether that is near enough.
    """

    def __init__(
        self,
        api: Api,
        cluster_uid: str,
        clock: Clock,
        clock_read: Callable[[timedelta], bool],
    ) -> None:
        self._api = api
        self._clock = clock
        self._clock_read = clock_read
        self._cluster_uid = cluster_uid
        self._trouble = ""
        self.usable = asyncio.Event()
        """Set unless the last probe had no answer, or the clocks differed: then others take the orders."""
        self.usable.set()

    def unhealthy(self) -> str:
        """What went wrong with the last probe; empty where nothing did."""
        return self._trouble

    async def probe_forever(self) -> NoReturn:
        """Probe until the process ends.

        Raises:
            OtherClusterError: the process has to start afresh.
        """
        while True:
            again = INTERVAL_SECONDS
            try:
                uid = await self._api.cluster_uid()
                agrees = self._clock_read(await read_ahead(self._api, self._clock.now))
            except ApiUnavailable as error:
                self._trouble, again = str(error), AGAIN_SECONDS
                self.usable.clear()
            except ApiError as error:
                self._trouble = str(error)
            else:
                self._trouble = ""
                if uid != self._cluster_uid:
                    raise OtherClusterError(
                        f"{self._api.server} is cluster {uid}, it was {self._cluster_uid}"
                    )
                if agrees:
                    self.usable.set()
                else:
                    self.usable.clear()
            await asyncio.sleep(again)
