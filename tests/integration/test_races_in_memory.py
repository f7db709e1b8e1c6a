"""Victims that the scheduler has placed and not bound yet, which live in its memory alone.

Case A-9 of docs/conformance.md.

The pods are held in Permit, PreBind and Bind by plugins that act on annotations; see
plugin/internal/testscheduler. kube-scheduler's own preemption left such preemptors stuck
(kubernetes#140082).
"""

import pytest

from integration.builders import PodBuilder, make_node
from integration.crashing import assert_nothing_left_behind
from integration.preempting import assert_bound_once, deletes_of, outcome_of_order, settle, sized
from integration.space import Space
from integration.waiting import until_seen
from narrowing import there

PERMIT = "tests.makeway.dev/permit"
PRE_BIND = "tests.makeway.dev/pre-bind"
DEAF_PRE_BIND = "tests.makeway.dev/deaf-pre-bind"
BIND = "tests.makeway.dev/bind"


@pytest.fixture
def space(race_space: Space) -> Space:
    """Run with the test plugins, in each way of the scheduler to call the API."""
    return race_space


async def until_assumed(space: Space, pod: PodBuilder) -> None:
    """Create a pod and wait until the scheduler has placed it; the scheduler says so by a nomination."""
    await space.create(pod)

    await until_seen(
        f"{pod.name} is placed",
        lambda: space.pod(pod.name),
        lambda seen: seen is not None and seen.status.nominated_node_name,
    )
    await settle()


@pytest.mark.parametrize("where", [PERMIT, PRE_BIND], ids=["permit", "pre-bind"])
async def test_a_9_a_victim_that_is_not_bound_yet_makes_room_without_being_deleted(
    space: Space, where: str
) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await until_assumed(space, sized("victim", "low", 500).annotation(where, "120s"))
    victim = await space.pod("victim")

    (preemptor,) = await space.create(sized("p", "high", 500))

    assert await space.until_bound("p", seconds=5) == "n1"
    assert await space.bus.orders(preemptor.metadata.uid) == []
    assert deletes_of(space, "victim") == []
    left = there(await space.pod("victim"))
    assert left.metadata.uid == there(victim).metadata.uid
    assert not left.spec.node_name
    assert_bound_once(space, "p")
    await assert_nothing_left_behind(space)


@pytest.mark.slow
async def test_a_9_a_pre_bind_that_does_not_listen_is_waited_for(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await until_assumed(space, sized("victim", "low", 500).annotation(DEAF_PRE_BIND, "5s"))

    (preemptor,) = await space.create(sized("p", "high", 500))

    assert await space.until_bound("p", seconds=12) == "n1"
    assert await space.bus.orders(preemptor.metadata.uid) == []
    assert deletes_of(space, "victim") == []
    assert len(await space.bus.decisions(preemptor.metadata.uid)) == 1
    await assert_nothing_left_behind(space)


async def test_a_9_a_victim_that_cannot_be_called_back_is_ordered_once_it_is_bound(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    # A moment in PreBind tells the test that it is placed; then Bind holds it.
    victim = sized("victim", "low", 500).annotation(PRE_BIND, "1ms").annotation(BIND, "4s")
    await until_assumed(space, victim)

    (preemptor,) = await space.create(sized("p", "high", 500))

    order, outcome = await outcome_of_order(space, preemptor)
    assert [(v.name, v.assumed) for v in order.victims] == [("victim", False)]
    assert outcome.result == "succeeded"
    assert await space.until_bound("p", seconds=10) == "n1"
    assert len(await space.bus.orders(preemptor.metadata.uid)) == 1
    assert await space.pod("victim") is None
    await assert_nothing_left_behind(space)


async def test_a_9_one_victim_in_memory_and_one_in_the_api_leave_together(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await space.run(sized("bound", "low", 250).on("n1"))
    await until_assumed(space, sized("waiting", "low", 250).annotation(PERMIT, "120s"))

    (preemptor,) = await space.create(sized("p", "high", 500))

    assert await space.until_bound("p", seconds=5) == "n1"
    order, _ = await outcome_of_order(space, preemptor)
    assert [victim.name for victim in order.victims] == ["bound"]
    assert deletes_of(space, "waiting") == []
    await assert_nothing_left_behind(space)
