"""The task that works off a backlog, with a turn for everything else after each piece."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from makeway.planner.backlog import Backlog


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
