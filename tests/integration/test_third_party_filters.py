"""A Filter plugin of which the planner knows nothing; the plugin's verification finds the victims.

Case DP-17 of docs/conformance.md.
"""

from integration.builders import make_node
from integration.preempting import (
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    first_decision,
    outcome_of_order,
    run_victims,
    sized,
)
from integration.space import Space

ALOOF_FROM = "tests.makeway.dev/aloof-from"
SHUNNED = "tests.makeway.dev/shunned"


async def assert_only_the_pod_goes_that_the_filter_objects_to(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("1"))
    await run_victims(
        space,
        sized("shunned", "low", 100).label(SHUNNED, "loud").on("n1"),
        sized("other", "low", 100).on("n1"),
    )

    (preemptor,) = await space.create(sized("p", "high", 100).annotation(ALOOF_FROM, "loud"))

    assert await space.until_bound("p") == "n1"
    order, _ = await outcome_of_order(space, preemptor)
    assert [victim.name for victim in order.victims] == ["shunned"]
    assert_bound_once(space, "p")
    await assert_only_ordered_pods_were_deleted(space, [preemptor])


async def assert_a_plan_is_mended_that_the_filter_does_not_let_through(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(
        space,
        sized("shunned", "mid", 100).label(SHUNNED, "loud").on("n1"),
        sized("big", "low", 300).on("n1"),
        sized("small", "mid", 100).on("n1"),
    )

    (preemptor,) = await space.create(sized("p", "high", 300).annotation(ALOOF_FROM, "loud"))

    assert await space.until_bound("p") == "n1"
    decision = await first_decision(space, preemptor)
    planned = [{victim.name for victim in candidate.victims} for candidate in decision.candidates]
    assert planned == [{"big"}]
    order, _ = await outcome_of_order(space, preemptor)
    assert {victim.name for victim in order.victims} == {"shunned", "big"}
    await assert_only_ordered_pods_were_deleted(space, [preemptor])


async def test_dp_17_only_the_pod_that_the_filter_objects_to_goes(race_space: Space) -> None:
    await assert_only_the_pod_goes_that_the_filter_objects_to(race_space)


async def test_dp_17_a_plan_that_the_filter_does_not_let_through_is_mended(race_space: Space) -> None:
    await assert_a_plan_is_mended_that_the_filter_does_not_let_through(race_space)


async def test_dp_17_where_the_filter_objects_to_a_pod_that_must_stay_another_node_is_taken(
    race_space: Space,
) -> None:
    space = race_space
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    await run_victims(
        space,
        sized("important", "high", 100).label(SHUNNED, "loud").on("n1"),
        sized("cheap", "low", 400).on("n1"),
        sized("dear", "mid", 500).on("n2"),
    )

    (preemptor,) = await space.create(sized("p", "high", 300).annotation(ALOOF_FROM, "loud"))

    assert await space.until_bound("p") == "n2"
    order, _ = await outcome_of_order(space, preemptor)
    assert [victim.name for victim in order.victims] == ["dear"]
    await assert_only_ordered_pods_were_deleted(space, [preemptor])
