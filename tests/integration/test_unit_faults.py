"""Units on the real control plane while their owner, or the gang that takes their room, interferes.

A unit goes whole: once a pod of it was deleted the others go too. Before that nothing its owner does has an
evictor take it for one that has begun.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from background import background
from integration.arming import HOLD, Failpoints
from integration.cluster import RunningCluster
from integration.crashing import RECOVERY_SECONDS, assert_nothing_left_behind
from integration.ganging import Gang, faulty_space, first_outcome, gang, in_group
from integration.preempting import run_victims, sized
from integration.space import Space
from integration.waiting import until_seen
from makeway.dev.options import EVICTOR
from makeway.evictor.act.work import CHECK_LASTS

UNIT = tuple(f"old-{number}" for number in range(4))
"""Pods of a group of mode all, two on each of the nodes n1 and n2."""


@pytest_asyncio.fixture
async def space(gang_planning_cluster: RunningCluster) -> AsyncIterator[Space]:
    """Give three full nodes, and one that no pod of the gang tolerates."""
    async with faulty_space(gang_planning_cluster, UNIT) as opened:
        yield opened


async def join(space: Space, name: str) -> None:
    """Add a pod to the unit, on the node that is kept free."""
    await space.create(sized(name, "low", 1).on("spare").spec(**in_group("old")))


async def remove(space: Space, name: str) -> None:
    await space.remove(name, grace_seconds=0)


async def left(space: Space) -> set[str]:
    """The victims that are neither gone nor leaving."""
    pods = await space.pods()
    return {name for name in ("large", *UNIT) if name in pods and not pods[name].metadata.deletion_timestamp}


async def begun_for_a_gang(space: Space) -> Gang:
    """Create a gang; all pods of the unit but one are deleted for it, and the evictor is held before that."""
    failpoints = Failpoints(space.cluster)
    failpoints.arm("evictor.before-delete", HOLD, hit=3)
    train = await gang(space)
    await failpoints.fired("evictor.before-delete")

    await until_seen("the unit has begun", lambda: left(space), lambda seen: len(seen & set(UNIT)) == 1)
    return train


async def assert_finished_for_no_gang(space: Space, train: Gang) -> None:
    """Check that all of the unit has gone, and no other pod, though the gang wants the room no more."""
    outcome = await first_outcome(space, train)
    assert (outcome.result, outcome.reason) == ("cancelled", "members-missing")
    assert await left(space) == {"large"}
    await assert_nothing_left_behind(space)


async def kill_evictor_at(space: Space, point: str) -> None:
    """Kill the evictor that is held at a point."""
    failpoints = Failpoints(space.cluster)
    await failpoints.fired(point)
    for name in space.cluster.replicas(EVICTOR):
        await space.cluster.kill(name)
    failpoints.let_go(point)


async def start_evictor(space: Space) -> None:
    for name in space.cluster.replicas(EVICTOR):
        await space.cluster.start(name)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("point", "hit"),
    [
        ("evictor.before-dry-run", 1 + len(UNIT)),  # all are marked by then
        pytest.param("evictor.barrier-passed", 1, marks=pytest.mark.slow),
        ("evictor.before-delete", 1),
    ],
)
async def test_a_pod_that_its_owner_replaces_before_the_first_delete_does_not_have_its_unit_broken(
    space: Space, point: str, hit: int
) -> None:
    Failpoints(space.cluster).arm(point, HOLD, hit=hit)
    train = await gang(space)
    await kill_evictor_at(space, point)
    await remove(space, UNIT[0])
    await join(space, "replacing")
    await start_evictor(space)

    outcome = await first_outcome(space, train)

    assert (outcome.result, outcome.reason) == ("refused", "unit-incomplete")
    assert not any(one.result == "deleted" for one in outcome.victims)
    for name in train.members:
        await space.until_bound(name, seconds=RECOVERY_SECONDS)
    await space.until_gone("replacing")
    assert await left(space) == set()
    await assert_nothing_left_behind(space)


async def test_a_unit_that_has_begun_is_finished_by_whoever_takes_the_order_over(space: Space) -> None:
    train = await begun_for_a_gang(space)
    await kill_evictor_at(space, "evictor.before-delete")
    await remove(space, "gang-2")
    await start_evictor(space)

    await assert_finished_for_no_gang(space, train)


async def test_a_unit_that_has_begun_is_finished_though_a_member_of_the_gang_is_deleted(space: Space) -> None:
    train = await begun_for_a_gang(space)
    await remove(space, "gang-2")
    await asyncio.sleep(CHECK_LASTS.total_seconds() + 1)
    Failpoints(space.cluster).let_go("evictor.before-delete")

    await assert_finished_for_no_gang(space, train)


async def test_a_unit_that_gains_pods_all_the_time_keeps_no_gang_waiting(space: Space) -> None:
    async def churn() -> None:
        number = 0
        while True:
            await join(space, f"late-{number}")
            await asyncio.sleep(0.05)
            await space.delete(f"late-{number}", grace_seconds=0)
            number += 1

    async with background(churn()):
        await asyncio.sleep(1)
        train = await gang(space)
        for name in train.members:
            await space.until_bound(name, seconds=RECOVERY_SECONDS)

    orders = await space.bus.group_orders(train.uid)
    outcomes = [(await space.bus.outcomes(order.order_id))[0] for order in orders]
    assert [outcome.reason for outcome in outcomes[:-1]] == ["unit-incomplete"] * (len(outcomes) - 1)
    assert outcomes[-1].result == "succeeded"
    assert await left(space) == set()


async def test_a_gang_does_not_wait_for_a_pod_of_a_unit_on_a_node_where_no_member_goes(space: Space) -> None:
    stuck = sized("stuck", "low", 1).on("spare").spec(**in_group("old")).finalizer("tests.makeway.dev/stuck")
    await run_victims(space, stuck)

    train = await gang(space)
    for name in train.members:
        await space.until_bound(name, seconds=30)

    assert (await space.pods())["stuck"].metadata.deletion_timestamp is not None
