"""A lowered quota: how much has to go, from whom, who is kept, and what it comes to."""

import pytest

from makeway.core.queues.amounts import Amounts, over
from makeway.core.queues.distribution import Distribution, largest_remainder
from unit.core.queue_building import World, queue, sizes, tree, uids

G = 10**9


@pytest.mark.parametrize(
    ("maximum", "usage", "preemptable"),
    [
        ({"memory": 50 * G}, {"memory": 80 * G}, {"memory": 30 * G}),
        ({"memory": 50 * G, "cpu": 50}, {"memory": 80 * G, "cpu": 80}, {"memory": 30 * G, "cpu": 30}),
        ({"memory": 200 * G, "cpu": 50}, {"memory": 100 * G, "cpu": 80}, {"cpu": 30}),
        ({"memory": 100 * G, "cpu": 100}, {"memory": 50 * G, "cpu": 500}, {"cpu": 400}),
        ({"memory": 50 * G}, {"memory": 80 * G, "cpu": 100}, {"memory": 30 * G}),
        ({"cpu": 100}, {"memory": 100 * G, "cpu": 500}, {"cpu": 400}),
        ({"memory": 80 * G}, {"memory": 80 * G}, {}),
        ({"memory": 80 * G}, {}, {}),
        ({"memory": 0}, {"memory": 1}, {"memory": 1}),
    ],
)
def test_only_what_is_above_a_limit_must_go(maximum: Amounts, usage: Amounts, preemptable: Amounts) -> None:
    assert over(usage, maximum) == preemptable


def test_the_two_youngest_go_and_the_guarantee_is_kept() -> None:
    world = World(tree(queue("a", guaranteed=50, maximum=60))).run(
        "root.a", 20, 20, 20, 20, 20, uids="1 2 3 4 5"
    )

    plan = world.enforce("root.a")

    assert uids(plan) == ["5", "4"]
    assert plan.result == "success"
    assert not plan.short
    assert not plan.blocked


def test_what_the_guarantee_keeps_is_left_over() -> None:
    world = World(tree(queue("a", guaranteed=50, maximum=55))).run("root.a", 20, 20, 20, 20, 20)

    plan = world.enforce("root.a")

    assert plan.result == "bestEffort"
    assert sizes(plan) == [20, 20]
    assert plan.short == {"memory": 5}
    assert [block.reason for block in plan.blocked] == ["queue-guaranteed"]
    assert "root.a" in plan.message
    assert "5 short" in plan.message


def test_no_pod_goes_where_more_would_be_left_over_than_may_be() -> None:
    world = World(tree(queue("a", guaranteed=50, maximum=55, miss=10))).run("root.a", 20, 20, 20, 20, 20)

    plan = world.enforce("root.a")

    assert plan.result == "unsuccessful"
    assert not plan.victims
    assert plan.short == {"memory": 45}
    assert [block.reason for block in plan.blocked] == ["miss", "queue-guaranteed"]


def test_what_is_left_over_may_be_just_as_much_as_is_allowed() -> None:
    world = World(tree(queue("a", guaranteed=50, maximum=50, miss=20))).run("root.a", 20, 20, 20, 20, 20)

    assert world.enforce("root.a").result == "bestEffort"


@pytest.mark.parametrize(
    ("guaranteed", "gone", "result"),
    [(1200, 3, "bestEffort"), (900, 5, "success"), (1500, 0, "unsuccessful"), (1600, 0, "unsuccessful")],
)
def test_no_ancestor_falls_below_its_guarantee(guaranteed: int, gone: int, result: str) -> None:
    world = World(tree(queue("p", queue("a", maximum=500), queue("b"), guaranteed=guaranteed)))
    world.run("root.p.a", *[100] * 10).run("root.p.b", *[100] * 5)

    plan = world.enforce("root.p.a")

    assert len(plan.victims) == gone
    assert plan.result == result
    assert [block.reason for block in plan.blocked] == ["queue-guaranteed"] * (result != "success")
    assert ("root.p:" in plan.message) is (result != "success")


def test_a_need_is_shared_in_proportion_to_what_each_can_release_down_to_the_leaves() -> None:
    built = tree(
        queue(
            "p",
            queue("a", queue("a1", guaranteed=10), queue("a2", guaranteed=10), guaranteed=20),
            queue("b", queue("b1"), queue("b2")),
            queue("c"),
            queue("d", guaranteed=10),
            maximum=40,
        )
    )
    world = World(built).run("root.p.a.a1", 30).run("root.p.a.a2", 20)
    world.run("root.p.b.b1", 50).run("root.p.b.b2", 30).run("root.p.d", 10)

    shares = Distribution(built, world.usage, built.at("root.p"), {"memory": 100}, frozenset())

    assert shares.releasable(built.at("root.p.a").number) == {"memory": 30}
    assert shares.releasable(built.at("root.p.b").number) == {"memory": 80}
    assert {built.queues[number].path: share["memory"] for number, share in shares.leaves.items()} == {
        "root.p.a.a1": 18,
        "root.p.a.a2": 9,
        "root.p.b.b1": 46,
        "root.p.b.b2": 27,
    }


def test_of_equal_remainders_the_earlier_queue_gives_one_more() -> None:
    assert largest_remainder(10, [(1, 5), (2, 5), (3, 5)]) == [(1, 4), (2, 3), (3, 3)]
    assert largest_remainder(1, [(1, 0), (2, 7)]) == [(2, 1)]
    assert largest_remainder(0, [(1, 7)]) == []


def test_pods_that_may_never_be_evicted_are_named_where_they_would_have_helped() -> None:
    world = World(tree(queue("a", maximum=10)))
    world.run("root.a", 10, 10, exempt="daemonset").run("root.a", 5).run(
        "root.a", {"cpu": 5}, exempt="mirror-pod"
    )

    plan = world.enforce("root.a")

    assert plan.result == "bestEffort"
    assert [(block.reason, block.message) for block in plan.blocked] == [
        ("daemonset", "2 pods kept by the rule daemonset")
    ]


def test_regular_pods_go_before_opted_out_ones_and_originators_last() -> None:
    world = World(tree(queue("a", maximum=0)))
    world.run("root.a", 10, uids="both", originator=True, opted_out=True)
    world.run("root.a", 10, uids="originator", originator=True)
    world.run("root.a", 10, uids="opted-out", opted_out=True)
    world.run("root.a", 10, uids="regular")

    assert uids(world.enforce("root.a")) == ["regular", "opted-out", "originator", "both"]


def test_lower_priority_goes_before_opting_out_counts_and_the_younger_before_the_lower_uid() -> None:
    world = World(tree(queue("a", maximum=0)))
    world.run("root.a", 10, uids="high", priority=10)
    world.run("root.a", 10, uids="low-opted-out", priority=-10, opted_out=True)
    world.run("root.a", 10, 10, uids="older younger")

    assert uids(world.enforce("root.a")) == ["low-opted-out", "younger", "older", "high"]


def test_a_guarantee_of_a_resource_that_no_pod_needs_keeps_pods_too() -> None:
    world = World(tree(queue("a", guaranteed={"memory": 50}, maximum={"cpu": 5})))
    world.run("root.a", {"cpu": 5, "memory": 40}, {"cpu": 5, "memory": 20}, uids="old young")

    plan = world.enforce("root.a")

    assert plan.result == "unsuccessful"
    assert "memory 50" in plan.message


def test_a_queue_with_a_process_of_its_own_gives_nothing_to_its_parents() -> None:
    built = tree(queue("p", queue("a"), queue("b"), maximum=10))
    world = World(built).run("root.p.a", 10, 10).run("root.p.b", 10)

    plan = world.enforce("root.p", running=frozenset({"root.p.a"}))

    assert [size for _, size in plan.shares] == [{"memory": 10}]
    assert plan.result == "bestEffort"
    assert "process-running" in [block.reason for block in plan.blocked]


def test_a_process_does_not_stand_in_its_own_way() -> None:
    world = World(tree(queue("a", maximum=10))).run("root.a", 10, 10)

    assert world.enforce("root.a", running=frozenset({"root.a"})).result == "success"


# ------------------------------------------------------------------------------------- what goes whole


def three_and_a_unit(most: int) -> World:
    """Three single pods of 1, and one unit of 20 that is older."""
    world = World(tree(queue("a", maximum=most))).together("unit", a=20)
    return world.run("root.a", 1, 1, 1, uids="x y z")


def test_a_unit_is_one_member_of_the_choice_and_its_overshoot_gives_the_others_back() -> None:
    plan = three_and_a_unit(10).enforce("root.a")

    assert uids(plan) == ["unit"]
    assert plan.result == "success"
    assert plan.freed == {"memory": 20}


def test_no_single_pod_goes_where_the_unit_cannot_follow_and_too_much_would_be_left_over() -> None:
    world = World(tree(queue("a", maximum=10, miss=50))).together("unit", a=20, exempt="protected-namespace")
    world.run("root.a", 1, 1, 1)

    plan = world.enforce("root.a")

    assert (plan.result, plan.victims) == ("unsuccessful", ())
    assert [one.reason for one in plan.blocked] == ["miss", "protected-namespace"]


def test_a_unit_of_lower_priority_goes_before_pods_of_a_higher_one() -> None:
    world = World(tree(queue("a", maximum=10))).together("low", a=8, priority=-5).run("root.a", 8, priority=5)

    assert uids(world.enforce("root.a")) == ["low"]


def test_of_two_units_the_smaller_one_goes_first() -> None:
    world = World(tree(queue("a", queue("b"), queue("c"), maximum=20)))
    world.together("large", b=5, c=5).together("small", b=10).run("root.a.c", 10, priority=9)

    assert uids(world.enforce("root.a")) == ["small"]


def test_pods_of_a_unit_outside_the_queue_free_nothing_in_it_and_keep_their_own_guarantee() -> None:
    outside = queue("other", guaranteed=10)
    world = World(tree(queue("a", maximum=10), outside)).together("unit", a=15, other=10)

    plan = world.enforce("root.a")

    assert plan.result == "unsuccessful"
    assert [one.reason for one in plan.blocked] == ["queue-guaranteed"]

    free = World(tree(queue("a", maximum=10), queue("other"))).together("unit", a=15, other=10)
    assert free.enforce("root.a").freed == {"memory": 15}


def test_the_pods_of_a_unit_are_weighed_against_a_guarantee_together() -> None:
    world = World(tree(queue("a", queue("b"), queue("c"), maximum=10, guaranteed=9)))
    world.together("unit", b=6, c=6)

    plan = world.enforce("root.a")

    assert plan.result == "unsuccessful"
    assert "2 pods kept by the guarantee of root.a" in plan.message


def test_a_unit_with_pods_where_another_process_runs_is_left_to_it() -> None:
    world = World(tree(queue("a", queue("b"), queue("c"), maximum=10)))
    world.together("unit", b=10, c=10)

    plan = world.enforce("root.a", frozenset({"root.a.c"}))

    assert plan.victims == ()
    assert "process-running" in {one.reason for one in plan.blocked}


def test_the_surplus_of_a_gang_goes_before_a_gang_is_broken() -> None:
    world = World(tree(queue("a", maximum=6)), surplus={"whole": 0, "large": 2})
    world.run("root.a", 1, 1, 1, 1, uids="y0 y1 y2 y3", gang="large")
    world.run("root.a", 1, 1, 1, 1, uids="x0 x1 x2 x3", gang="whole")

    assert uids(world.enforce("root.a")) == ["y3", "y2"]


def test_one_gang_is_broken_before_two_are() -> None:
    world = World(tree(queue("a", maximum=4)), surplus={"one": 1, "two": 1})
    for number in range(4):
        world.run("root.a", 1, uids=f"x{number}", gang="one").run("root.a", 1, uids=f"y{number}", gang="two")

    assert uids(world.enforce("root.a")) == ["y3", "x3", "y2", "y1"]


def test_pods_that_break_their_gang_go_before_a_unit_and_after_single_pods() -> None:
    world = World(tree(queue("a", maximum=1))).together("unit", a=1)
    world.run("root.a", 1, uids="single").run("root.a", 1, uids="member", gang="gang")

    assert uids(world.enforce("root.a")) == ["single", "member"]
