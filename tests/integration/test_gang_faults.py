"""Gangs on the real control plane while something happens to them, or to one of makeway's parts.

Without a plan a group waits there (the policy protects pods), so that all that is evicted is makeway's doing.
At the end of each test the checker judges what was done, with its rules for groups.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from integration.arming import HOLD, KILL, Crashes, Failpoints
from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.configuring import NO_LIMITS, put_queues
from integration.crashing import (
    EVICTING,
    PLANNING_GROUPS,
    RECOVERY_SECONDS,
    REHEARSING,
    ROLLING_BACK,
    SCHEDULING,
    assert_nothing_left_behind,
)
from integration.forbidding import UNDELETABLE, deletes_refused
from integration.ganging import Gang, faulty_space, first_outcome, gang, groups_path, in_group
from integration.preempting import assert_bound_once, deletes_of, run_victims, sized
from integration.queueing import never, queue, queues_yaml
from integration.space import Space
from integration.test_evictor_api import events_of
from integration.waiting import NotYet, until, until_seen
from makeway.dev.options import EVICTOR, PLANNER, SCHEDULER

UNIT = ("old-0", "old-1")
"""Pods of a group of mode all: both go, or none."""
VICTIMS = ("large", *UNIT)
"""On the nodes n0, n1, n2, which they fill."""


@pytest_asyncio.fixture
async def space(gang_planning_cluster: RunningCluster) -> AsyncIterator[Space]:
    """Give three full nodes, and one that no pod of the gang tolerates."""
    async with faulty_space(gang_planning_cluster, UNIT) as opened:
        yield opened


async def evicted(space: Space) -> set[str]:
    """The victims that are gone or leaving; a unit is never broken."""
    pods = await space.pods()
    gone = {name for name in VICTIMS if name not in pods or pods[name].metadata.deletion_timestamp}
    assert gone & set(UNIT) in (set(), set(UNIT)), f"the unit is broken: {gone}"
    return gone


async def until_all_run(space: Space, train: Gang, *, seconds: float = RECOVERY_SECONDS) -> None:
    """Wait until all members are bound: each once, and no victim was deleted twice. Nothing is left."""
    for name in train.members:
        await space.until_bound(name, seconds=seconds)
    assert_bound_once(space, *train.members)
    assert await evicted(space) == set(VICTIMS)
    # The answer to an evictor that dies meanwhile is in the log as a time-out, or not at all.
    assert max(len(deletes_of(space, name)) for name in VICTIMS) == 1
    await assert_nothing_left_behind(space)


# --------------------------------------------------------------------- what happens to the group meanwhile


async def remove_member(space: Space) -> None:
    await space.remove("gang-2", grace_seconds=0)


async def renew_member(space: Space) -> None:
    await remove_member(space)
    await space.create(sized("gang-2", "high", 1000).spec(**in_group("gang")))


async def bind_member(space: Space) -> None:
    """Bind it to the node that is kept free, as another client does."""
    await space.bind("gang-2", space.node_name("spare"))


async def remove_group(space: Space) -> None:
    """Delete the PodGroup, which a controller keeps for as long as it has pods."""
    await space.api.request("DELETE", groups_path(space, "gang"))


async def lower_min_count(space: Space) -> None:
    await space.merge(groups_path(space, "gang"), {"spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}})


Change = Callable[[Space], Awaitable[None]]


async def while_it_runs(space: Space, change: Change, point: str, hit: int = 1) -> Gang:
    """Create the gang, and change something when its order has come to a point; gives the gang."""
    failpoints = Failpoints(space.cluster)
    failpoints.arm(point, HOLD, hit=hit)
    train = await gang(space)
    await failpoints.fired(point)
    await change(space)
    failpoints.let_go(point)
    return train


BEFORE_ANY_DELETE = (
    ("evictor.order-received", 1),
    pytest.param("evictor.before-dry-run", 3, marks=pytest.mark.slow),
)


@pytest.mark.parametrize(("point", "hit"), BEFORE_ANY_DELETE)
async def test_no_victim_goes_for_a_gang_that_lost_a_member(space: Space, point: str, hit: int) -> None:
    train = await while_it_runs(space, remove_member, point, hit)

    assert (await first_outcome(space, train)).result == "cancelled"
    await assert_nothing_left_behind(space)
    assert await evicted(space) == set()
    pods = await space.pods()
    assert [name for name in train.members if name in pods and pods[name].spec.node_name] == []


@pytest.mark.parametrize(("point", "hit"), BEFORE_ANY_DELETE)
async def test_a_gang_with_a_member_made_anew_gets_another_order(space: Space, point: str, hit: int) -> None:
    train = await while_it_runs(space, renew_member, point, hit)

    assert (await first_outcome(space, train)).result == "cancelled"
    await until_all_run(space, train)


@pytest.mark.wide
@pytest.mark.parametrize(("point", "hit"), BEFORE_ANY_DELETE)
async def test_a_gang_whose_member_was_bound_elsewhere_makes_room_for_the_others(
    space: Space, point: str, hit: int
) -> None:
    train = await while_it_runs(space, bind_member, point, hit)

    assert (await first_outcome(space, train)).result == "cancelled"
    for name in train.members:
        await space.until_bound(name, seconds=RECOVERY_SECONDS)
    assert await space.node_of("gang-2") == "spare"
    # Two nodes are needed, so the unit goes in any case, and frees both.
    assert await evicted(space) == set(UNIT)
    await assert_nothing_left_behind(space)


@pytest.mark.parametrize(("point", "hit"), BEFORE_ANY_DELETE)
async def test_no_victim_goes_for_a_group_that_is_being_deleted(space: Space, point: str, hit: int) -> None:
    train = await while_it_runs(space, remove_group, point, hit)

    assert (await first_outcome(space, train)).result == "cancelled"
    await never(5, "a victim goes", lambda: evicted(space))
    await assert_nothing_left_behind(space)


@pytest.mark.wide
@pytest.mark.parametrize(("point", "hit"), BEFORE_ANY_DELETE)
async def test_a_gang_that_needs_fewer_now_is_planned_for_again(space: Space, point: str, hit: int) -> None:
    train = await while_it_runs(space, lower_min_count, point, hit)

    assert (await first_outcome(space, train)).result == "cancelled"

    await until_seen(
        "a member is bound",
        space.pods,
        lambda pods: any(pods[name].spec.node_name for name in train.members),
        seconds=RECOVERY_SECONDS,
    )
    await evicted(space)
    await assert_nothing_left_behind(space)


@pytest.mark.slow
@pytest.mark.parametrize("change", [renew_member, bind_member, remove_group, lower_min_count])
@pytest.mark.parametrize("point", ["evictor.barrier-passed", "evictor.after-delete"])
async def test_a_change_after_the_last_look_leaves_no_trace(space: Space, change: Change, point: str) -> None:
    train = await while_it_runs(space, change, point)

    await first_outcome(space, train)
    if change in (renew_member, bind_member):
        for name in train.members:
            await space.until_bound(name, seconds=RECOVERY_SECONDS)

    async def whole() -> bool:
        pods = await space.pods()
        there = [name for name in UNIT if name in pods and not pods[name].metadata.deletion_timestamp]
        if len(there) not in (0, len(UNIT)):
            raise NotYet(f"of the unit there is {there}")
        return True

    await until("the unit is whole, or gone", whole)
    await assert_nothing_left_behind(space)


@pytest.mark.parametrize("restarted", ["", pytest.param(SCHEDULER, marks=pytest.mark.slow)])
async def test_room_that_a_gang_has_too_few_members_for_is_free_again(space: Space, restarted: str) -> None:
    train = await while_it_runs(space, remove_member, "evictor.before-outcome")
    assert (await first_outcome(space, train)).result == "succeeded"
    assert await evicted(space) == set(VICTIMS)
    if restarted:
        await space.cluster.kill(restarted)
        await space.cluster.start(restarted)

    await space.create(*(sized(f"other-{number}", "low", 1000) for number in range(len(VICTIMS))))

    for number in range(len(VICTIMS)):
        await space.until_bound(f"other-{number}", seconds=RECOVERY_SECONDS)
    await assert_nothing_left_behind(space)
    pods = await space.pods()
    assert [name for name in train.members if name in pods and pods[name].spec.node_name] == []
    assert len(await space.bus.group_orders(train.uid)) == 1
    [told] = [one["note"] for one in await events_of(space, "gang") if one["reason"] == "RoomGivenUp"]
    assert "2 of the 3 pods that the gang needs are there" in told


async def test_a_gang_whose_member_is_made_anew_within_seconds_keeps_its_room(space: Space) -> None:
    train = await while_it_runs(space, remove_member, "evictor.before-outcome")
    assert (await first_outcome(space, train)).result == "succeeded"

    async def lost() -> bool:
        pods = await space.pods()
        return not all(pods[name].status.nominated_node_name for name in ("gang-0", "gang-1"))

    await never(5, "a member that waits loses its place", lost)
    await space.create(sized("gang-2", "high", 1000).spec(**in_group("gang")))

    await until_all_run(space, train)
    assert len(await space.bus.group_orders(train.uid)) == 1


# ------------------------------------------------------------------------------------------ a part is killed

QUICK = {
    "planner.before-group-reply",
    "scheduler.nominated",
    "scheduler.after-publish",
    "evictor.after-delete",
}


def _slow_but(quick: set[str], points: tuple[str, ...]) -> list[object]:
    return [point if point in quick else pytest.param(point, marks=pytest.mark.slow) for point in points]


@pytest.mark.wide
@pytest.mark.parametrize("point", _slow_but(QUICK, (*PLANNING_GROUPS, *SCHEDULING, *EVICTING, *REHEARSING)))
async def test_a_gang_gets_its_room_though_a_part_is_killed(space: Space, point: str) -> None:
    component = point.partition(".")[0]
    assert component in (PLANNER, SCHEDULER, EVICTOR)

    async with Crashes(space.cluster, component).at(point, KILL) as crashed:
        train = await gang(space)
        await crashed()

    await until_all_run(space, train)


@pytest.mark.wide
@pytest.mark.parametrize("point", _slow_but({"evictor.after-revert"}, ROLLING_BACK))
async def test_a_gangs_order_is_rolled_back_though_its_evictor_is_killed(space: Space, point: str) -> None:
    key, value = UNDELETABLE
    await space.patch("large", {"metadata": {"labels": {key: value}}})

    async with deletes_refused(space, "large"):
        async with Crashes(space.cluster, EVICTOR).at(point, KILL) as crashed:
            train = await gang(space)
            await crashed()

        assert (await first_outcome(space, train)).result in ("failed", "cancelled")
        await assert_nothing_left_behind(space)
        assert await evicted(space) == set()


# ------------------------------------------------------------------------------------- under the queue gate


async def test_all_members_of_a_gang_hold_quota_or_none(space: Space) -> None:
    await space.delete_pods()
    path = f"root.{space.namespace}"
    await run_victims(
        space, *(sized(f"low-{n}", "low", 1000).on(f"n{n}").label("queue", "root.other") for n in range(3))
    )
    try:
        await put_queues(space.cluster, queues_yaml(queue(space.namespace, max=2), queue("other")))
        train = await gang(space, queue=path)

        async def taken() -> list[str]:
            pods = await space.pods()
            low = [
                name
                for name in (f"low-{n}" for n in range(3))
                if name not in pods or pods[name].metadata.deletion_timestamp
            ]
            return low + [name for name in train.members if pods[name].spec.node_name]

        await never(5, "a half gang holds quota", taken)
        await assert_nothing_left_behind(space)

        await put_queues(space.cluster, queues_yaml(queue(space.namespace, max=3), queue("other")))
        for name in train.members:
            await space.until_bound(name, seconds=RECOVERY_SECONDS)
        await assert_nothing_left_behind(space)
    finally:
        await put_queues(space.cluster, NO_LIMITS)


async def test_of_two_gangs_in_a_queue_with_room_for_one_and_a_half_one_runs(space: Space) -> None:
    await space.delete_pods()
    path = f"root.{space.namespace}"
    await space.add_nodes(make_node("n3").cpu("1"))
    await run_victims(
        space, *(sized(f"low-{n}", "low", 1000).on(f"n{n}").label("queue", "root.other") for n in range(4))
    )
    try:
        await put_queues(space.cluster, queues_yaml(queue(space.namespace, max=3), queue("other")))
        gangs = [await gang(space, name, members=2, queue=path) for name in ("first", "second")]

        async def running(count: int) -> list[Gang]:
            pods = await space.pods()
            found = [
                [one for one in each.members if one in pods and pods[one].spec.node_name] for each in gangs
            ]
            whole = [each for each, bound in zip(gangs, found, strict=True) if bound == each.members]
            if len(whole) != count or sum(map(len, found)) != 2 * count:
                raise NotYet(str(found))
            return whole

        (placed,) = await until("one gang runs", lambda: running(1), seconds=RECOVERY_SECONDS)
        await asyncio.sleep(3)
        assert await running(1) == [placed]
        assert len([name for name in await space.pods() if name.startswith("low-")]) == 2

        for name in placed.members:
            await space.delete(name, grace_seconds=0)
        (other,) = await until("the other runs", lambda: running(1), seconds=RECOVERY_SECONDS)
        assert other != placed
        await assert_nothing_left_behind(space)
    finally:
        await put_queues(space.cluster, NO_LIMITS)
