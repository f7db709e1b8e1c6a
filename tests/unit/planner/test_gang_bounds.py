"""No search follows where a gang's first plan is known to be the cheapest; else one finds a cheaper plan."""

import pytest

from makeway.core.policy.document import Policy, PolicyLimits
from makeway.planner.plan.gang import solving
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.refusal.text import FORBIDDEN
from makeway.planner.plan.result import GangPlan
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import LOW, MID, NOW, make_node, make_pod, make_snapshot
from unit.planner.test_gang_plan import gang, planned, refused, victims


def test_no_search_follows_where_as_few_pods_as_any_plan_takes_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def searched(*arguments: object, **named: object) -> None:
        raise AssertionError("a search")

    monkeypatch.setattr(solving, "improve", searched)
    names = [f"n{number}" for number in range(6)]
    pods = [make_pod(f"p{name}-{slot}", name, LOW, 100) for name in names for slot in range(5)]
    snapshot = make_snapshot((make_node(name, 500) for name in names), pods)

    assert len(planned(snapshot, gang(snapshot, 200, 5)).victims) == 10


def test_over_twenty_nodes_the_set_of_nodes_that_costs_least_is_found() -> None:
    """Steps that cost least a member (two of 500 for three members) leave a last member at a high price."""
    policy = Policy(limits=PolicyLimits(victims_per_order=1_000))
    pods = [make_pod(f"low{n}-{slot}", f"n{n:02}", LOW, 500) for n in range(20) for slot in range(2)]
    pods += [make_pod("mid", "m", MID, 1_000)]
    nodes = [make_node(f"n{n:02}", 1_000) for n in range(20)] + [make_node("m", 1_000)]
    snapshot = make_snapshot(nodes, pods, policy=policy)

    found = plan_gang(snapshot, gang(snapshot, 330, 31), NOW)

    assert isinstance(found, GangPlan)
    assert found.price.highest == LOW
    assert len(victims(found)) == 21


def small_pods_and_large_ones(small: int, large: int) -> Snapshot:
    """Make nodes on which a member of 400 takes 16 pods, and others with one pod of higher priority."""
    pods = [make_pod(f"s{n}-{slot}", f"n{n:03}", LOW, 25) for n in range(small) for slot in range(20)]
    pods += [make_pod(f"l{n}", f"z{n}", MID, 500) for n in range(large)]
    nodes = [make_node(f"n{n:03}", 500) for n in range(small)] + [
        make_node(f"z{n}", 500) for n in range(large)
    ]
    return make_snapshot(nodes, pods, policy=Policy(limits=PolicyLimits(victims_per_order=20)))


def test_over_many_nodes_a_plan_is_found_with_as_few_victims_as_an_order_may_have() -> None:
    snapshot = small_pods_and_large_ones(100, 10)

    found = planned(snapshot, gang(snapshot, 400, 10))

    assert found.price.highest == MID
    assert len(victims(found)) <= 20


def test_a_refusal_for_the_bound_of_victims_is_final_only_where_every_plan_has_more() -> None:
    few, enough = small_pods_and_large_ones(100, 7), small_pods_and_large_ones(100, 9)

    forbidden = refused(few, gang(few, 400, 9))
    found = planned(enough, gang(enough, 400, 9))

    assert forbidden.reason == FORBIDDEN
    assert len(victims(found)) <= 20
