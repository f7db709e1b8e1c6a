"""What holds for every tree of queues and all pods in it."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from makeway.core.queues import victims
from makeway.core.queues.amounts import Amounts, over
from makeway.core.queues.distribution import largest_remainder
from makeway.core.queues.quota import QuotaPlan, planning_quota
from makeway.core.queues.tree import Queue, QueueSpec, QueueTree
from makeway.core.queues.usage import Usage
from makeway.core.queues.victims import Guarantee, run_to_end, selecting
from makeway.core.unit import Unit
from unit.core import queue_building
from unit.core.queue_building import World, tree

RESOURCES = ("cpu", "memory", "pods")
thousands = settings(max_examples=5 * settings().max_examples)


def amounts(chance: Random, least: int) -> dict[str, int]:
    return {name: chance.randint(least, 40) for name in RESOURCES if chance.random() < 0.6}


def spec(chance: Random, depth: int, name: str = "root") -> QueueSpec:
    children = "abc"[: chance.randint(1, 3) if not name or name == "root" else chance.randint(0, 3)]
    return QueueSpec(
        name=name,
        guaranteed=amounts(chance, 0) if chance.random() < 0.5 else {},
        maximum=amounts(chance, 0),
        miss_percent=chance.choice([0, 10, 50, 100]),
        children=tuple(spec(chance, depth - 1, child) for child in children) if depth else (),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Trees and pods of a size that shrinks; what they are made of comes from a seed, which is fast."""
    depth, count = draw(st.integers(1, 3)), draw(st.integers(0, 25))
    chance = Random(draw(st.integers(0, 2**32)))
    world = World(QueueTree.of(spec(chance, depth)))
    leaves = [queue.path for queue in world.tree if queue.is_leaf]
    for _ in range(count):
        world.run(
            chance.choice(leaves),
            amounts(chance, 1),
            priority=chance.randint(-1, 1),
            originator=chance.random() < 0.2,
            opted_out=chance.random() < 0.3,
            exempt=chance.choice(["", "", "", "", "daemonset"]),
            gang=chance.choice(["", "", "g", "h"]),
        )
    world.surplus = {"g": chance.randint(0, 3), "h": chance.randint(0, 3)}
    for number in range(chance.choice([0, 0, 1, 3])):
        parts = [(chance.choice(leaves), amounts(chance, 1)) for _ in range(chance.randint(1, 4))]
        exempt = chance.choice(["", "", "", "daemonset"])
        world.together(f"unit {number}", *parts, exempt=exempt, priority=chance.randint(-1, 1))
    return world


@st.composite
def lowered(draw: st.DrawFn) -> tuple[World, Queue, QuotaPlan]:
    world = draw(worlds())
    queue = world.tree.queues[draw(st.integers(0, 1000)) % len(world.tree)]
    chance = Random(draw(st.integers(0, 2**32)))
    others = [one.path for one in world.tree if one is not queue]
    running = frozenset(chance.sample(others, chance.choice([0, 0, 1])))
    return world, queue, world.enforce(queue.path, running)


def leaf_of(world: World, victim: Unit) -> Queue:
    return next(world.tree.queues[leaf] for leaf, members in world.pods.items() if victim in members)


def parts_of(world: World, unit: Unit) -> list[tuple[Queue, Amounts]]:
    """What a unit holds, by leaf."""
    if not unit.amounts:
        return [(leaf_of(world, unit), unit.requests)]
    return [(world.tree.queues[number], amounts) for number, amounts in unit.amounts]


def inside(world: World, unit: Unit, queue: Queue) -> Counter[str]:
    """What a unit holds in a queue and below it."""
    total: Counter[str] = Counter()
    for leaf, held in parts_of(world, unit):
        if queue.number <= leaf.number < queue.below:
            total.update(held)
    return total


def without(world: World, gone: tuple[Unit, ...]) -> list[dict[str, int]]:
    usage = world.usage.copy()
    for victim in gone:
        for leaf, held in parts_of(world, victim):
            usage.remove(leaf.number, held)
    return [dict(usage.of(queue.number)) for queue in world.tree]


def no_queue_falls_below_its_guarantee_of_anything_a_victim_used(
    world: World, _: Queue, plan: QuotaPlan
) -> None:
    after = without(world, plan.victims)

    for victim in plan.victims:
        for leaf, held in parts_of(world, victim):
            for queue in world.tree.line(leaf.number):
                for name, least in queue.guaranteed.items():
                    if held.get(name, 0) > 0:
                        assert after[queue.number].get(name, 0) >= least


def success_means_at_or_below_the_maximum_and_best_effort_within_the_miss(
    world: World, queue: Queue, plan: QuotaPlan
) -> None:
    after = without(world, plan.victims)[queue.number]
    above = over(after, queue.maximum)

    assert dict(plan.short) == above
    match plan.result:
        case "success":
            assert not above
            assert plan.victims
        case "notNeeded":
            assert not over(world.usage.of(queue.number), queue.maximum)
            assert not plan.victims
        case "bestEffort":
            assert plan.victims
            assert above
            assert all(left * 100 <= plan.need[name] * queue.miss_percent for name, left in above.items())
            assert plan.blocked
        case "unsuccessful":
            assert not plan.victims
            assert plan.blocked


def to_give_any_one_victim_back_would_miss_what_was_reached(
    world: World, queue: Queue, plan: QuotaPlan
) -> None:
    reached = {name: min(amount, plan.freed.get(name, 0)) for name, amount in plan.need.items()}

    for victim in plan.victims:
        assert any(
            plan.freed.get(name, 0) - inside(world, victim, queue)[name] < amount
            for name, amount in reached.items()
        )


def shares_add_up_to_what_can_be_released_of_the_need(world: World, queue: Queue, plan: QuotaPlan) -> None:
    for name, need in plan.need.items():
        shared = sum(share.get(name, 0) for _, share in plan.shares)
        assert shared == plan.target.get(name, 0) <= need
        for path, share in plan.shares:
            leaf = world.tree.at(path)
            spare = world.usage.of(leaf.number).get(name, 0) - leaf.guaranteed.get(name, 0)
            assert share.get(name, 0) <= max(spare, 0)
        for above in world.tree.line(queue.number):
            spare = world.usage.of(above.number).get(name, 0) - above.guaranteed.get(name, 0)
            assert shared <= max(spare, 0)


def every_victim_is_below_the_queue_may_go_and_uses_what_is_needed(
    world: World, queue: Queue, plan: QuotaPlan
) -> None:
    for victim in plan.victims:
        assert not victim.exempt
        assert any(inside(world, victim, queue)[name] > 0 for name in plan.need)
    assert len({victim.uid for victim in plan.victims}) == len(plan.victims)


@thousands
@given(lowered())
def test_what_holds_for_every_plan_of_a_lowered_quota(case: tuple[World, Queue, QuotaPlan]) -> None:
    for holds in (
        no_queue_falls_below_its_guarantee_of_anything_a_victim_used,
        success_means_at_or_below_the_maximum_and_best_effort_within_the_miss,
        to_give_any_one_victim_back_would_miss_what_was_reached,
        shares_add_up_to_what_can_be_released_of_the_need,
        every_victim_is_below_the_queue_may_go_and_uses_what_is_needed,
    ):
        holds(*case)


@thousands
@given(worlds(), st.data())
def test_the_order_in_which_pods_are_told_does_not_matter(world: World, data: st.DataObject) -> None:
    queue = world.tree.queues[data.draw(st.integers(0, 1000)) % len(world.tree)]
    shuffled = replace(world)
    shuffled.usage = world.usage
    shuffled.pods = {leaf: members[::-1] for leaf, members in world.pods.items()}

    assert world.enforce(queue.path) == shuffled.enforce(queue.path)


@thousands
@given(worlds(), st.data())
def test_who_is_kept_is_kept_by_what_is_named(world: World, data: st.DataObject) -> None:
    queue = world.tree.queues[data.draw(st.integers(0, 1000)) % len(world.tree)]
    need = over(world.usage.of(queue.number), queue.maximum)

    steps = selecting(world.tree, world.usage, queue, need, lambda leaf: world.pods.get(leaf, ()))
    _, found = run_to_end(steps)

    short = {name for name, amount in need.items() if found.freed.get(name, 0) < amount}
    left = {
        member.uid: member.size
        for leaf in world.tree.leaves(queue)
        for member in world.pods.get(leaf.number, ())
        if member not in found.victims and any(inside(world, member, queue)[name] > 0 for name in short)
    }
    assert sum(found.exempt.values()) + sum(found.guaranteed.values()) == sum(left.values())
    assert all(isinstance(one, Guarantee) and count > 0 for one, count in found.guaranteed.items())


@given(st.lists(st.integers(0, 1000), max_size=20), st.data())
def test_shares_are_whole_fair_and_complete(weights: list[int], data: st.DataObject) -> None:
    total = sum(weights)
    amount = data.draw(st.integers(0, total))

    shares = dict(largest_remainder(amount, enumerate(weights)))

    assert sum(shares.values()) == amount
    for number, weight in enumerate(weights):
        share = shares.get(number, 0)
        assert share <= weight
        assert abs(share * total - amount * weight) < max(total, 1)


@given(worlds(), st.data())
def test_choosing_in_chunks_chooses_the_same(world: World, data: st.DataObject) -> None:
    queue = world.tree.queues[data.draw(st.integers(0, 1000)) % len(world.tree)]

    def members(leaf: int) -> list[Unit]:
        return list(world.pods.get(leaf, ()))

    at_once = run_to_end(planning_quota(world.tree, world.usage, queue, members))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(victims, "CHUNK", 2)
        in_chunks = run_to_end(planning_quota(world.tree, world.usage, queue, members))

    assert in_chunks == at_once


def test_many_pods_are_chosen_from_in_chunks() -> None:
    built = tree(queue_building.queue("a", maximum={"cpu": 10}))
    pods = [Unit(uid=f"p{number:05}", requests={"cpu": 1}, priority=number % 7) for number in range(20_000)]
    usage = Usage(built)
    usage.add(built.at("root.a").number, {"cpu": 20_000})

    steps = planning_quota(built, usage, built.at("root.a"), lambda _: pods)
    pauses = sum(1 for _ in steps)

    assert pauses >= 3 * 20_000 // victims.CHUNK - 3
