"""Coroutines that run beside a test, and end with it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def background(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run these as tasks during the block, at whose end they are cancelled and have ended."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def turns(count: int, *work: Coroutine[Any, Any, Any]) -> None:
    """Let so many turns of the event loop pass, with these running for as long."""
    async with background(*work):
        for _ in range(count):
            await asyncio.sleep(0)
