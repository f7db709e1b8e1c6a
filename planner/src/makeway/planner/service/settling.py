"""Working off a backlog, with a turn for everything else after each piece, and waiting until that is done."""

from __future__ import annotations

import asyncio
import time
from typing import Final, NoReturn

from makeway.planner.snapshot.pending_updates import Backlog

_LOOK_SECONDS: Final = 0.005
"""Between two looks whether all is done; a piece takes 2 to 10 ms."""


async def settle_for_ever(backlog: Backlog, *, half_the_time: bool = False) -> NoReturn:
    """Make the visits that are left, whenever there are some.

    `half_the_time`: rest after each piece as long as it took, for what plans do not wait for.
    """
    asked = asyncio.Event()
    backlog.subscribe(asked.set)
    while True:
        asked.clear()
        while backlog.unsettled:
            began = time.perf_counter()
            backlog.work()
            await asyncio.sleep(time.perf_counter() - began if half_the_time else 0)
        await asked.wait()


async def until_settled(backlog: Backlog) -> None:
    """Wait until nothing is left. Whoever cannot wait for long says so: it takes up to two seconds."""
    while backlog.unsettled:  # noqa: ASYNC110 - a question; nobody tells when its answer changes
        await asyncio.sleep(_LOOK_SECONDS)
