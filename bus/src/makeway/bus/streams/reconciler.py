"""Keeping the streams there, or watching over them: now and then, and after every reconnection.

A server may lose its store, and an administrator may change or delete a stream. `makeway streams --keep`
makes it again and brings it back; everyone else may only look, and complains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from makeway.bus.errors import BusError
from makeway.bus.nats.connection import Connection

_INTERVAL_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 1.0

_log = structlog.get_logger()


class StreamReconciler:
    """Calls `ensure` every `seconds` and when it may be needed; its errors are logged and tried again."""

    def __init__(
        self,
        connection: Connection,
        ensure: Callable[[], Awaitable[None]],
        seconds: float = _INTERVAL_SECONDS,
        *,
        at_once: bool = False,
    ) -> None:
        self._connection = connection
        self._ensure = ensure
        self._seconds = seconds
        self._wake = asyncio.Event()
        if at_once:
            self._wake.set()
        self._task = asyncio.create_task(self._keep(), name="keep-streams")
        connection.add_listener(self._wake.set)

    def close(self) -> None:
        """Call it no more."""
        self._connection.remove_listener(self._wake.set)
        self._task.cancel()

    async def _keep(self) -> None:
        wait = self._seconds
        while True:
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self._ensure()
            except BusError as error:
                _log.warning("streams_not_ensured", error=str(error))
                wait = _RETRY_SECONDS
            else:
                wait = self._seconds
