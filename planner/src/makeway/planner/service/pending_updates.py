"""Applying pending updates, with a turn for everything else after each chunk, and waiting for the last."""

from __future__ import annotations

import asyncio
import time
from typing import Final, NoReturn

from makeway.planner.snapshot.pending_updates import PendingUpdates

_POLL_SECONDS: Final = 0.005
"""Between two checks whether all are applied; a chunk takes 2 to 10 ms."""


async def apply_forever(updates: PendingUpdates, *, half_the_time: bool = False) -> NoReturn:
    """Apply the updates that are left, whenever there are some.

    `half_the_time`: rest after each chunk as long as it took, for what plans do not wait for.
    """
    asked = asyncio.Event()
    updates.subscribe(asked.set)
    while True:
        asked.clear()
        while updates.pending:
            began = time.perf_counter()
            updates.apply_chunk()
            await asyncio.sleep(time.perf_counter() - began if half_the_time else 0)
        await asked.wait()


async def until_applied(updates: PendingUpdates) -> None:
    """Wait until nothing is left. It takes up to two seconds: a caller may set a timeout."""
    while updates.pending:  # noqa: ASYNC110 - nothing signals that the last is applied
        await asyncio.sleep(_POLL_SECONDS)
