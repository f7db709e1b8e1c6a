"""Whether the API server can be used at this moment, and whether it still is the same cluster."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from makeway.runtime.connections import OtherClusterError
from makeway.runtime.kube import Api, ApiError, ApiUnavailable

INTERVAL_SECONDS = 10.0
"""Between two probes; one cheap read each."""


class ApiProbe:
    """Reads the cluster's UID now and then."""

    def __init__(self, api: Api, cluster_uid: str) -> None:
        self._api = api
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
            await asyncio.sleep(INTERVAL_SECONDS)
            try:
                uid = await self._api.cluster_uid()
            except (ApiError, ApiUnavailable) as error:
                self._trouble = str(error)
                continue
            self._trouble = ""
            if uid != self._cluster_uid:
                raise OtherClusterError(f"{self._api.server} is cluster {uid}, it was {self._cluster_uid}")
