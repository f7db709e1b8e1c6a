"""What may happen to preemptor, node and victims while an order is in flight.

Cases A-6 to A-12 of docs/conformance.md, but for A-7 and A-9.

The evictor is stopped for the time that a test needs between the order and its first delete. Nobody else
preempts in this cluster, so whoever is bound was helped by makeway.
"""

import pytest

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.crashing import assert_nothing_left_behind
from integration.forbidding import UNDELETABLE, deletes_refused
from integration.preempting import (
    all_orders,
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    assert_stays_pending,
    deletes_of,
    ordered,
    outcome_of_order,
    run_victims,
    settle,
    sized,
    until_tried_again,
)
from integration.space import Space
from integration.waiting import until_seen
from makeway.dev.kwok import AFTER_GRACE

pytestmark = pytest.mark.both_forms


@pytest.fixture
def cluster(race_cluster: RunningCluster) -> RunningCluster:
    """These cases run with the scheduler's API calls in and outside of its cycles, and from outside it."""
    return race_cluster


@pytest.mark.usefixtures("space_without_evictor")
async def test_a_6_a_second_preemptor_of_higher_priority_takes_the_room_of_the_first(space: Space) -> None:
    await run_victims(space, sized("victim", "low", 500).on("n1"))
    first = await ordered(space, sized("first", "mid", 500))
    second = await ordered(space, sized("second", "high", 500))
    tries = len(await space.bus.decisions(first.metadata.uid))
    (order,) = await space.bus.orders(second.metadata.uid)
    await space.cluster.start("evictor")

    assert order.victims == ()
    assert [awaited.order_id for awaited in order.awaited] == [
        stored.order_id for stored in await space.bus.orders(first.metadata.uid)
    ]
    assert [pod.uid for pod in order.nominations_to_clear] == [first.metadata.uid]
    assert await space.until_bound("second") == "n1"
    await until_tried_again(space, first, tries)
    await assert_nothing_left_behind(space)
    await assert_only_ordered_pods_were_deleted(space, [first, second])


async def test_a_8_a_leaving_victim_is_waited_for_without_delete_or_second_order(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await space.run(sized("victim", "low", 500).grace(4).leaves(AFTER_GRACE).on("n1"))
    await space.delete("victim")
    await settle()

    (preemptor,) = await space.create(sized("p", "high", 500))
    await space.until_gone("victim")

    # kube-scheduler leaves it parked for up to five minutes here.
    assert await space.until_bound("p", seconds=3) == "n1"
    assert await space.bus.orders(preemptor.metadata.uid) == []
    assert [event.user for event in deletes_of(space, "victim") if "evictor" in event.user] == []
    # Without spinning: one question, or two where the first answer came before the planner saw the delete.
    assert len(await space.bus.decisions(preemptor.metadata.uid)) <= 2
    assert_bound_once(space, "p")


@pytest.mark.usefixtures("space_without_evictor")
async def test_a_10_a_preemptor_that_is_deleted_ends_its_order(space: Space) -> None:
    await run_victims(space, sized("victim", "low", 500).on("n1"))
    preemptor = await ordered(space, sized("p", "high", 500))
    await space.remove("p")
    await space.cluster.start("evictor")

    _, outcome = await outcome_of_order(space, preemptor)
    assert (outcome.result, outcome.reason) == ("cancelled", "preemptor-gone")
    assert deletes_of(space, "victim") == []
    await assert_nothing_left_behind(space)


@pytest.mark.wide
@pytest.mark.usefixtures("space_without_evictor")
async def test_a_10_a_preemptor_bound_elsewhere_ends_its_order(space: Space) -> None:
    await run_victims(space, sized("victim", "low", 500).on("n1"))
    preemptor = await ordered(space, sized("p", "high", 500))
    (other,) = await space.add_nodes(make_node("n2").cpu("500m"))
    if space.cluster.external:
        assert await space.until_bound("p") == "n2"  # it is not held back
    else:
        await space.bind("p", other)
    await space.cluster.start("evictor")

    _, outcome = await outcome_of_order(space, preemptor)
    assert (outcome.result, outcome.reason) == ("cancelled", "preemptor-bound")
    assert await space.node_of("p") == "n2"
    assert deletes_of(space, "victim") == []
    await assert_nothing_left_behind(space)


@pytest.mark.usefixtures("space_without_evictor")
async def test_a_11_a_preemptor_whose_node_is_deleted_goes_elsewhere_and_nothing_is_evicted_there(
    space: Space,
) -> None:
    await space.add_nodes(make_node("n2").cpu("500m"))
    await run_victims(space, sized("v1", "low", 500).on("n1"), sized("v2", "mid", 500).on("n2"))
    preemptor = await ordered(space, sized("p", "high", 500))
    await space.delete_node("n1")
    await space.cluster.start("evictor")

    _, outcome = await outcome_of_order(space, preemptor)
    assert (outcome.result, outcome.reason) == ("cancelled", "node-gone")
    assert await space.until_bound("p", seconds=10) == "n2"
    assert [event.user for event in deletes_of(space, "v1") if "evictor" in event.user] == []
    assert len(await space.bus.orders(preemptor.metadata.uid)) == 2


@pytest.mark.usefixtures("space_without_evictor")
async def test_a_12_a_pod_made_anew_under_a_victims_name_is_never_deleted(space: Space) -> None:
    (old,) = await run_victims(space, sized("victim", "low", 500).on("n1"))
    preemptor = await ordered(space, sized("p", "high", 500))
    await space.remove("victim")
    await space.add_nodes(make_node("n2").cpu("500m"))
    (new,) = await space.run(sized("victim", "low", 500).on("n2"))
    await space.cluster.start("evictor")

    _, outcome = await outcome_of_order(space, preemptor)
    if space.cluster.external:
        # It is not held back: it has the room since the victim left.
        assert (outcome.result, outcome.reason) == ("cancelled", "preemptor-bound")
    else:
        assert outcome.result == "succeeded"
        assert [(v.uid, v.result) for v in outcome.victims] == [(old.metadata.uid, "gone")]
    assert await space.until_bound("p", seconds=10) == "n1"
    pod = await space.pod("victim")
    assert pod is not None
    assert pod.metadata.uid == new.metadata.uid
    assert pod.metadata.deletion_timestamp is None
    assert "DisruptionTarget" not in {c.type for c in pod.status.conditions or ()}


@pytest.mark.usefixtures("space_without_evictor")
async def test_an_order_that_counts_on_another_fails_with_it(space: Space) -> None:
    await run_victims(space, sized("victim", "low", 500).label(*UNDELETABLE).on("n1"))

    async with deletes_refused(space, "victim"):
        first = await ordered(space, sized("p1", "high", 250))
        second = await ordered(space, sized("p2", "high", 250))
        tries = [len(await space.bus.decisions(pod.metadata.uid)) for pod in (first, second)]
        await space.cluster.start("evictor")

        _, outcome = await outcome_of_order(space, first)
        assert outcome.result == "failed"
        _, outcome = await outcome_of_order(space, second)
        assert (outcome.result, outcome.reason) == ("failed", "awaited-order-failed")
        # Only the first one's node is at fault, as far as the first one can tell; the second asks again.
        await until_tried_again(space, second, tries[1])
        await assert_stays_pending(space, "p1", seconds=1)
        await assert_stays_pending(space, "p2", seconds=1)

    assert len(deletes_of(space, "victim")) <= 1
    assert {order.node for order in await all_orders(space, [first, second])} == {space.node_name("n1")}


@pytest.mark.slow
@pytest.mark.usefixtures("space_without_evictor")
async def test_a_nomination_left_over_holds_no_place_that_cannot_be_had(space: Space) -> None:
    # kubernetes#106780: the nominated node stops being possible, and the nomination stays for ever.
    await run_victims(space, sized("victim", "low", 500).on("n1"))
    preemptor = await ordered(space, sized("p", "high", 500))
    await space.cordon("n1")
    await space.cluster.start("evictor")
    await outcome_of_order(space, preemptor)

    await until_seen(
        "the nomination is gone",
        lambda: space.pod("p"),
        lambda pod: pod is not None and not pod.status.nominated_node_name,
        seconds=10,
    )
    await assert_stays_pending(space, "p", seconds=1)
