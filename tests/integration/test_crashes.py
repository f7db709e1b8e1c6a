"""One crash of each component in the midst of a preemption; `test_crashes_matrix.py` has them all."""

from collections.abc import Iterator

import pytest

from integration.cluster import RunningCluster
from integration.crashing import (
    KILL,
    RECOVERY_SECONDS,
    Failpoints,
    assert_whole,
    full_node,
    preemptor,
)
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
