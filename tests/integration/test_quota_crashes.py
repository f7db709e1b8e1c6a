"""Processes that die or freeze while a quota is enforced: no queue below its guarantee, no pod too many."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from integration.arming import HOLD, KILL, STOP, Crashes, Failpoints, until_one_leads
from integration.builders import make_pod
from integration.cluster import RunningCluster
from integration.configuring import NO_LIMITS, QUEUES_CONFIGMAP, put, put_queues
from integration.gating import until_waiting
from integration.invariants import assert_invariants
from integration.queueing import (
    living,
    never,
    queue,
    queues_yaml,
    quota_orders,
    run_in_queue,
    until_ended,
    until_state,
)
from integration.space import Space, open_space
from makeway.dev.options import EVICTOR, PLANNER, SCHEDULER

ROUND_THE_ORDER = ("planner.before-quota-order", "planner.after-quota-order")
RECOVERY_SECONDS = 40


@pytest_asyncio.fixture
async def space(crash_cluster: RunningCluster, crash_space: Space) -> AsyncIterator[Space]:
    """Give a space in a cluster where nobody preempts but makeway; no limits are left behind."""
    yield crash_space
    await put_queues(crash_cluster, NO_LIMITS)
    await assert_invariants(crash_space, wait=False)


def path(space: Space) -> str:
    """The queue of the space's namespace."""
    return f"root.{space.namespace}"


async def four_pods_at_their_max(cluster: RunningCluster, space: Space) -> None:
    """A queue of 40 cores with four pods of ten each."""
    await run_in_queue(space, 10, 10, 10, 10)
    await put_queues(cluster, queues_yaml(queue(space.namespace, max=40, delay="1s")))
    await until_ended(cluster, path(space))


async def lower(cluster: RunningCluster, space: Space) -> None:
    """Lower it to 15 cores, 10 of them guaranteed: exactly one pod may stay, and one has to."""
    lowered = queues_yaml(queue(space.namespace, guaranteed=10, max=15, delay="1s"))
    await put(cluster, {"queues.yaml": lowered}, QUEUES_CONFIGMAP)


async def assert_one_stays(cluster: RunningCluster, space: Space) -> None:
    """Three pods were ordered, each once, and one stays for good."""
    await until_state(
        cluster,
        path(space),
        "within its maximum",
        lambda state: state.usage["cpu"] <= 15_000,
        seconds=RECOVERY_SECONDS,
    )

    async def fewer() -> bool:
        return len(await living(space)) < 1

    await never(3, "more pods went", fewer)
    victims = [victim.uid for order in await quota_orders(space, path(space)) for victim in order.victims]
    assert len(victims) == len(set(victims)) == 3
    assert len(await living(space)) == 1


@pytest.mark.wide
@pytest.mark.parametrize("point", ROUND_THE_ORDER)
async def test_the_planner_killed(crash_cluster: RunningCluster, space: Space, point: str) -> None:
    await four_pods_at_their_max(crash_cluster, space)

    async with Crashes(crash_cluster, PLANNER).at(point, KILL):
        await lower(crash_cluster, space)

    await assert_one_stays(crash_cluster, space)


@pytest.mark.parametrize(
    "hit", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
async def test_the_evictor_killed(crash_cluster: RunningCluster, space: Space, hit: int) -> None:
    await four_pods_at_their_max(crash_cluster, space)

    async with Crashes(crash_cluster, EVICTOR).at("evictor.after-delete", KILL, hit=hit):
        await lower(crash_cluster, space)

    await assert_one_stays(crash_cluster, space)


@pytest.mark.wide
async def test_nats_killed(crash_cluster: RunningCluster, space: Space) -> None:
    await four_pods_at_their_max(crash_cluster, space)

    await lower(crash_cluster, space)
    await asyncio.sleep(0.9)
    await crash_cluster.kill("nats")
    await asyncio.sleep(1.5)
    await crash_cluster.start("nats")

    await assert_one_stays(crash_cluster, space)


async def test_the_scheduler_killed_and_its_gate_neither_open_nor_shut_for_good(space: Space) -> None:
    await four_pods_at_their_max(space.cluster, space)
    failpoints = Failpoints(space.cluster)
    failpoints.arm("evictor.before-delete", HOLD)

    await lower(space.cluster, space)
    await failpoints.fired("evictor.before-delete")
    await space.cluster.kill(SCHEDULER)
    failpoints.let_go("evictor.before-delete")
    await space.create(make_pod("late").priority("low").cpu(10))
    await space.cluster.start(SCHEDULER)

    await assert_one_stays(space.cluster, space)
    await until_waiting(space, "late", f"queue {path(space)}: cpu 10 of 15 used")
    await put_queues(space.cluster, queues_yaml(queue(space.namespace, max=20, delay="60s")))
    await space.until_bound("late", seconds=RECOVERY_SECONDS)


@pytest.mark.parametrize("action", [KILL, STOP])
@pytest.mark.parametrize("point", ROUND_THE_ORDER)
@pytest.mark.slow
async def test_another_planner_goes_on(replicated_cluster: RunningCluster, point: str, action: str) -> None:
    """A planner frozen round its order wakes up when another has long enforced the quota."""
    async with open_space(replicated_cluster) as space:
        try:
            await four_pods_at_their_max(replicated_cluster, space)

            async def enforced() -> None:
                await assert_one_stays(replicated_cluster, space)

            async with Crashes(replicated_cluster, PLANNER, at_once=1).at(
                point, action, while_frozen=enforced
            ):
                await lower(replicated_cluster, space)

            await assert_one_stays(replicated_cluster, space)
            await until_one_leads(replicated_cluster)
        finally:
            await put_queues(replicated_cluster, NO_LIMITS)
        await assert_invariants(space, wait=False)
