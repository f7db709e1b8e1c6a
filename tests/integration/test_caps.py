"""Caps on evictions on a real control plane: floods are slowed.

There is no scheduler here: the tests write nominations and orders themselves.
"""

import asyncio
from collections.abc import Iterator

import pytest

from integration.builders import make_pod
from integration.cluster import RunningCluster
from integration.space import Space
from integration.test_evictor_api import Scene, nominate, waiting_pod
from makeway.bus.client import Bus
from makeway.dev.cluster import DevCluster
from makeway.dev.options import EVICTOR, KWOK, NATS, ClusterOptions

CAP = 10
"""Of a minute. The last fifth is for namespaces for which less than a fifth was evicted."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Give a control plane without scheduler and planner, whose policy allows ten victims a minute."""
    options = ClusterOptions(
        components=frozenset({NATS, KWOK, EVICTOR}),
        limits=(("victimsPerMinute", CAP), ("victimsPerOrder", CAP)),
    )
    running = RunningCluster(DevCluster(tmp_path_factory.mktemp("caps") / "cluster", options).start())
    yield running
    running.owned.stop()


@pytest.fixture
def scene(space: Space, bus: Bus) -> Scene:
    """Give a test its stage, with as many preemptors as it wants."""
    space.judged = False
    return Scene(space, bus)


async def nominated(scene: Scene, *names: str) -> None:
    """Create pods that wait, nominated to the node."""
    await scene.space.create(*(waiting_pod(name) for name in names))
    for name in names:
        await nominate(scene.space, name, scene.node)


async def test_a_flood_beyond_the_minutes_cap_is_slowed_also_after_a_restart(scene: Scene) -> None:
    names = [f"v{number}" for number in range(15)]
    await scene.set(*(make_pod(name) for name in names))
    await nominated(scene, *(f"for-{name}" for name in names))
    orders = [await scene.order(name, seconds=30, preemptor_name=f"for-{name}") for name in names]
    for order in orders[:10]:
        await scene.give(order)
    await asyncio.sleep(3)
    # A process that begins anew knows what the one before it evicted.
    async with scene.space.cluster.without("evictor"):
        pass
    for order in orders[10:]:
        await scene.give(order)

    outcomes = [await scene.outcome(order, seconds=45) for order in orders]

    assert len(scene.deletes()) <= CAP
    refused = [one for one in outcomes if one.result != "succeeded"]
    assert len(refused) >= len(names) - CAP
    assert {one.reason for one in refused} == {"victims-per-minute"}, refused
