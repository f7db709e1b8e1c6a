"""The brake while a part is away: the scheduler's own preemption goes on under the policy's protection."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.commanding import mode
from integration.configuring import CONFIGMAP, NAMESPACE, NO_POLICY, policy_text, put, put_policy
from integration.preempting import run_victims, sized
from integration.space import Space
from makeway.dev.options import NATS, PLANNER

PROTECTING = policy_text(protection={"neverEvictNamespaces": ["*"]})


@pytest_asyncio.fixture
async def protecting(cluster: RunningCluster) -> AsyncIterator[RunningCluster]:
    """Give the shared cluster with a policy that protects who asks for it; no brake after the test."""
    await put_policy(cluster, PROTECTING)
    yield cluster
    await cluster.kubectl("delete", "configmap", "makeway-brake", "-n", NAMESPACE, "--ignore-not-found")
    await put_policy(cluster, NO_POLICY)


@pytest.mark.parametrize(
    ("away", "brake"),
    [(PLANNER, "set"), (PLANNER, "not understood"), (NATS, "set, and the policy is deleted")],
)
async def test_with_the_brake_set_the_protected_pod_stays_and_another_makes_room(
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
            _, out, err = await mode(protecting, "off")  # the exit code tells that a part did not confirm
            assert "the brake is set everywhere" in out, err
        if "deleted" in brake:
            await protecting.kubectl("delete", "configmap", CONFIGMAP, "-n", NAMESPACE)

        (urgent,) = await space.create(sized("urgent", "high", 500))

        assert await space.until_bound("urgent") == "n2"
        assert await space.pod("kept") is not None
        if "deleted" in brake:  # without one a planner does not become ready again
            await put(protecting, {"policy.yaml": PROTECTING})
    assert await space.bus.orders(urgent.metadata.uid) == []
