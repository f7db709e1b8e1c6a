"""Queues in plans: a guarantee spares pods, a maximum keeps a preemptor to its own queue.

Cases Q-1 and Q-2 of docs/conformance.md.
"""

import pytest

from integration.builders import make_node, make_pod
from integration.configuring import put_queues
from integration.preempting import run_victims
from integration.queueing import in_queue, living, queue, queues_yaml
from integration.space import Space

pytestmark = pytest.mark.both_forms(by_target=True)


@pytest.fixture
def space(limited_space: Space) -> Space:
    """Run in a cluster where only makeway preempts."""
    return limited_space


async def test_a_queue_at_its_guarantee_is_spared_though_its_pods_are_less_important(space: Space) -> None:
    own = f"root.{space.namespace}"
    await space.add_nodes(make_node("n1").cpu(4))
    await put_queues(
        space.cluster, queues_yaml(queue(space.namespace, queue("a", guaranteed=2), queue("b"), queue("p")))
    )
    await run_victims(
        space,
        *(in_queue(f"a{number}", 1, f"{own}.a") for number in range(2)),
        *(in_queue(f"b{number}", 1, f"{own}.b").priority("mid") for number in range(2)),
    )

    await space.create(make_pod("p").priority("high").cpu(1).label("queue", f"{own}.p"))

    assert await space.until_bound("p") == "n1"
    assert {"a0", "a1"} <= (await living(space)).keys()


async def test_a_preemptor_whose_queue_is_at_max_evicts_only_from_its_own_queue(space: Space) -> None:
    own = f"root.{space.namespace}"
    await space.add_nodes(make_node("n1").cpu(4))
    await put_queues(space.cluster, queues_yaml(queue(space.namespace, queue("p", max=2), queue("b"))))
    await run_victims(
        space,
        *(in_queue(f"p{number}", 1, f"{own}.p").priority("mid") for number in range(2)),
        *(in_queue(f"b{number}", 1, f"{own}.b") for number in range(2)),
    )

    await space.create(make_pod("p").priority("high").cpu(1).label("queue", f"{own}.p"))

    assert await space.until_bound("p") == "n1"
    assert {"b0", "b1"} <= (await living(space)).keys()
