"""Reclaim on the real control plane: a queue takes back what its equals use of its guarantee."""

import pytest
import pytest_asyncio

from integration.builders import PodBuilder, make_node
from integration.configuring import put_queues
from integration.preempting import assert_stays_pending, deletes_of, outcome_of_order, run_victims, sized
from integration.queueing import queue, queues_yaml
from integration.space import Space
from makeway.dev.checker.history import InForce

pytestmark = pytest.mark.both_forms(by_target=True)

LENT = ("b0", "b1", "b2")


@pytest_asyncio.fixture
async def space(limited_space: Space) -> Space:
    """Give a full node of a queue without a guarantee, and an empty queue that guarantees two CPUs."""
    space = limited_space
    space.in_force = InForce(reclaims=True)
    tree = queue(space.namespace, queue("a", guaranteed=2), queue("b"))
    await put_queues(space.cluster, queues_yaml(tree, reclaim=True))
    await space.add_nodes(make_node("n1").cpu(3))
    await run_victims(space, *(of_queue(space, name, "b").on("n1") for name in LENT))
    return space


def of_queue(space: Space, name: str, of: str) -> PodBuilder:
    """A pod of one CPU, of the one priority of all, in a queue of the space's namespace."""
    return sized(name, "high", 1000).label("queue", f"root.{space.namespace}.{of}")


async def test_a_queue_takes_back_up_to_its_guarantee_and_successors_take_nothing(space: Space) -> None:
    for name in ("a0", "a1"):
        (pod,) = await space.create(of_queue(space, name, "a"))
        assert await space.until_bound(name) == "n1"
        order, outcome = await outcome_of_order(space, pod)
        assert (outcome.result, [one.rule for one in order.victims]) == ("succeeded", ["reclaim"])
    gone = [name for name in LENT if deletes_of(space, name)]
    assert len(gone) == 2

    await space.create(*(of_queue(space, f"{name}-again", "b") for name in gone))
    await space.create(of_queue(space, "a2", "a"))

    for name in (*(f"{name}-again" for name in gone), "a2"):
        await assert_stays_pending(space, name, seconds=2)
    assert [name for name in LENT if deletes_of(space, name)] == gone
    assert {"a0", "a1"} <= (await space.pods()).keys()
