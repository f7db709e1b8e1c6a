"""The evictors' breaker: while it is open nothing is evicted, by no fallback either; a reset ends that."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from integration.asking import run
from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.configuring import NAMESPACE
from integration.preempting import run_victims, sized, until_told
from integration.scraping import scrape
from integration.space import Space, open_space
from integration.test_outages import makes_room_again
from integration.waiting import NotYet, until
from makeway.core.policy.breaker import CONFIGMAP, Trip, data_of

WAITS_SECONDS = 10
"""Two orders that are refused at once, each with its nomination taken back, and some cycles after that."""

SERVES_AGAIN_SECONDS = 90
"""A minute at most until the next order probes, and one preemption."""


@asynccontextmanager
async def breaker_open(cluster: RunningCluster, namespace: str = "") -> AsyncIterator[None]:
    """Have the evictors' breaker open for the length of a block, and close it as an administrator does."""
    trip = Trip("wasted-victims" if namespace else "mismatches", namespace, datetime.now(UTC), "of a test")
    patch = json.dumps({"data": data_of(trip)})
    await cluster.kubectl("patch", "configmap", CONFIGMAP, "-n", NAMESPACE, "--type=merge", "-p", patch)
    scope = "namespaces" if namespace else "cluster"
    await until("the breaker is open", lambda: shows(cluster, scope, 1))
    try:
        yield
    finally:
        assert (await run(cluster, "breaker", "reset"))[0] == 0
        await until("the breaker is closed", lambda: shows(cluster, scope, 0))


async def shows(cluster: RunningCluster, scope: str, wanted: int) -> bool:
    found = (await scrape(cluster.info.evictor_url)).total("makeway_evictor_breaker_open", scope=scope)
    if found != wanted:
        raise NotYet(f"{found:.0f} for {scope}")
    return True


async def full_node(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(space, sized("victim", "low", 500).on("n1"))


async def reasons(space: Space, uid: str) -> set[str]:
    """Why a preemptor's orders came to nothing."""
    orders = await space.bus.orders(uid)
    outcomes = [outcome for order in orders for outcome in await space.bus.outcomes(order.order_id)]
    return {outcome.reason for outcome in outcomes}


async def test_while_the_evictors_breaker_is_open_nothing_is_evicted_and_makeway_acts_after_a_reset(
    cluster: RunningCluster,
) -> None:
    async with open_space(cluster) as space:
        await full_node(space)

        async with breaker_open(cluster):
            (urgent,) = await space.create(sized("urgent", "high", 500))

            await until_told(space, "the evictors' breaker is open")
            await asyncio.sleep(WAITS_SECONDS)
            assert {"urgent", "victim"} == (await space.pods()).keys()
            assert await reasons(space, urgent.metadata.uid) == {"breaker-open"}
            code, shown, _ = await run(cluster, "breaker")
            assert (code, "mismatches" in shown) == (1, True)
            code, shown, _ = await run(cluster, "check")
            assert (code, shown.count("mismatches")) == (1, 1)
        assert await space.until_bound("urgent", seconds=SERVES_AGAIN_SECONDS) == "n1"


async def test_where_it_is_open_for_a_namespace_nothing_is_evicted_for_it_and_makeway_acts_elsewhere(
    cluster: RunningCluster,
) -> None:
    async with open_space(cluster) as space:
        await full_node(space)

        async with breaker_open(cluster, space.namespace):
            (urgent,) = await space.create(sized("urgent", "high", 500))

            await until_told(space, f"the evictors' breaker is open for namespace {space.namespace}")
            await asyncio.sleep(WAITS_SECONDS)
            assert {"urgent", "victim"} == (await space.pods()).keys()
            assert await reasons(space, urgent.metadata.uid) == {"breaker-open-namespace"}
            await makes_room_again(cluster, seconds=10)
