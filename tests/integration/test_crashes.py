"""One crash of each component in the midst of a preemption; `test_crashes_matrix.py` has them all."""

import pytest

from integration.arming import KILL, Crashes
from integration.cluster import RunningCluster
from integration.crashing import (
    RECOVERY_SECONDS,
    assert_nothing_left_behind,
    assert_whole,
    mark_as_victim,
    without_nats,
)
from integration.invariants import assert_invariants, streams_of
from integration.preempting import full_nodes, taker, until_ordered
from integration.space import Space

VICTIMS = 5

_STORED = {False: "scheduler.after-publish", True: "nominator.after-commit"}
"""Where a bridge is whose order has been stored, by whether it is the nominator."""


@pytest.mark.parametrize(
    ("point", "hit"),
    [
        ("evictor.after-delete", 3),
        pytest.param("planner.before-reply", 1, marks=pytest.mark.wide),
        ("bridge.stored", 1),
    ],
)
@pytest.mark.both_forms
async def test_a_crash_in_the_midst_of_a_preemption_leaves_nobody_stuck(
    crash_cluster: RunningCluster, crash_space: Space, point: str, hit: int
) -> None:
    await full_nodes(crash_space, 1, VICTIMS)

    point = point.replace("bridge.stored", _STORED[crash_cluster.external])
    async with Crashes(crash_cluster, point.partition(".")[0]).at(point, KILL, hit=hit):
        pod = await taker(crash_space, "p", VICTIMS)

    assert await crash_space.until_bound("p", seconds=RECOVERY_SECONDS) == "n1"
    await assert_whole(crash_space, [pod], orders=1)
    await assert_invariants(crash_space, wait=False)


@pytest.mark.both_forms
async def test_an_order_survives_the_loss_of_all_that_nats_has_stored(crash_space: Space) -> None:
    await full_nodes(crash_space, 1, VICTIMS)
    async with crash_space.cluster.without("evictor"):
        pod = await taker(crash_space, "p", VICTIMS)
        await until_ordered(crash_space, pod)
        lost = await streams_of(crash_space.cluster, since=crash_space.opened_at)
        await without_nats(crash_space.cluster, "wiped")

    assert await crash_space.until_bound("p", seconds=RECOVERY_SECONDS) == "n1"
    await assert_whole(crash_space, [pod], orders=1)
    await assert_invariants(crash_space, wait=False, lost=lost)


@pytest.mark.both_forms
async def test_a_mark_that_nobody_remembers_is_cleared(crash_space: Space) -> None:
    await full_nodes(crash_space, 1, 1)

    await mark_as_victim(crash_space, "n1-v1")

    await assert_nothing_left_behind(crash_space)
    assert await crash_space.pod("n1-v1") is not None
