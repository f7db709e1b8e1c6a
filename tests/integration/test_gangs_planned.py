"""Gangs make room on the real control plane of Kubernetes 1.37: planned, verified and evicted for as one."""

import pytest

from integration.arming import KILL, Crashes
from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.crashing import RECOVERY_SECONDS
from integration.ganging import (
    gang,
    in_group,
    is_refused_where_a_victim_may_not_be_deleted,
    pod_group,
    small_and_large,
    takes_the_room_with_the_fewest_pods,
)
from integration.pod_groups import form
from integration.preempting import run_victims, sized
from integration.space import Space
from integration.test_evictor_api import events_of
from integration.waiting import NotYet, until
from makeway.core.k8s.disruption import preempted_for_group
from makeway.dev.kwok import NEVER
from makeway.dev.options import SCHEDULER

AFTER_COMMIT = "scheduler.after-commit"


@pytest.fixture
def cluster(gang_planning_cluster: RunningCluster) -> RunningCluster:
    """Run them where gangs are planned for."""
    return gang_planning_cluster


async def test_a_gang_takes_the_room_that_costs_the_fewest_pods(space: Space) -> None:
    await takes_the_room_with_the_fewest_pods(space)


async def test_nothing_is_evicted_for_a_gang_that_cannot_have_enough(space: Space) -> None:
    await space.add_nodes(make_node("n0").cpu("1"), make_node("n1").cpu("1"))
    await run_victims(space, *(sized(f"low-{n}", "low", 1000).on(f"n{n}") for n in range(2)))

    train = await gang(space)

    with pytest.raises(AssertionError, match="is bound"):
        await space.until_bound("gang-0", seconds=5)
    assert await space.bus.group_orders(train.uid) == []
    assert {"low-0", "low-1"} <= set(await space.pods())


async def test_a_group_of_mode_all_goes_whole_for_a_gang(space: Space) -> None:
    await space.add_nodes(make_node("n0").cpu("1"), make_node("n1").cpu("1"))
    await pod_group(
        space, "old", schedulingPolicy={"basic": {}}, disruptionMode=form().whole, priorityClassName="low"
    )
    old = [sized(f"old-{n}", "low", 1000).on(f"n{n}").spec(**in_group("old")) for n in range(2)]
    await run_victims(space, *old)

    train = await gang(space, members=1)

    await space.until_bound("gang-0")
    (order,) = await space.bus.group_orders(train.uid)
    assert sorted(victim.name for victim in order.victims) == ["old-0", "old-1"]
    assert len({victim.unit for victim in order.victims} - {""}) == 1


async def test_group_and_victims_are_told_of_the_room_that_was_made(space: Space) -> None:
    await space.add_nodes(make_node("n0").cpu("1"), make_node("n1").cpu("1"))
    await run_victims(space, *(sized(f"low-{n}", "low", 1000).leaves(NEVER).on(f"n{n}") for n in range(2)))

    await gang(space, members=2)

    async def told() -> dict[str, str]:
        names = ("gang", "low-0")
        found = {one["reason"]: one["note"] for name in names for one in await events_of(space, name)}
        if not {"RoomMade", "Preempted"} <= set(found):
            raise NotYet(str(found))
        return found

    found = await until("Events tell of both", told)
    assert found["RoomMade"] == "Evicted 2 pods from 2 nodes"
    assert "Preempted by podgroup " in found["Preempted"]
    pods = await space.pods()
    assert all(preempted_for_group(pods[f"low-{n}"]) for n in range(2))


async def test_two_gangs_that_need_the_same_room_get_it_one_after_the_other(space: Space) -> None:
    await space.add_nodes(*(make_node(f"n{n}").cpu("1") for n in range(3)))
    await run_victims(space, *(sized(f"low-{n}", "low", 1000).on(f"n{n}") for n in range(3)))

    first, second = await gang(space, "first", members=2), await gang(space, "second", members=2)

    async def one_runs() -> str:
        pods = await space.pods()
        bound = [one for one in (first, second) if all(pods[name].spec.node_name for name in one.members)]
        if len(bound) != 1:
            raise NotYet(f"{len(bound)} run")
        return bound[0].uid

    placed = await until("one gang is placed", one_runs)
    waiting = second if placed == first.uid else first
    pods = await space.pods()
    assert [name for name in waiting.members if pods[name].spec.node_name] == [], "half a gang runs"
    assert len([name for name in pods if name.startswith("low-")]) == 1


async def test_a_gang_gets_no_room_where_a_victim_may_not_be_deleted(space: Space) -> None:
    await is_refused_where_a_victim_may_not_be_deleted(space)


async def test_a_scheduler_killed_after_the_order_is_stored_goes_on_with_it(
    cluster: RunningCluster, space: Space
) -> None:
    await small_and_large(space)
    crashes = Crashes(cluster, SCHEDULER)

    async with crashes.at(AFTER_COMMIT, KILL):
        train = await gang(space)

    for name in train.members:
        await space.until_bound(name, seconds=RECOVERY_SECONDS)
    assert len(await space.bus.group_orders(train.uid)) == 1
    assert len([name for name in await space.pods() if name.startswith("small-")]) == 12
