"""A process whose wall clock is not that of the others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from campaign.clock import skewed_clock
from integration.cluster import RunningCluster
from integration.crashing import RECOVERY_SECONDS, assert_whole
from integration.preempting import full_nodes, taker
from integration.space import Space
from makeway.dev.options import PLANNER

VICTIMS = 2


@asynccontextmanager
async def skewed(cluster: RunningCluster, name: str, seconds: int) -> AsyncIterator[None]:
    """Have a process of ours run under a wall clock that is ahead, or behind, by so much."""
    library, process = skewed_clock(cluster.owned.directory), cluster.process(name)
    if library is None:
        pytest.skip("there is no C compiler")
    usual = process.program
    offset = {"LD_PRELOAD": str(library), "MAKEWAY_CLOCK_OFFSET_MS": str(seconds * 1000)}
    await asyncio.to_thread(process.kill)
    process.program = replace(usual, environment={**usual.environment, **offset})
    await asyncio.to_thread(process.start)
    try:
        yield
    finally:
        process.program = usual
        await asyncio.to_thread(process.kill)
        await asyncio.to_thread(process.start)
        await asyncio.to_thread(process.wait_ready)


@pytest.mark.wide
async def test_orders_are_stored_though_the_clocks_of_planner_and_scheduler_differ(
    crash_cluster: RunningCluster, crash_space: Space
) -> None:
    await full_nodes(crash_space, 1, VICTIMS)

    async with skewed(crash_cluster, PLANNER, 6):
        pod = await taker(crash_space, "p", VICTIMS)
        assert await crash_space.until_bound("p", seconds=RECOVERY_SECONDS) == "n1"

    await assert_whole(crash_space, [pod], orders=1)
