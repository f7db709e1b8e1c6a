"""No search follows where a gang's first plan is known to be the cheapest; else one finds a cheaper plan."""

import pytest

from makeway.core.policy.document import Policy, PolicyLimits
from makeway.planner.plan.gang import solving
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.result import GangPlan
from unit.planner.building import LOW, MID, NOW, make_node, make_pod, make_snapshot
from unit.planner.test_gang_plan import gang, planned, victims


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
