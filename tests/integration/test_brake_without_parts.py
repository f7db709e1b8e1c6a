"""The brake while a part is away: nothing is evicted; nor is anything after it without a plan."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from integration.asking import run
from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.configuring import CONFIGMAP, NAMESPACE, NO_POLICY, policy_text, put, put_policy
from integration.preempting import run_victims, settle, sized, until_told
from integration.space import Space
from makeway.dev.options import NATS, PLANNER

PROTECTING = policy_text(protection={"neverEvictNamespaces": ["*"]})

HELD_SECONDS = 3
"""Some cycles of a pod that waits, each of which would evict."""


@pytest_asyncio.fixture
async def protecting(cluster: RunningCluster) -> AsyncIterator[RunningCluster]:
    """Give the shared cluster with a policy that protects who asks for it; no brake after the test."""
    await put_policy(cluster, PROTECTING)
    yield cluster
    await released(cluster)
    await put_policy(cluster, NO_POLICY)


async def released(cluster: RunningCluster) -> None:
    await cluster.kubectl("delete", "configmap", "makeway-brake", "-n", NAMESPACE, "--ignore-not-found")


@pytest.mark.parametrize(
    ("away", "brake"),
    [
        (PLANNER, "set"),
        pytest.param(PLANNER, "not understood", marks=pytest.mark.wide),
        pytest.param(NATS, "set, and the policy is deleted", marks=pytest.mark.wide),
    ],
)
async def test_with_the_brake_set_nothing_is_evicted_nor_after_it_without_a_plan(
    protecting: RunningCluster, space: Space, away: str, brake: str
) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    await run_victims(
        space,
        sized("kept", "low", 500).annotation("makeway.dev/never-evict", "true").on("n1"),
        sized("loose", "mid", 500).on("n2"),
    )
    async with protecting.without(away):
        if brake == "not understood":
            await put(protecting, {"mode": "of"}, "makeway-brake")
        else:
            _, out, err = await run(protecting, "mode", "off")  # ends with 1: a part did not confirm
            assert "the brake is set everywhere" in out, err
        if "deleted" in brake:
            await protecting.kubectl("delete", "configmap", CONFIGMAP, "-n", NAMESPACE)

        (urgent,) = await space.create(sized("urgent", "high", 500))

        await asyncio.sleep(HELD_SECONDS)
        assert (await space.pods()).keys() == {"kept", "loose", "urgent"}
        await released(protecting)
        await until_told(space, "pods are protected by protection.neverEvictNamespaces")
        await settle()
        assert (await space.pods()).keys() == {"kept", "loose", "urgent"}
        if "deleted" in brake:  # without one a planner does not become ready again
            await put(protecting, {"policy.yaml": PROTECTING})
    assert await space.until_bound("urgent", seconds=45) == "n2"
    assert await space.pod("kept") is not None
    assert len(await space.bus.orders(urgent.metadata.uid)) == 1
