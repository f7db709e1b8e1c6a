"""Members of several templates that nothing tells apart are planned as one, and told by their templates."""

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from makeway.planner.plan.gang import planner, solving
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.result import GangPlan
from makeway.planner.snapshot.changes import PutPod
from makeway.planner.snapshot.records import pod_record
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import HIGH, NOW
from unit.planner.manifests import HOST, anti_affinity, cluster, node, pod, question, term


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Note how many members of each class every search was asked to place."""
    found = []

    def beginning(model: Any, *rest: Any) -> Generator[None, None, solving.Beginning]:
        found.append(model.counts)
        return solving.beginning(model, *rest)

    monkeypatch.setattr(planner, "beginning", beginning)
    return found


def two_templates(snapshot: Snapshot, rule: dict[str, Any]) -> GangQuestion:
    """Ask for two leaders and three workers of one size; `rule`: what leaders ask besides."""
    leader = pod("leader", priority=HIGH, cpu="2", labels={"role": "leader"}, **rule)
    worker = pod("worker", priority=HIGH, cpu="2", labels={"role": "worker"})
    for one in (leader, worker):
        snapshot.apply(PutPod(pod_record(one)))
    return GangQuestion("default/gang", (GangClass(question(leader), 2), GangClass(question(worker), 3)), 5)


def full() -> Snapshot:
    """Three nodes of four CPUs, each with four pods of one."""
    pods = [pod(f"p{place}{turn}", place) for place in "abc" for turn in range(4)]
    return cluster(*map(node, "abc"), *pods)


def placed(found: object) -> Counter[int]:
    """Return how many members of each class a plan places."""
    assert isinstance(found, GangPlan), found
    return sum((Counter({one.member_class: one.count}) for one in found.placements), Counter[int]())


def test_classes_that_nothing_tells_apart_are_searched_as_one(searched: list[tuple[int, ...]]) -> None:
    snapshot = full()

    found = plan_gang(snapshot, two_templates(snapshot, {}), NOW)

    assert searched == [(5,)]
    assert placed(found) == {0: 2, 1: 3}


def test_classes_that_a_rule_tells_apart_are_searched_as_two(searched: list[tuple[int, ...]]) -> None:
    snapshot = full()
    apart = {"affinity": anti_affinity(term(HOST, {"role": "leader"}))}

    found = plan_gang(snapshot, two_templates(snapshot, apart), NOW)

    assert searched == [(2, 3)]
    assert placed(found) == {0: 2, 1: 3}
    assert isinstance(found, GangPlan)
    assert all(one.count == 1 for one in found.placements if one.member_class == 0)
