"""Working off a backlog, with a turn for everything else after each piece, and waiting until that is done."""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

from makeway.planner.backlog import Backlog

_LOOK_SECONDS: Final = 0.005
"""Between two looks whether all is done; a piece takes 2 to 10 ms."""


async def settle_for_ever(backlog: Backlog) -> NoReturn:
    """Make the visits that are left, whenever there are some."""
    asked = asyncio.Event()
    backlog.subscribe(asked.set)
    while True:
        asked.clear()
        while backlog.unsettled:
            backlog.work()
            await asyncio.sleep(0)
        await asked.wait()


async def until_settled(backlog: Backlog) -> None:
    """Wait until nothing is left. Whoever cannot wait for long says so: it takes up to two seconds."""
    while backlog.unsettled:  # noqa: ASYNC110 - a question; nobody tells when its answer changes
        await asyncio.sleep(_LOOK_SECONDS)
