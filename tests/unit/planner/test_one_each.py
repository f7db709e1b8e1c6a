"""The cheapest plan of a gang whose members take whole nodes, found without a search."""

from random import Random

import pytest
from msgspec.structs import replace

from makeway.core.policy.document import GroupTerm, Policy, PolicyLimits
from makeway.planner.plan.gang import solving
from makeway.planner.plan.gang.draft import Draft
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.solving import one_each
from makeway.planner.plan.result import GangPlan
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import LOW, MID, NOW, make_budget, make_node, make_pod, make_snapshot
from unit.planner.test_gang_plan import gang, nodes, planned, victims

OBJECTIVES: tuple[tuple[GroupTerm, ...], ...] = (
    ("budgets", "highestPriority", "groups", "highestVictims", "prioritySum", "victims"),
    ("victims", "prioritySum", "highestPriority"),
    ("highestVictims", "budgets", "highestPriority", "prioritySum"),
    ("budgets", "victims"),
)


class Found:
    """What `one_each` returns while a test runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, off: bool = False) -> None:
        self.drafts: list[Draft | None] = []
        known = one_each

        def watched(*arguments: object) -> Draft | None:
            self.drafts.append(None if off else known(*arguments))  # type: ignore[arg-type]
            return self.drafts[-1]

        monkeypatch.setattr(solving, "one_each", watched)

    def __bool__(self) -> bool:
        return any(draft is not None for draft in self.drafts)


def a_cluster(random: Random, objective: tuple[GroupTerm, ...]) -> Snapshot:
    """Make a few nodes of 1,000, with pods of which most stand in the way of a member of 600 to 900."""
    names = [f"n{number}" for number in range(random.randint(2, 6))]
    pods = []
    for name in names:
        left, number = random.choice((1_000, 900, 400)), 0
        size = random.choice((0, 200, 250))
        while left > 0:
            request = min(left, size or random.choice((100, 300, 700)))
            priority = random.choice((LOW, LOW, MID)) if random.random() < 0.5 else LOW
            pods.append(make_pod(f"{name}-{number}", name, priority, request, start=random.randint(0, 3)))
            left, number = left - request, number + 1
    policy = Policy(limits=PolicyLimits(victims_per_order=1_000))
    policy = replace(policy, groups=replace(policy.groups, objective=objective))
    return make_snapshot((make_node(name, 1_000) for name in names), pods, policy=policy)


def test_no_search_finds_a_cheaper_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    known = 0
    for seed in range(200):
        random = Random(seed)
        objective = random.choice(OBJECTIVES)
        size, count = random.choice((600, 800, 900)), random.randint(1, 3)
        prices = []
        for off in (False, True):
            with monkeypatch.context() as patched:
                found = Found(patched, off=off)
                snapshot = a_cluster(Random(seed), objective)
                plan = plan_gang(snapshot, gang(snapshot, size, count), NOW)
                prices.append(plan.price.key(objective) if isinstance(plan, GangPlan) else None)
                known += bool(found)
        # Of plans alike by every term a search does not look for the pods that started last.
        assert (prices[0] is None) == (prices[1] is None), seed
        if prices[0] is not None and prices[1] is not None:
            assert prices[0][:-1] == prices[1][:-1], seed
            assert prices[0] <= prices[1], seed
    assert known > 25


def test_the_nodes_on_which_least_goes_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Found(monkeypatch)
    snapshot = make_snapshot(
        (make_node(f"n{number}", 1_000) for number in range(30)),
        (
            make_pod(f"p{number}-{slot}", f"n{number}", LOW, 1_000 // parts)
            for number in range(30)
            for parts in (1 if number % 3 == 0 else 10,)
            for slot in range(parts)
        ),
    )

    plan = planned(snapshot, gang(snapshot, 950, 10))

    assert found
    assert victims(plan) == {f"p{number}-0" for number in range(0, 30, 3)}


def test_of_nodes_alike_those_whose_pods_started_last_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Found(monkeypatch)
    snapshot = make_snapshot(
        (make_node(f"n{number}", 1_000) for number in range(20)),
        (make_pod(f"p{number}", f"n{number}", LOW, 1_000, start=number * 7 % 20) for number in range(20)),
    )

    plan = planned(snapshot, gang(snapshot, 950, 3))

    assert found
    assert {int(node[1:]) * 7 % 20 for node in nodes(plan)} == {17, 18, 19}


@pytest.mark.parametrize("size", [500, 300])
def test_where_a_node_takes_two_members_a_search_follows(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    found = Found(monkeypatch)
    snapshot = make_snapshot(
        (make_node(f"n{number}", 1_000) for number in range(4)),
        (make_pod(f"p{number}", f"n{number}", LOW, 1_000) for number in range(4)),
    )

    planned(snapshot, gang(snapshot, size, 3))

    assert not found


def test_where_other_pods_could_go_instead_a_search_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three pods of 300 any two make room for a member of 600."""
    found = Found(monkeypatch)
    snapshot = make_snapshot(
        (make_node(f"n{number}", 1_000) for number in range(3)),
        (
            make_pod(f"p{n}-{slot}", f"n{n}", (LOW, MID, MID)[slot], 300)
            for n in range(3)
            for slot in range(3)
        ),
    )

    planned(snapshot, gang(snapshot, 600, 2))

    assert not found


def test_where_no_nodes_cost_least_by_every_term_a_search_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pods of low priority here, one of higher priority there."""
    found = Found(monkeypatch)
    snapshot = make_snapshot(
        (make_node("a", 1_000), make_node("b", 1_000)),
        (make_pod("a0", "a", MID, 1_000), *(make_pod(f"b{slot}", "b", LOW, 100) for slot in range(10))),
    )

    plan = planned(snapshot, gang(snapshot, 950, 1))

    assert not found
    assert set(nodes(plan)) == {"b"}


def test_where_a_budget_would_be_violated_a_search_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Found(monkeypatch)
    labels = {"app": "kept"}
    snapshot = make_snapshot(
        (make_node(f"n{number}", 1_000) for number in range(3)),
        (
            make_pod(f"p{number}", f"n{number}", LOW, 1_000, labels=labels if number == 0 else {})
            for number in range(3)
        ),
        (make_budget("kept", labels, allowed=0),),
    )

    plan = planned(snapshot, gang(snapshot, 950, 2))

    assert not found
    assert set(nodes(plan)) == {"n1", "n2"}
