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


class _ServedAnew(Exception):  # noqa: N818 - not an error, a turn that the loop takes
    """Something else is served than before."""


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
        while True:
            served = await self._discover()
            try:
                async with asyncio.TaskGroup() as tasks:
                    for part in self._parts(served):
                        tasks.create_task(part.run())
                    tasks.create_task(self._until_other_than(served))
            except* _ServedAnew:
                _log.info("resource_served_anew", resource=self._resource)

    async def _discover(self) -> S:
        while True:
            try:
                return await self._ask()
            except (ApiError, ApiUnavailable, msgspec.DecodeError) as error:
                _log.warning("resource_undiscovered", resource=self._resource, error=str(error))
                await asyncio.sleep(RETRY_SECONDS)

    async def _until_other_than(self, served: S) -> NoReturn:
        """Wait until something else is served. Raises _ServedAnew."""
        while True:
            await asyncio.sleep(DISCOVERY_SECONDS)
            if await self._discover() != served:
                raise _ServedAnew
