"""Where there is no plan, the scheduler's own preemption acts, and spares whom the policy protects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from integration.builders import PodBuilder, make_node
from integration.cluster import RunningCluster
from integration.configuring import policy, policy_text, put
from integration.preempting import run_victims, settle, sized
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.dev.options import PLANNER

STORED_POLL_SECONDS = 2.0
"""Between two reads of the policy by the scheduler."""

PROTECTION = {"neverEvictNamespaces": ["*"]}


@asynccontextmanager
async def stopped(cluster: RunningCluster) -> AsyncIterator[None]:
    """No planner."""
    async with cluster.without(PLANNER):
        yield


@asynccontextmanager
async def frozen(cluster: RunningCluster) -> AsyncIterator[None]:
    """A planner that answers nothing."""
    async with cluster.frozen(PLANNER):
        yield


@asynccontextmanager
async def changed_meanwhile(cluster: RunningCluster) -> AsyncIterator[None]:
    """No planner when the policy begins to protect."""
    async with cluster.without(PLANNER):
        await put(cluster, {"policy.yaml": policy_text(protection=PROTECTION)})
        await asyncio.sleep(2 * STORED_POLL_SECONDS)
        yield


@asynccontextmanager
async def restarted_on_a_bad_policy(cluster: RunningCluster) -> AsyncIterator[None]:
    """A planner that cannot read the policy, and so plans nothing."""
    await put(cluster, {"policy.yaml": policy_text(protections={"namespaces": []})})
    await cluster.stop(PLANNER)
    cluster.process(PLANNER).start()
    await asyncio.sleep(2 * STORED_POLL_SECONDS)
    try:
        yield
    finally:
        await put(cluster, {"policy.yaml": policy_text(protection=PROTECTION)})
        await cluster.start(PLANNER)


async def kept_and_loose(space: Space) -> None:
    """On n1 the pod that kube-scheduler prefers for a victim, which asks never to be one; on n2 another."""
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    await run_victims(
        space,
        sized("kept", "low", 500).annotation("makeway.dev/never-evict", "true").on("n1"),
        sized("loose", "mid", 500).on("n2"),
    )


@pytest.mark.parametrize("away", [stopped, frozen])
async def test_without_a_planner_no_protected_pod_is_evicted_and_another_is(
    cluster: RunningCluster,
    space: Space,
    away: Callable[[RunningCluster], AbstractAsyncContextManager[None]],
) -> None:
    await kept_and_loose(space)

    async with policy(cluster, protection=PROTECTION), away(cluster):
        await space.create(sized("urgent", "high", 500))

        assert await space.until_bound("urgent") == "n2"

    assert (await space.pod("kept")) is not None


@pytest.mark.parametrize("away", [changed_meanwhile, restarted_on_a_bad_policy])
async def test_where_the_policy_has_changed_and_no_planner_has_told_it_no_pod_is_evicted(
    cluster: RunningCluster,
    space: Space,
    away: Callable[[RunningCluster], AbstractAsyncContextManager[None]],
) -> None:
    await kept_and_loose(space)

    async with policy(cluster):
        async with away(cluster):
            await space.create(sized("urgent", "high", 500))
            await until_told(space, "has changed, and no planner has told what it says")
            await settle()
            assert {"kept", "loose"} <= (await space.pods()).keys()

        assert await space.until_bound("urgent", seconds=45) == "n2"
        assert (await space.pod("kept")) is not None


async def test_kube_scheduler_alone_evicts_the_pod_that_the_policy_protects(plain_space: Space) -> None:
    await kept_and_loose(plain_space)

    await plain_space.create(sized("urgent", "high", 500))

    assert await plain_space.until_bound("urgent") == "n1"


async def test_where_the_policy_says_hold_a_pod_waits_for_a_plan(
    cluster: RunningCluster, space: Space
) -> None:
    await kept_and_loose(space)

    async with policy(cluster, protection=PROTECTION, whenUnplanned="hold"):
        async with cluster.without(PLANNER):
            await space.create(sized("urgent", "high", 500))

            await until_told(space, "whenUnplanned is hold")
            await settle()
            assert {"kept", "loose"} <= (await space.pods()).keys()

        assert await space.until_bound("urgent", seconds=45) == "n2"


async def until_told(space: Space, text: str) -> None:
    """Wait until a condition of the pod urgent says why it waits."""

    async def told() -> bool:
        pod = await space.pod("urgent")
        if any(text in (one.message or "") for one in (pod.status.conditions if pod else None) or ()):
            return True
        raise NotYet("it is not told")

    await until("the pod is told that it waits", told)


def with_much_environment(pod: PodBuilder) -> PodBuilder:
    """Let a pod carry a mebibyte of environment."""
    large = [{"name": f"LARGE_{number}", "value": "x" * 100_000} for number in range(11)]
    (container,) = pod.build()["spec"]["containers"]
    return pod.spec(containers=[{**container, "env": large}])


def with_many_escapes(pod: PodBuilder) -> PodBuilder:
    """Let a pod carry an annotation of characters that JSON may escape, six bytes each."""
    return pod.annotation("example.com/text", "<" * 190_000)


@pytest.mark.parametrize("large", [with_much_environment, with_many_escapes])
async def test_a_large_pod_is_planned_for_as_any_other(
    cluster: RunningCluster, space: Space, large: Callable[[PodBuilder], PodBuilder]
) -> None:
    await kept_and_loose(space)

    async with policy(cluster, protection=PROTECTION):
        (urgent,) = await space.create(large(sized("urgent", "high", 500)))

        assert await space.until_bound("urgent") == "n2"

    assert (await space.pod("kept")) is not None
    assert len(await space.bus.orders(urgent.metadata.uid)) == 1
