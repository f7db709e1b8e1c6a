"""Keeping the streams there: made again where NATS came back without them, brought back where they drift.

A server may lose its store, and a user may delete a stream. The processes that write into streams
see to them at their start, after every reconnection, and once a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from makeway.bus.connection import Connection
from makeway.bus.errors import BusError

_INTERVAL_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 1.0

_log = structlog.get_logger()


class StreamReconciler:
    """Calls `ensure` when it may be needed, until it is closed; its errors are logged and tried again."""

    def __init__(self, connection: Connection, ensure: Callable[[], Awaitable[None]]) -> None:
        self._connection = connection
        self._ensure = ensure
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._keep(), name="keep-streams")
        connection.add_listener(self._wake.set)

    def close(self) -> None:
        """Call it no more."""
        self._connection.remove_listener(self._wake.set)
        self._task.cancel()

    async def _keep(self) -> None:
        wait = _INTERVAL_SECONDS
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
                wait = _INTERVAL_SECONDS
