"""Pods bound to a node that is not there: records alone, counted wherever nodes do not matter."""

import tracemalloc
from datetime import timedelta

import numpy as np

from makeway.core.policy.facts import PodFacts
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.planner import plan as plan_with
from makeway.planner.plan.result import Plan
from makeway.planner.snapshot.changes import (
    Adopt,
    PutBudget,
    PutClaim,
    PutNode,
    PutPod,
    RemoveNode,
    RemovePod,
)
from makeway.planner.snapshot.columns import PodCell
from makeway.planner.snapshot.state import Snapshot
from makeway.planner.snapshot.volumes import ClaimRecord
from narrowing import as_a
from unit.core.queue_building import queue, tree
from unit.planner import manifests
from unit.planner.building import (
    HIGH,
    LOW,
    NOW,
    M,
    S,
    ask,
    choices,
    make_budget,
    make_node,
    make_pod,
    make_snapshot,
    planned,
    refused,
)
from unit.planner.grouping import pod_group
from unit.planner.test_terminating import REASON, full
from unit.planner.test_terminating import pod as pod_of_queue

ELSEWHERE = "no-such-node"


def test_two_thousand_pods_on_no_node_take_no_more_than_their_records() -> None:
    snapshot = make_snapshot([f"n{number}" for number in range(50)])
    size = snapshot.columns.size
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(2_000):
            labels = {"app": "x", "number": str(number)}
            snapshot.apply(PutPod(make_pod(f"p{number}", ELSEWHERE, start=number, labels=labels)))
        full, _ = tracemalloc.get_traced_memory()
        for number in range(2_000):
            snapshot.apply(RemovePod(f"p{number}"))
        snapshot.departures.clear()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert full - before <= 20 * 2**20
    assert after - before <= 2 * 2**20
    assert snapshot.columns.size == size
    assert len(snapshot.without_node.of(ELSEWHERE)) == 0


def test_they_enter_with_their_node_in_the_order_of_importance_and_leave_with_it() -> None:
    pods = [make_pod(f"p{number}", "late", HIGH if number % 3 else LOW, start=number) for number in range(60)]
    snapshot = make_snapshot(["a"], pods)

    for _ in range(2):
        snapshot.apply(PutNode(make_node("late", size=7 * S)))
        at_once = make_snapshot(["a", make_node("late", size=7 * S)], pods)

        row = snapshot.rows["late"]
        expected = sorted(pods, key=lambda one: one.importance)
        assert snapshot.slots[row] == expected
        assert snapshot.columns.requested[:, row].tolist() == at_once.columns.requested[:, 1].tolist()
        assert len(snapshot.without_node.of("late")) == 0
        asked = ask(make_pod("new", priority=HIGH + 1))
        assert choices(planned(snapshot, asked)) == choices(planned(at_once, asked))

        snapshot.apply(RemoveNode("late"))
        assert "late" not in snapshot.rows
        assert {pod.uid for pod in snapshot.pods_of("late")} == {pod.uid for pod in pods}
        assert not snapshot.columns.requested.any()


def test_a_node_that_takes_the_row_of_one_that_is_gone_has_none_of_its_pods() -> None:
    snapshot, cache = make_snapshot(["a"], [make_pod("p", "a", size=500)]), PlanCache()
    asked = ask(make_pod("new", priority=HIGH))
    before = as_a(Plan, plan_with(snapshot, asked, NOW, cache))
    assert choices(before) == [("a", {"p"})]

    snapshot.apply(RemoveNode("a"))
    snapshot.apply(PutNode(make_node("b")))
    snapshot.apply(PutPod(make_pod("q", "b", size=500)))

    after = as_a(Plan, plan_with(snapshot, asked, NOW, cache))
    assert choices(after) == [("b", {"q"})]


def test_a_pod_without_a_node_counts_in_its_queue_and_under_its_budget() -> None:
    facts, labels = PodFacts(queue="root.p"), {"queue": "root.p", "app": "x"}
    snapshot = make_snapshot([], [make_pod("p", ELSEWHERE, labels=labels, facts=facts)])
    snapshot.apply(Adopt(tree(queue("p", maximum={"cpu": S})), "queues-1"))
    snapshot.apply(PutBudget(make_budget("u", {"app": "x"}, 0)))

    assert snapshot.queues.held is not None
    number = snapshot.queues.number_of(snapshot.pods["p"])
    assert snapshot.queues.held.of(number)["cpu"] == S
    assert snapshot.budgets.members(snapshot.budget_set("p")) == (("default", "u"),)


def test_a_claim_for_one_pod_is_taken_by_one_without_a_node() -> None:
    holder = manifests.pod("holder", ELSEWHERE, volumes=[manifests.claim("data")])
    snapshot = manifests.cluster(manifests.node("a"), holder, manifests.pod("low", "a", cpu="4"))
    snapshot.apply(PutClaim.of(("default", "data"), ClaimRecord(exclusive=True)))
    new = manifests.pod("new", priority=HIGH, volumes=[manifests.claim("data")])

    assert not isinstance(plan_with(snapshot, manifests.question(new), NOW, PlanCache()), Plan)
    snapshot.apply(RemovePod("holder"))
    assert isinstance(plan_with(snapshot, manifests.question(new), NOW, PlanCache()), Plan)


def grouped(*, there: bool) -> Snapshot:
    """A group that goes whole, of a pod on node a and one on node b, which may not be there."""
    pods = [make_pod(name, node, size=M, group="g") for name, node in (("one", "a"), ("two", "b"))]
    snapshot = make_snapshot([make_node("a", size=M)], pods, groups=[pod_group("g")])
    if there:
        snapshot.apply(PutNode(make_node("b", size=0)))
    return snapshot


def test_a_group_goes_whole_with_its_pod_on_no_node() -> None:
    asked = ask(make_pod("new", priority=HIGH, size=M), nodes=["a"])

    found = [choices(planned(grouped(there=there), asked)) for there in (False, True)]

    assert found == [[("a", {"one", "two"})]] * 2


def test_a_plan_of_before_is_looked_at_again_when_a_node_of_the_group_comes_or_goes() -> None:
    snapshot = grouped(there=False)
    row, unit = snapshot.rows["a"], snapshot.groups.unit_of_pod(snapshot.pods["one"])
    assert unit is not None
    assert unit.rows == {row}

    for change in (PutNode(make_node("b", size=0)), RemoveNode("b")):
        seen, version = snapshot.revision, unit.version
        snapshot.apply(change)
        assert snapshot.changed[row] > seen
        assert unit.version > version
    assert unit.rows == {row}


def test_room_in_a_queue_is_on_its_way_from_a_terminating_pod_on_no_node() -> None:
    snapshot = full(pod_of_queue("leaving", ELSEWHERE, ends=20), pod_of_queue("runs", "n2"))

    refusal = refused(snapshot, ask(pod_of_queue("new", priority=HIGH), nodes=["n2"]))

    assert refusal.reason == REASON
    assert refusal.retry_at == NOW + timedelta(seconds=80)


def test_a_terminating_pod_makes_room_on_its_node_only_while_that_is_there() -> None:
    pods = [make_pod("leaving", "a", size=500, ends=20), make_pod("kept", "b", HIGH, size=500)]
    snapshot, cache = make_snapshot(["a", "b"], pods), PlanCache()
    asked = ask(make_pod("new", priority=HIGH))

    def awaited() -> list[tuple[str, list[str]]]:
        found = plan_with(snapshot, asked, NOW, cache)
        candidates = found.candidates if isinstance(found, Plan) else ()
        return [(one.node, [waiting.pod.uid for waiting in one.awaited]) for one in candidates]

    assert awaited() == [("a", ["leaving"])]
    snapshot.apply(RemoveNode("a"))
    assert awaited() == []
    snapshot.apply(PutNode(make_node("c")))
    snapshot.apply(PutPod(make_pod("also-kept", "c", HIGH, size=500)))
    assert awaited() == []
    snapshot.apply(PutNode(make_node("a")))
    assert awaited() == [("a", ["leaving"])]


def test_entering_two_thousand_pods_moves_none_of_those_that_are_in() -> None:
    pods = [make_pod(f"p{number}", "late", start=(number * 7) % 2_000) for number in range(2_000)]
    snapshot = make_snapshot([], pods)
    slots: list[tuple[int, int]] = []
    insert = snapshot.columns.insert

    def noted(node: int, slot: int, pod: PodCell) -> None:
        slots.append((slot, int(snapshot.columns.count[node])))
        insert(node, slot, pod)

    snapshot.columns.insert = noted  # type: ignore[method-assign]
    snapshot.apply(PutNode(make_node("late")))

    assert slots == [(number, number) for number in range(2_000)]
    assert np.flatnonzero(snapshot.columns.count).size == 1
