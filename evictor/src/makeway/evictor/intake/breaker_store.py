"""Keeping the breaker in ConfigMap `makeway-breaker`: for a restart, for other evictors, and for people.

An evictor may read and patch that one object, and make none; the chart does. Where it is missing, each
process keeps its breaker to itself.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Final, NoReturn

import msgspec
import structlog

from makeway.core.k8s.objects import ConfigMap
from makeway.core.policy.breaker import CONFIGMAP, data_of, parse_breaker
from makeway.evictor.limits.breaker import Breaker
from makeway.runtime.kube import MERGE_PATCH, ApiError, ApiUnavailable, TypedApis

POLL_SECONDS: Final = 2.0
"""Between two reads: how long after another evictor's this one's breaker opens, and after a reset closes."""

_READ_SECONDS: Final = 5.0

_log = structlog.get_logger()


class BreakerStore:
    """One process's."""

    def __init__(self, api: TypedApis, breaker: Breaker, *, namespace: str) -> None:
        self._api = api
        self._breaker = breaker
        self._namespace = namespace
        self._trouble = ""
        self.known = asyncio.Event()
        """Set when it was read once, or is known to be missing."""

    def unsynced(self) -> str:
        """Return why it is not known what the breaker is open for; empty where it is."""
        return "" if self.known.is_set() else self._trouble or f"ConfigMap {CONFIGMAP} has not been read yet"

    async def keep_forever(self) -> NoReturn:
        """Read and write until the process ends."""
        while True:
            await self.sync()
            await asyncio.sleep(POLL_SECONDS)

    async def sync(self) -> None:
        """Tell what has opened, then go by what is there."""
        core = self._api.core
        try:
            if new := self._breaker.unstored():
                data = {key: value for trip in new for key, value in data_of(trip).items()}
                await self._call(core.patch_namespaced_config_map, {"data": data}, _content_type=MERGE_PATCH)
            found = msgspec.json.decode(await self._call(core.read_namespaced_config_map), type=ConfigMap)
        except ApiError as error:
            self._failed(str(error))
            if error.status == HTTPStatus.NOT_FOUND:
                self.known.set()
        except (ApiUnavailable, msgspec.DecodeError) as error:
            self._failed(str(error))
        else:
            self._trouble = ""
            self._breaker.take(*parse_breaker(found.data or {}, self._breaker.now()))
            self.known.set()

    async def _call(self, operation: Any, *body: object, **options: object) -> bytes:
        where = CONFIGMAP, self._namespace
        return await self._api.call(operation, *where, *body, timeout_seconds=_READ_SECONDS, **options)

    def _failed(self, error: str) -> None:
        if not self._trouble:
            _log.warning("breaker_not_kept", error=error)
        self._trouble = f"ConfigMap {CONFIGMAP}, which keeps the breaker, cannot be used: {error}"
