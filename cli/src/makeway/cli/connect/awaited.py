"""What a person waits for: said on stderr within two seconds of the command's start, since it may take ten.

A start takes 0.7 s of CPU, under load several seconds: as much less is then waited for the first answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Final

import aiohttp

from makeway.cli import BEGAN
from makeway.cli.errors import tell
from makeway.runtime.kube import Api

_SAID_SECONDS: Final = 1.9
"""What is away is named so long after the command began, ..."""
_LEAST_SECONDS: Final = 0.4
"""... but what answers in this time is not."""


@cache
def silent_seconds() -> float:
    """How long something may be silent before it is named; after a slow start less."""
    return max(_LEAST_SECONDS, _SAID_SECONDS - (time.monotonic() - BEGAN))


@contextmanager
def awaited(what: str) -> Iterator[None]:
    """Say what is awaited, where the block takes so long."""
    timer = asyncio.get_running_loop().call_later(silent_seconds(), tell, what)
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
        timer = asyncio.get_running_loop().call_later(silent_seconds(), self._tell)
        try:
            async with super()._answer(what, sent, seconds) as response:
                timer.cancel()
                yield response
        finally:
            timer.cancel()
