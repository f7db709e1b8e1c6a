"""Without a plan kube-scheduler's own preemption acts where nothing restricts preemption, else nothing."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from integration.builders import PodBuilder, make_node
from integration.cluster import RunningCluster
from integration.configuring import policy, policy_text, put
from integration.preempting import run_victims, settle, sized, until_told
from integration.space import Space
from makeway.dev.options import PLANNER

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
        yield


@asynccontextmanager
async def restarted_on_a_bad_policy(cluster: RunningCluster) -> AsyncIterator[None]:
    """A planner that cannot read the policy, and so plans nothing."""
    await put(cluster, {"policy.yaml": policy_text(protections={"namespaces": []})})
    await cluster.stop(PLANNER)
    cluster.process(PLANNER).start()
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


@pytest.mark.parametrize("away", [stopped, pytest.param(frozen, marks=pytest.mark.wide)])
async def test_without_a_planner_pods_preempt_as_kube_scheduler_does_where_nothing_restricts(
    cluster: RunningCluster, space: Space, away: Callable[[RunningCluster], AbstractAsyncContextManager[None]]
) -> None:
    await kept_and_loose(space)

    async with policy(cluster), away(cluster):
        (urgent,) = await space.create(sized("urgent", "high", 500))

        assert await space.until_bound("urgent") == "n1"

    assert await space.bus.orders(urgent.metadata.uid) == []


@pytest.mark.parametrize("away", [stopped, frozen])
async def test_without_a_planner_no_pod_is_evicted_where_the_policy_protects_some(
    cluster: RunningCluster, space: Space, away: Callable[[RunningCluster], AbstractAsyncContextManager[None]]
) -> None:
    await kept_and_loose(space)

    async with policy(cluster, protection=PROTECTION):
        async with away(cluster):
            await space.create(sized("urgent", "high", 500))
            await until_told(space, "pods are protected by protection.neverEvictNamespaces")
            await settle()
            assert {"kept", "loose"} <= (await space.pods()).keys()

        assert await space.until_bound("urgent", seconds=45) == "n2"

    assert (await space.pod("kept")) is not None


@pytest.mark.parametrize(
    "away", [changed_meanwhile, pytest.param(restarted_on_a_bad_policy, marks=pytest.mark.wide)]
)
async def test_where_the_policy_has_changed_and_no_planner_has_told_it_no_pod_is_evicted(
    cluster: RunningCluster, space: Space, away: Callable[[RunningCluster], AbstractAsyncContextManager[None]]
) -> None:
    await kept_and_loose(space)

    async with policy(cluster):
        async with away(cluster):
            await space.create(sized("urgent", "high", 500))
            await until_told(space, "has changed, and no planner has reported what it says")
            await settle()
            assert {"kept", "loose"} <= (await space.pods()).keys()

        assert await space.until_bound("urgent", seconds=45) == "n2"
        assert (await space.pod("kept")) is not None


def with_much_environment(pod: PodBuilder) -> PodBuilder:
    """Let a pod carry a mebibyte of environment."""
    large = [{"name": f"LARGE_{number}", "value": "x" * 100_000} for number in range(11)]
    (container,) = pod.build()["spec"]["containers"]
    return pod.spec(containers=[{**container, "env": large}])


def with_many_escapes(pod: PodBuilder) -> PodBuilder:
    """Let a pod carry an annotation of characters that JSON may escape, six bytes each."""
    return pod.annotation("example.com/text", "<" * 190_000)


@pytest.mark.parametrize(
    "large", [with_much_environment, pytest.param(with_many_escapes, marks=pytest.mark.wide)]
)
async def test_a_large_pod_is_planned_for_as_any_other(
    cluster: RunningCluster, space: Space, large: Callable[[PodBuilder], PodBuilder]
) -> None:
    await kept_and_loose(space)

    async with policy(cluster, protection=PROTECTION):
        (urgent,) = await space.create(large(sized("urgent", "high", 500)))

        assert await space.until_bound("urgent") == "n2"

    assert (await space.pod("kept")) is not None
    assert len(await space.bus.orders(urgent.metadata.uid)) == 1
