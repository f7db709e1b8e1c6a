"""What a person waits for: said on stderr when it has been silent for 1.2 s, as its end may be 10 s away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import aiohttp

from makeway.cli.errors import tell
from makeway.runtime.kube import Api

SILENT_SECONDS: Final = 1.2
"""With the 0.7 s that a command takes to start, what is away is named within two seconds."""


@contextmanager
def awaited(what: str) -> Iterator[None]:
    """Say what is awaited, where the block takes so long."""
    timer = asyncio.get_running_loop().call_later(SILENT_SECONDS, tell, what)
    try:
        yield
    finally:
        timer.cancel()


class AwaitedApi(Api):
    """The API server as a command asks it: its first silence is said on stderr."""

    _told = False

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            tell(f"the API server {self.server} does not answer yet")

    @asynccontextmanager
    async def _answer(
        self, what: str, sent: Awaitable[aiohttp.ClientResponse], seconds: float | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        timer = asyncio.get_running_loop().call_later(SILENT_SECONDS, self._tell)
        try:
            async with super()._answer(what, sent, seconds) as response:
                timer.cancel()
                yield response
        finally:
            timer.cancel()
