"""A unit that keeps growing keeps no preemptor waiting for ever."""

from datetime import timedelta

import pytest

from makeway.core.k8s.objects import Pod, PodCondition
from makeway.evictor.judge.late_members import MOST_UNITS, REFUSALS, REMEMBERED, LateMembers
from makeway.evictor.judge.members import member_of
from unit.evictor.building import NODE, NOW, changed
from unit.evictor.test_groups import UNIT, member, unit_order, world_of
from unit.evictor.test_service import World


def bound(name: str, seconds: float) -> Pod:
    """A member of the unit that was bound so many seconds after the order was written."""
    at = (unit_order().created_at + timedelta(seconds=seconds)).replace(microsecond=0)
    condition = PodCondition(type="PodScheduled", status="True", last_transition_time=at)
    return changed(member(name, "node-z"), "status", conditions=(condition,))


async def reasons(world: World, late: Pod, orders: int) -> list[str]:
    """What a unit's orders end by where each finds a pod more."""
    world.cluster.put(late)
    found = []
    for number in range(orders):
        outcome = await world.carry_out(unit_order("a", "b", order_id=f"ord-{number}"))
        found.append(outcome.reason or outcome.result)
        world.cluster.put(changed(world.cluster.pods["urgent"], "status", nominated_node_name=NODE))
    return found


@pytest.mark.parametrize("seconds", [1, 0, -20], ids=["after it", "in its second", "between plan and order"])
async def test_a_pod_the_plan_cannot_have_seen_refuses_two_orders_and_no_more(seconds: float) -> None:
    world = world_of(member("a"), member("b", "node-b"))

    found = await reasons(world, bound("late", seconds), REFUSALS + 1)

    assert found == ["unit-incomplete"] * REFUSALS + ["succeeded"]
    assert "late" in world.cluster.pods


async def test_a_pod_that_was_there_before_the_order_always_refuses_it() -> None:
    world = world_of(member("a"), member("b", "node-b"))

    found = await reasons(world, bound("early", -40), REFUSALS + 2)

    assert found == ["unit-incomplete"] * (REFUSALS + 2)


async def test_a_pod_that_was_there_before_is_named_rather_than_one_that_came_after() -> None:
    world = world_of(member("a"), member("b", "node-b"), bound("early", -40))
    world.cluster.put(bound("a-late", 1))

    outcome = await world.carry_out(unit_order("a", "b"))

    assert "leaves default/early out" in outcome.message


def test_a_pod_made_with_its_node_is_bound_when_it_is_made() -> None:
    pod = changed(member("a"), "metadata", creation_timestamp=NOW)
    pod = changed(pod, "status", conditions=(PodCondition(type="PodScheduled", status="False"),))

    found = member_of(pod)

    assert found is not None
    assert found[1].bound_at == NOW


@pytest.mark.parametrize(("times", "growing"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_unit_grows_once_orders_were_refused_for_it(times: int, growing: bool) -> None:
    late = LateMembers()
    for _ in range(times):
        late.refused(UNIT, NOW)

    assert late.growing([UNIT, "other"], NOW) == ({UNIT} if growing else set())


def test_refusals_of_long_ago_do_not_count() -> None:
    late = LateMembers()
    late.refused(UNIT, NOW)
    late.refused(UNIT, NOW)
    long_after = NOW + REMEMBERED + timedelta(seconds=1)

    assert late.growing([UNIT], long_after) == set()
    late.refused(UNIT, long_after)
    assert late.growing([UNIT], long_after) == set()


def test_no_more_units_are_remembered_than_a_thousand() -> None:
    late = LateMembers()
    for number in range(MOST_UNITS + 5):
        late.refused(f"{number}", NOW)
        late.refused(f"{number}", NOW)

    assert late.growing(["4", "5"], NOW) == {"5"}
