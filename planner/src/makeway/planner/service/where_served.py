"""Following resources of an API that clusters may not have, as long as discovery says that it is served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Generic, NoReturn, TypeVar

import msgspec
import structlog

from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.runtime.listwatch import ListWatch

_log = structlog.get_logger()

DISCOVERY_SECONDS: Final = 300.0
"""How often it is asked what is served: an upgrade or an installation may bring it, and it may go."""

RETRY_SECONDS: Final = 5.0
"""How long to wait where discovery does not answer."""

S = TypeVar("S")


class WhereServed(Generic[S]):
    """Follows what is served, for ever. `resource`: as logs name it.

    `discover` asks what is served; raises ApiError, ApiUnavailable or msgspec.DecodeError. `parts`: the
    list-watches of what is.
    """

    def __init__(
        self,
        resource: str,
        discover: Callable[[], Awaitable[S]],
        parts: Callable[[S], Iterable[ListWatch[Any]]],
    ) -> None:
        self._resource = resource
        self._ask = discover
        self._parts = parts

    async def run(self) -> NoReturn:
        """Follow it."""
        served = await self._discover()
        while True:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(part.run()) for part in self._parts(served)]
                before = served
                while served == before:
                    await asyncio.sleep(DISCOVERY_SECONDS)
                    served = await self._discover()
                for task in running:
                    task.cancel()
            _log.info("resource_served_anew", resource=self._resource)

    async def _discover(self) -> S:
        while True:
            try:
                return await self._ask()
            except (ApiError, ApiUnavailable, msgspec.DecodeError) as error:
                _log.warning("resource_undiscovered", resource=self._resource, error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
