"""The nomination's way to the API: refused, or so late that nobody waits for it any more."""

from datetime import timedelta
from pathlib import Path

import pytest

from integration.builders import make_node
from integration.crashing import assert_nothing_left_behind
from integration.delaying import nominations_delayed
from integration.forbidding import nominations_refused
from integration.preempting import (
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    assert_stays_pending,
    outcome_of_order,
    run_victims,
    sized,
    until_tried_again,
)
from integration.space import Space

pytestmark = pytest.mark.both_forms

COMMIT_WAIT_SECONDS = 2.0
"""How long an order waits for its nomination to show."""


@pytest.fixture
def space(race_space: Space) -> Space:
    """Run with failpoints, in each way of the scheduler to call the API."""
    return race_space


async def test_without_a_nomination_no_order_is_committed_and_the_pod_is_tried_again(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(space, sized("victim", "low", 500).on("n1"))

    async with nominations_refused(space):
        (preemptor,) = await space.create(sized("p", "high", 500))
        await until_tried_again(space, preemptor, 1)
        await assert_stays_pending(space, "p", seconds=COMMIT_WAIT_SECONDS)
        assert await space.bus.orders(preemptor.metadata.uid) == []
        victim = await space.pod("victim")
        assert victim is not None
        assert victim.metadata.deletion_timestamp is None
        # One try in two seconds, not a loop.
        assert len(await space.bus.decisions(preemptor.metadata.uid)) <= 8

    assert await space.until_bound("p", seconds=10) == "n1"
    assert len(await space.bus.orders(preemptor.metadata.uid)) == 1
    await assert_nothing_left_behind(space)


@pytest.mark.slow
async def test_a_place_whose_nomination_is_not_in_the_api_is_free_again_for_others(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(space, sized("victim", "low", 500).on("n1"))

    async with nominations_refused(space):
        (preemptor,) = await space.create(sized("p", "high", 500))
        await until_tried_again(space, preemptor, 0)
        await space.remove("p")
        await space.remove("victim")
        await space.create(sized("other", "low", 500))

        assert await space.until_bound("other", seconds=COMMIT_WAIT_SECONDS + 5) == "n1"
    assert await space.bus.orders(preemptor.metadata.uid) == []


async def test_a_nomination_that_comes_too_late_costs_time_alone(space: Space, tmp_path: Path) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(space, sized("victim", "low", 500).on("n1"))

    async with nominations_delayed(space, "victim", tmp_path, seconds=COMMIT_WAIT_SECONDS + 1.5):
        (preemptor,) = await space.create(sized("p", "high", 500))

        assert await space.until_bound("p", seconds=25) == "n1"

    order, outcome = await outcome_of_order(space, preemptor)
    assert outcome.result == "succeeded"
    assert len(await space.bus.orders(preemptor.metadata.uid)) == 1
    nominated = [
        event.answered_at
        for event in space.audit.events(resource="pods", subresource="status", namespace=space.namespace)
        if event.accepted and event.name == "p" and "nominatedNodeName" in str(event.request)
    ]
    # The nominator writes its order before, and counts the order's time from there. The planner may see the
    # nomination a moment before the API server has written down that it answered.
    assert space.cluster.external or min(nominated) <= order.created_at + timedelta(seconds=0.1)
    assert_bound_once(space, "p")
    await assert_only_ordered_pods_were_deleted(space, [preemptor])
