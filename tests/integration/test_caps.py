"""Caps on evictions on a real control plane: floods are slowed, and what waits holds up no other order.

There is no scheduler here: the tests write nominations and orders themselves.
"""

import asyncio
from collections.abc import Iterator

import pytest

from integration.builders import make_pod
from integration.cluster import RunningCluster
from integration.space import Space
from integration.test_evictor_api import Scene, events_of, nominate, the, waiting_pod
from integration.waiting import until, until_seen
from makeway.bus.client import Bus
from makeway.bus.messages import Awaited
from makeway.core.k8s.disruption import PREEMPTION_HELD
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


async def test_64_orders_that_await_nothing_do_not_hold_up_a_healthy_one(scene: Scene) -> None:
    await scene.set(make_pod("a"))
    many = [f"w{number}" for number in range(64)]
    await nominated(scene, *many)
    for name in many:
        awaited = (Awaited(uid="none", order_id=f"ord-never-{name}"),)
        await scene.give(await scene.order(seconds=60, preemptor_name=name, awaited=awaited))
    await asyncio.sleep(1)

    order = await scene.order("a")
    await scene.give(order)
    outcome = await scene.outcome(order, seconds=5)

    assert outcome.result == "succeeded", outcome
    assert (outcome.finished_at - order.created_at).total_seconds() < 3


async def test_what_holds_an_order_is_told_on_its_pod_and_taken_back(scene: Scene) -> None:
    await scene.set(make_pod("a"))
    await nominated(scene, "waits")
    awaited = (Awaited(uid="none", order_id="ord-never-held"),)
    order = await scene.order("a", seconds=20, preemptor_name="waits", awaited=awaited)
    await scene.give(order)

    async def held() -> str:
        pod = await the(scene.space, "waits")
        return next((c.message or "" for c in pod.status.conditions or () if c.type == PREEMPTION_HELD), "")

    message = await until("the condition is there", held, seconds=18)
    assert "orders for other pods" in message

    await until_seen(
        "the Event is there",
        lambda: events_of(scene.space, "waits"),
        lambda seen: "PreemptionHeld" in {event["reason"] for event in seen},
    )
    await scene.outcome(order, seconds=45)

    await until_seen("the condition is gone", held, lambda seen: not seen)


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
