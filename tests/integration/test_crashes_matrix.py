"""Every failpoint, killed and frozen: whoever dies between whichever two side effects, nobody is stuck.

Each case runs `MAKEWAY_REPEAT` times (20). What must hold is `integration.crashing.assert_whole`, and what
the independent checker finds.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from integration.builders import make_pod
from integration.cluster import RunningCluster
from integration.conftest import PrivateCluster
from integration.crashing import (
    CLEARING,
    EACH_VICTIM,
    EVICTING,
    KILL,
    PLANNING,
    RECOVERY_SECONDS,
    REPAIRING,
    ROLLING_BACK,
    SCHEDULING,
    STOP,
    Failpoints,
    assert_nothing_left_behind,
    assert_whole,
    full_node,
    is_marked,
    mark_as_victim,
    ordered,
    preemptor,
    without_nats,
)
from integration.forbidding import UNDELETABLE, deletes_refused
from integration.invariants import assert_invariants, streams_of
from integration.preempting import (
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    outcome_of_order,
)
from integration.space import Space, open_space
from makeway.dev.checker.history import Streams
from makeway.dev.options import ClusterOptions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

REPEAT = int(os.environ.get("MAKEWAY_REPEAT", "20"))
VICTIMS = 5

HITS = [
    (point, hit) for point in EVICTING for hit in (range(1, VICTIMS + 1) if point in EACH_VICTIM else (1,))
]

repeated = pytest.mark.parametrize("run", range(REPEAT))
killed_and_frozen = pytest.mark.parametrize("action", [KILL, STOP])


@pytest.fixture
def failpoints(crash_cluster: RunningCluster) -> Iterator[Failpoints]:
    armed = Failpoints(crash_cluster)
    yield armed
    armed.disarm()


@pytest_asyncio.fixture
async def whole_cluster(crash_cluster: RunningCluster) -> AsyncIterator[RunningCluster]:
    """The cluster, with all of it ready again after the test."""
    yield crash_cluster
    for component in ("nats", "planner", "evictor", "scheduler"):
        await crash_cluster.start(component)


@repeated
@killed_and_frozen
@pytest.mark.parametrize(("point", "hit"), HITS)
async def test_evictor(
    *,
    whole_cluster: RunningCluster,
    crash_space: Space,
    failpoints: Failpoints,
    point: str,
    hit: int,
    action: str,
    run: int,
) -> None:
    await crash(crash_space, failpoints, point, action, hit)


@repeated
@killed_and_frozen
@pytest.mark.parametrize("point", PLANNING)
async def test_planner(
    *,
    whole_cluster: RunningCluster,
    crash_space: Space,
    failpoints: Failpoints,
    point: str,
    action: str,
    run: int,
) -> None:
    await crash(crash_space, failpoints, point, action)


@repeated
@killed_and_frozen
@pytest.mark.parametrize("point", SCHEDULING)
async def test_scheduler(
    *,
    whole_cluster: RunningCluster,
    crash_space: Space,
    failpoints: Failpoints,
    point: str,
    action: str,
    run: int,
) -> None:
    await crash(crash_space, failpoints, point, action)


async def crash(space: Space, failpoints: Failpoints, point: str, action: str, hit: int = 1) -> None:
    """One preemption with one crash in it: one order, carried out once."""
    await full_node(space, VICTIMS)
    failpoints.arm(point, action, hit=hit)

    pod = await preemptor(space, VICTIMS)
    await failpoints.fires(point, action)

    assert await space.until_bound("p", seconds=RECOVERY_SECONDS) == "n1"
    await assert_whole(space, [pod], orders=1)
    await assert_invariants(space, wait=False)


@repeated
@killed_and_frozen
@pytest.mark.parametrize("point", ROLLING_BACK)
async def test_evictor_that_rolls_back(
    *,
    whole_cluster: RunningCluster,
    crash_space: Space,
    failpoints: Failpoints,
    point: str,
    action: str,
    run: int,
) -> None:
    await full_node(crash_space, 2, UNDELETABLE)
    async with deletes_refused(crash_space, "v1"):
        failpoints.arm(point, action)
        pod = await preemptor(crash_space, 2)
        await failpoints.fires(point, action)
        _, outcome = await outcome_of_order(crash_space, pod, seconds=RECOVERY_SECONDS)
        assert outcome.result == "failed"
        await assert_nothing_left_behind(crash_space)

    assert await crash_space.until_bound("p", seconds=2 * RECOVERY_SECONDS) == "n1"
    await assert_whole(crash_space, [pod])
    await assert_invariants(crash_space, wait=False)


@repeated
@killed_and_frozen
@pytest.mark.parametrize("point", CLEARING)
async def test_evictor_that_clears_nominations(
    *,
    whole_cluster: RunningCluster,
    crash_space: Space,
    failpoints: Failpoints,
    point: str,
    action: str,
    run: int,
) -> None:
    await full_node(crash_space, VICTIMS)
    async with whole_cluster.without("evictor"):
        (lesser,) = await crash_space.create(make_pod("lesser").priority("mid").cpu(f"{100 * VICTIMS}m"))
        await ordered(crash_space, lesser)
        pod = await preemptor(crash_space, VICTIMS)
        await ordered(crash_space, pod)
        failpoints.arm(point, action)
    await failpoints.fires(point, action)

    assert await crash_space.until_bound("p", seconds=RECOVERY_SECONDS) == "n1"
    # The victims are those of the lesser pod's order, on which the other one counts.
    await assert_only_ordered_pods_were_deleted(crash_space, [lesser, pod])
    assert_bound_once(crash_space, "p")
    await assert_nothing_left_behind(crash_space)
    await assert_invariants(crash_space, wait=False)


@repeated
@killed_and_frozen
@pytest.mark.parametrize("point", REPAIRING)
async def test_repair_of_a_mark_left_behind(
    *,
    whole_cluster: RunningCluster,
    crash_space: Space,
    failpoints: Failpoints,
    point: str,
    action: str,
    run: int,
) -> None:
    await full_node(crash_space, 1)
    failpoints.arm(point, action)
    await mark_as_victim(crash_space, "v1")

    await failpoints.fires(point, action, seconds=40)

    await assert_nothing_left_behind(crash_space)
    assert await crash_space.pod("v1") is not None


@repeated
@pytest.mark.parametrize("how", ["killed", "frozen", "wiped"])
@pytest.mark.parametrize(
    "point",
    [
        "planner.before-reply",
        "scheduler.nominated",
        "scheduler.before-publish",
        "scheduler.after-publish",
        "evictor.order-received",
        "evictor.before-mark",
        "evictor.after-delete",
        "evictor.before-outcome",
        "evictor.before-ack",
        "scheduler.on-outcome",
    ],
)
async def test_nats(
    *,
    whole_cluster: RunningCluster,
    crash_space: Space,
    failpoints: Failpoints,
    point: str,
    how: str,
    run: int,
) -> None:
    """The process that reaches the point waits there while NATS is away."""
    lost = Streams()
    await full_node(crash_space, VICTIMS)
    failpoints.arm(point, "delay", seconds=2.5)
    pod = await preemptor(crash_space, VICTIMS)
    await failpoints.fired(point)
    if how == "wiped":
        lost = await streams_of(whole_cluster, since=crash_space.opened_at)
    await without_nats(whole_cluster, how)

    assert await crash_space.until_bound("p", seconds=2 * RECOVERY_SECONDS) == "n1"
    if how != "wiped":
        await assert_whole(crash_space, [pod])
    await assert_nothing_left_behind(crash_space)
    await assert_invariants(crash_space, wait=False, lost=lost)


@pytest_asyncio.fixture
async def replicated(private_cluster: PrivateCluster) -> RunningCluster:
    """A cluster of two planners, of which one leads, and two evictors."""
    options = ClusterOptions(failpoints=True, fallback=False, planner_arguments=("--leader-elect",))
    cluster = await private_cluster(options)
    for service in ("planner", "evictor"):
        await asyncio.to_thread(cluster.owned.start_replica, service)
    return cluster


@pytest.mark.timeout(300 + 60 * REPEAT)
@pytest.mark.parametrize("point", ["planner.before-reply", "evictor.order-received", "evictor.after-delete"])
@killed_and_frozen
async def test_the_other_replica_takes_over(replicated: RunningCluster, point: str, action: str) -> None:
    """A frozen one stays so until the other has done its work."""
    failpoints = Failpoints(replicated)
    for _ in range(REPEAT):
        async with open_space(replicated) as space:
            await full_node(space, VICTIMS)
            failpoints.arm(point, action, hit=2 if point == "evictor.after-delete" else 1)
            pod = await preemptor(space, VICTIMS)
            pid = await failpoints.fired(point)
            assert await space.until_bound("p", seconds=RECOVERY_SECONDS) == "n1"
            if action == STOP:
                os.kill(pid, signal.SIGCONT)
            await assert_whole(space, [pod], orders=1)
            await assert_invariants(space, wait=False)


@repeated
async def test_marks_of_an_order_that_everybody_has_lost_are_cleared(
    *, whole_cluster: RunningCluster, crash_space: Space, failpoints: Failpoints, run: int
) -> None:
    await full_node(crash_space, VICTIMS)
    failpoints.arm("evictor.before-delete", KILL)
    pod = await preemptor(crash_space, VICTIMS)
    await failpoints.fires("evictor.before-delete", KILL)
    for component in ("evictor", "scheduler", "planner"):
        await whole_cluster.kill(component)
    await crash_space.delete("p")
    await crash_space.until_gone("p", uid=pod.metadata.uid)
    await without_nats(whole_cluster, "wiped")
    assert any(is_marked(pod) for pod in (await crash_space.pods()).values())

    for component in ("planner", "evictor", "scheduler"):
        await whole_cluster.start(component)
    await assert_nothing_left_behind(crash_space)
    assert len(await crash_space.pods()) == VICTIMS
