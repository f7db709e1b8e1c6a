"""KEP-4832 on a real scheduler: what may happen between the nomination and the last delete.

Cases A-1 to A-7 of docs/conformance.md, but for A-6.

Most tests stop the evictor, so that the time between the two is as long as they need, and free the room
by hand: then only the gate and the nomination stand between the room and whoever comes for it.
"""

import pytest

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.forbidding import UNDELETABLE, deletes_refused
from integration.preempting import (
    all_orders,
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    assert_stays_pending,
    ordered,
    outcome_of_order,
    run_victims,
    sized,
    until_tried_again,
)
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.core.k8s.objects import Pod


@pytest.fixture
def cluster(race_cluster: RunningCluster) -> RunningCluster:
    """These cases run with the scheduler's API calls in and outside of its cycles, and from outside it."""
    return race_cluster


@pytest.mark.usefixtures("space_without_evictor")
async def test_a_1_the_preemptor_is_held_until_its_order_is_done(space: Space) -> None:
    await run_victims(space, sized("victim", "low", 500).on("n1"))
    preemptor = await ordered(space, sized("p", "high", 500))

    await space.remove("victim")
    await assert_stays_pending(space, "p")
    await space.cluster.start("evictor")

    assert await space.until_bound("p") == "n1"
    _, outcome = await outcome_of_order(space, preemptor)
    assert outcome.result == "succeeded"
    assert [victim.result for victim in outcome.victims] == ["gone"]
    assert_bound_once(space, "p")


@pytest.mark.both_forms
@pytest.mark.parametrize("priority", ["high", "mid"])
@pytest.mark.usefixtures("space_without_evictor")
async def test_a_2_a_pod_of_equal_or_lower_priority_takes_no_such_place(space: Space, priority: str) -> None:
    await run_victims(space, sized("victim", "low", 500).on("n1"))
    await ordered(space, sized("p", "high", 500))

    await space.remove("victim")
    await space.create(sized("thief", priority, 500))
    await assert_stays_pending(space, "thief")
    await space.cluster.start("evictor")

    assert await space.until_bound("p") == "n1"
    await assert_stays_pending(space, "thief", seconds=1)


@pytest.mark.both_forms
@pytest.mark.usefixtures("space_without_evictor")
async def test_a_3_a_pod_that_fits_beside_it_may_share_the_node(space: Space) -> None:
    await run_victims(space, sized("victim", "low", 500).on("n1"))
    await ordered(space, sized("p", "high", 300))

    await space.remove("victim")
    await space.create(sized("neighbour", "high", 200))

    assert await space.until_bound("neighbour") == "n1"
    await space.cluster.start("evictor")
    assert await space.until_bound("p") == "n1"


@pytest.mark.usefixtures("space_without_evictor")
async def test_a_4_a_higher_one_may_take_it_and_the_first_is_tried_again_at_once(space: Space) -> None:
    await run_victims(space, sized("victim", "low", 500).on("n1"))
    preemptor = await ordered(space, sized("p", "mid", 500))
    tries = len(await space.bus.decisions(preemptor.metadata.uid))

    await space.remove("victim")
    await space.create(sized("higher", "high", 500))
    assert await space.until_bound("higher") == "n1"
    await space.cluster.start("evictor")
    await outcome_of_order(space, preemptor)

    await until_tried_again(space, preemptor, tries)


@pytest.mark.both_forms
@pytest.mark.usefixtures("space_without_evictor")
async def test_a_5_room_is_made_for_both_of_two_preemptors_on_one_node(space: Space) -> None:
    await run_victims(space, *[sized(name, "low", 250).on("n1") for name in ("v1", "v2")])

    preemptors = [await ordered(space, sized(name, "high", 250)) for name in ("p1", "p2")]
    victims = [victim.name for order in await all_orders(space, preemptors) for victim in order.victims]
    await space.cluster.start("evictor")

    assert sorted(victims) == ["v1", "v2"]
    assert [await space.until_bound(name) for name in ("p1", "p2")] == ["n1", "n1"]
    await assert_only_ordered_pods_were_deleted(space, preemptors)


@pytest.mark.both_forms
@pytest.mark.usefixtures("space_without_evictor")
async def test_a_5_a_victim_that_is_already_ordered_is_awaited_not_ordered_again(space: Space) -> None:
    (victim,) = await run_victims(space, sized("victim", "low", 500).on("n1"))

    first = await ordered(space, sized("p1", "high", 250))
    second = await ordered(space, sized("p2", "high", 250))
    (first_order,) = await space.bus.orders(first.metadata.uid)
    (second_order,) = await space.bus.orders(second.metadata.uid)
    await space.cluster.start("evictor")

    assert [v.uid for v in first_order.victims] == [victim.metadata.uid]
    assert second_order.victims == ()
    assert [(a.uid, a.order_id) for a in second_order.awaited] == [
        (victim.metadata.uid, first_order.order_id)
    ]
    assert [await space.until_bound(name) for name in ("p1", "p2")] == ["n1", "n1"]
    await assert_only_ordered_pods_were_deleted(space, [first, second])


@pytest.mark.both_forms
async def test_a_7_a_delete_that_fails_for_good_is_rolled_back(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(space, *[sized(name, "low", 250).label(*UNDELETABLE).on("n1") for name in ("v1", "v2")])

    async with deletes_refused(space, "v1"):
        (preemptor,) = await space.create(sized("p", "high", 500))
        order, outcome = await outcome_of_order(space, preemptor)

        assert outcome.result == "failed"
        assert "may not be deleted" in outcome.message
        assert outcome.rollback is not None
        assert outcome.rollback.nomination_reverted
        results = {victim.name: victim.result for victim in outcome.victims}
        assert results[order.victims[0].name] == "failed"
        assert results[order.victims[-1].name] == "notAttempted"
        await assert_nothing_left_behind(space)

        await until("p is tried again", lambda: tried_again(space, preemptor), seconds=10)

    last = order.victims[-1].name
    touched = [
        event.verb
        for event in space.audit.events(resource="pods", namespace=space.namespace, name=last)
        if event.verb in ("delete", "patch") and "evictor" in event.user
    ]
    # Its mark was its read; that was taken back.
    assert touched in ([], ["patch", "patch"])


async def tried_again(space: Space, preemptor: Pod) -> bool:
    """Report whether there is another answer, now that the refused pod is left out.

    The plugin says it in the pod's condition, and asks no planner where no pod is left to evict.
    """
    if space.cluster.external:
        if len(await space.bus.decisions(preemptor.metadata.uid)) < 2:
            raise NotYet("asked once")
        return True
    pod = await space.pod("p")
    messages = [c.message or "" for c in (pod.status.conditions if pod else None) or ()]
    if not any("left out for now, as impossible to evict" in m for m in messages):
        raise NotYet(str(messages))
    return True


async def assert_nothing_left_behind(space: Space) -> None:
    """No nomination, and no DisruptionTarget on pods that stay."""
    pods = await space.pods()
    assert pods["p"].status.nominated_node_name in (None, "")
    for name in ("v1", "v2"):
        assert pods[name].metadata.deletion_timestamp is None
        assert "DisruptionTarget" not in {c.type for c in pods[name].status.conditions or ()}
