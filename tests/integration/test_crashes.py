"""One crash of each component in the midst of a preemption; `test_crashes_matrix.py` has them all."""

from collections.abc import Iterator

import pytest

from integration.cluster import RunningCluster
from integration.crashing import (
    KILL,
    RECOVERY_SECONDS,
    Failpoints,
    assert_nothing_left_behind,
    assert_whole,
    full_node,
    mark_as_victim,
    ordered,
    preemptor,
    without_nats,
)
from integration.invariants import assert_invariants, streams_of
from integration.space import Space

VICTIMS = 5


@pytest.fixture
def failpoints(crash_cluster: RunningCluster) -> Iterator[Failpoints]:
    points = Failpoints(crash_cluster)
    yield points
    points.disarm()


@pytest.mark.parametrize(
    ("point", "hit"),
    [
        ("evictor.after-delete", 3),
        ("planner.before-reply", 1),
        ("scheduler.after-publish", 1),
    ],
)
async def test_a_crash_in_the_midst_of_a_preemption_leaves_nobody_stuck(
    crash_space: Space, failpoints: Failpoints, point: str, hit: int
) -> None:
    await full_node(crash_space, VICTIMS)
    failpoints.arm(point, KILL, hit=hit)

    pod = await preemptor(crash_space, VICTIMS)
    await failpoints.fires(point, KILL)

    assert await crash_space.until_bound("p", seconds=RECOVERY_SECONDS) == "n1"
    await assert_whole(crash_space, [pod], orders=1)
    await assert_invariants(crash_space, wait=False)


async def test_an_order_survives_the_loss_of_all_that_nats_has_stored(
    crash_cluster: RunningCluster, crash_space: Space
) -> None:
    await full_node(crash_space, VICTIMS)
    async with crash_cluster.without("evictor"):
        pod = await preemptor(crash_space, VICTIMS)
        await ordered(crash_space, pod)
        lost = await streams_of(crash_cluster, since=crash_space.opened_at)
        await without_nats(crash_cluster, "wiped")

    assert await crash_space.until_bound("p", seconds=RECOVERY_SECONDS) == "n1"
    await assert_whole(crash_space, [pod], orders=1)
    await assert_invariants(crash_space, wait=False, lost=lost)


async def test_a_mark_that_nobody_remembers_is_cleared(crash_space: Space) -> None:
    await full_node(crash_space, 1)

    await mark_as_victim(crash_space, "v1")

    await assert_nothing_left_behind(crash_space)
    assert await crash_space.pod("v1") is not None
