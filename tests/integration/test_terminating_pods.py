"""Room that terminating pods make: no running pod is evicted for it, and overdue pods make none.

Cases DP-19 and DP-20 of docs/conformance.md.
"""

import asyncio

import pytest

from integration.builders import make_node
from integration.preempting import (
    EVICTOR_USER,
    assert_stays_pending,
    deletes_of,
    first_decision,
    settle,
    sized,
    until_ordered,
)
from integration.space import Space
from makeway.dev.kwok import NEVER

OVERDUE_SECONDS = 62
"""A grace period of 1 s, and the minute after which a pod is overdue."""

MOST_QUESTIONS = 8
"""For a pod that waits for some seconds; without its back-off there would be hundreds."""


@pytest.mark.both_forms
async def test_dp_19_no_running_pod_goes_where_a_terminating_one_makes_the_room(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    await space.run(
        sized("leaving", "mid", 500).grace(30).leaves(NEVER).on("n1"), sized("runs", "low", 500).on("n2")
    )
    await space.delete("leaving")
    await settle()

    (pod,) = await space.create(sized("p", "high", 500))

    assert (await first_decision(space, pod)).victims == ()
    await assert_stays_pending(space, "p")
    assert (await space.pods())["p"].status.nominated_node_name == space.node_name("n1")
    await space.delete("leaving", grace_seconds=0)
    assert await space.until_bound("p", seconds=10) == "n1"
    assert await space.bus.orders(pod.metadata.uid) == []
    assert deletes_of(space, "runs") == []
    assert len(await space.bus.decisions(pod.metadata.uid)) <= MOST_QUESTIONS


@pytest.mark.both_forms
async def test_what_terminating_pods_leave_missing_is_ordered_and_both_are_waited_for(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await space.run(
        sized("leaving", "low", 250).grace(30).leaves(NEVER).on("n1"), sized("runs", "low", 250).on("n1")
    )
    await space.delete("leaving")
    await settle()

    (pod,) = await space.create(sized("p", "high", 500))

    order = await until_ordered(space, pod)
    assert [victim.name for victim in order.victims] == ["runs"]
    assert [(one.name, one.order_id) for one in order.awaited] == [("leaving", "")]
    await space.until_gone("runs")
    await assert_stays_pending(space, "p")
    await space.delete("leaving", grace_seconds=0)
    assert await space.until_bound("p", seconds=10) == "n1"
    assert len(await space.bus.orders(pod.metadata.uid)) == 1


@pytest.mark.both_forms
@pytest.mark.slow
async def test_dp_20_an_overdue_pod_makes_no_room_and_a_running_one_goes(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    await space.run(
        sized("stuck", "neg", 500).grace(1).leaves(NEVER).on("n1"), sized("runs", "low", 500).on("n2")
    )
    await space.delete("stuck")
    await asyncio.sleep(OVERDUE_SECONDS)

    (pod,) = await space.create(sized("p", "high", 500))

    assert await space.until_bound("p") == "n2"
    orders = await space.bus.orders(pod.metadata.uid)
    assert [[victim.name for victim in order.victims] for order in orders] == [["runs"]]
    assert [event.user for event in deletes_of(space, "stuck") if event.user == EVICTOR_USER] == []
