"""Nodes that a pod cannot use at all, whoever goes, are not planned on, also where all were asked about."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.k8s.nodes import NodeTerm, RequiredNodes, whole_number
from makeway.core.k8s.objects import Taint, Toleration
from makeway.planner.plan.eligibility import eligible
from makeway.planner.plan.result import Plan
from makeway.planner.snapshot import topology
from makeway.planner.snapshot.changes import PutNode, RemoveNode
from makeway.planner.snapshot.records import node_record
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import NOW, choices, planned, refused
from unit.planner.caching import plan
from unit.planner.manifests import HOST, ZONE, cluster, node, pod, question

GPU = {"pool": "gpu"}
TAINTED = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
TOLERATED = [{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}]


def requiring(*terms: dict[str, Any]) -> dict[str, Any]:
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def expressions(*conditions: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {"matchExpressions": [{"key": k, "operator": o, "values": v} for k, o, v in conditions]}


def named(name: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}


def preemptor(**spec: Any) -> Any:
    return pod("P", priority=100, cpu="4", **spec)


def full(*nodes: Any) -> Snapshot:
    """A cluster in which each node is full of one pod of low priority."""
    return cluster(*nodes, *(pod(f"low-{one.metadata.name}", one.metadata.name, cpu="4") for one in nodes))


def nodes_of(found: Plan) -> list[str]:
    return [one.node for one in (*found.candidates, *found.unmodelled)]


# --------------------------------------------------------------------------------- each of the filters


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": GPU},
        {"affinity": requiring(expressions(("pool", "In", ["gpu", "tpu"])))},
        {"affinity": requiring(expressions(("nope", "Exists", [])), expressions(("pool", "Exists", [])))},
        {"affinity": requiring(named("z1"), named("z2"))},
    ],
)
def test_of_27_nodes_asked_about_only_the_two_that_match_are_planned_on(spec: dict[str, Any]) -> None:
    others = [node(f"a{number:02}") for number in range(25)]
    snapshot = full(*others, node("z1", more=GPU), node("z2", more=GPU))

    found = planned(snapshot, question(preemptor(**spec)))

    assert choices(found) == [("z1", {"low-z1"}), ("z2", {"low-z2"})]
    assert found.candidates_total == 2
    assert found.scope.nodes_potential == 2


def test_a_pod_of_a_daemon_set_is_planned_for_on_its_node_alone() -> None:
    snapshot = full(node("a"), node("b"))

    assert nodes_of(planned(snapshot, question(preemptor(affinity=requiring(named("b")))))) == ["b"]


def test_a_node_with_a_taint_that_the_pod_does_not_tolerate_is_not_planned_on() -> None:
    snapshot = full(node("a", taints=TAINTED), node("b"))

    assert nodes_of(planned(snapshot, question(preemptor()))) == ["b"]
    assert nodes_of(planned(snapshot, question(preemptor(tolerations=TOLERATED)))) == ["a", "b"]
    other = [{**TOLERATED[0], "value": "b"}]
    assert nodes_of(planned(snapshot, question(preemptor(tolerations=other)))) == ["b"]


def test_a_cordoned_node_is_planned_on_only_for_a_pod_that_tolerates_it() -> None:
    snapshot = full(node("a", unschedulable=True), node("b"))
    tolerates = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]

    assert nodes_of(planned(snapshot, question(preemptor()))) == ["b"]
    assert nodes_of(planned(snapshot, question(preemptor(tolerations=tolerates)))) == ["a", "b"]
    snapshot.apply(PutNode(node_record(node("a"))))
    assert nodes_of(planned(snapshot, question(preemptor()))) == ["a", "b"]


def test_the_affinity_that_a_profile_adds_to_every_pod_counts() -> None:
    snapshot = full(node("a"), node("b", more=GPU))
    added = {"nodeSelectorTerms": [expressions(("pool", "In", ["gpu"]))]}
    arguments = {"NodeAffinity": {"AddedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": added}}}

    assert nodes_of(planned(snapshot, question(preemptor(), arguments=arguments))) == ["b"]


def test_what_the_profiles_filters_do_not_look_at_rules_no_node_out() -> None:
    snapshot = full(node("a", taints=TAINTED), node("b", unschedulable=True), node("c"))
    asked = question(preemptor(nodeSelector=GPU), filters=("NodeResourcesFit",))

    assert nodes_of(planned(snapshot, asked)) == ["a", "b", "c"]


# --------------------------------------------------------------------------------- what a refusal says


def test_a_refusal_counts_the_nodes_that_the_pod_cannot_use_by_the_first_reason() -> None:
    snapshot = cluster(
        node("a", unschedulable=True),
        node("b", taints=TAINTED),
        node("c", more={"pool": "cpu"}),
        node("d", more=GPU),
    )

    refusal = refused(snapshot, question(preemptor(nodeSelector=GPU)))

    assert refusal.node_reasons == {
        "No pods of lower priority": 1,
        "Node is cordoned": 1,
        "Node selector or affinity does not match": 1,
        "Untolerated taint": 1,
    }
    assert "none of 1 potential nodes has a pod of lower priority" in refusal.message
    assert "it cannot use 1 node (node is cordoned), 1 node (node selector" in refusal.message


def test_where_no_node_can_be_used_the_refusal_says_why_and_brings_a_sample() -> None:
    snapshot = full(node("a"), node("b"))

    found = [refused(snapshot, question(preemptor(nodeSelector=GPU), turn=turn)) for turn in (0, 1)]

    assert {one.reason for one in found} == {"NoPotentialNodes"}
    assert "preemption would not help on any of 2 nodes" in found[0].message
    assert found[0].node_reasons == {"Node selector or affinity does not match": 2}
    assert [one.sample.node if one.sample else "" for one in found] == ["a", "b"]


# ------------------------------------------------------------------------- all nodes at once, or one

LABELS = {"pool": ["cpu", "gpu", "7", "12"], ZONE: ["1", "2"], "rank": ["3", "10", "-4", "+5", "x"]}


def some_labels(draw: random.Random) -> dict[str, str]:
    return {key: draw.choice(values) for key, values in LABELS.items() if draw.random() < 0.7}


def some_term(draw: random.Random) -> NodeTerm:
    def condition() -> tuple[str, str, tuple[str, ...]]:
        key = draw.choice([*LABELS, "absent"])
        operator = draw.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Odd"])
        values = tuple(draw.choices([*LABELS.get(key, ["y"]), "5", "7"], k=draw.randint(0, 3)))
        return key, operator, values[:1] if operator in ("Gt", "Lt") and draw.random() < 0.8 else values

    def field() -> tuple[str, str, tuple[str, ...]]:
        names = tuple(draw.choices([f"n{number}" for number in range(7)], k=draw.choice([1, 1, 1, 2])))
        return draw.choice(["metadata.name", "metadata.uid"]), draw.choice(["In", "NotIn", "Exists"]), names

    return NodeTerm(
        tuple(condition() for _ in range(draw.randint(0, 3))),
        tuple(field() for _ in range(draw.choice([0, 0, 1]))),
    )


def some_taints(draw: random.Random) -> list[dict[str, str]]:
    return [
        {
            "key": draw.choice(["a", "b"]),
            "value": draw.choice(["", "1", "5"]),
            "effect": draw.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
        }
        for _ in range(draw.choice([0, 0, 1, 2]))
    ]


def some_tolerations(draw: random.Random) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            key=draw.choice(["", "a", "b"]),
            operator=draw.choice(["", "Equal", "Exists", "Gt", "Lt", "Odd"]),
            value=draw.choice(["", "1", "3", "x"]),
            effect=draw.choice(["", "NoSchedule", "NoExecute"]),
        )
        for _ in range(draw.randint(0, 3))
    )


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """As core/v1's ToleratesTaint, line by line."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt":
            if not (toleration.value.isdigit() and taint.value.isdigit()):
                return False
            ours, theirs = int(toleration.value), int(taint.value)
            return theirs > ours if toleration.operator == "Gt" else theirs < ours
    return False


@given(st.integers(0, 2**32))
def test_all_nodes_at_once_match_as_one_node_at_a_time_whatever_came_and_went(seed: int) -> None:
    draw = random.Random(seed)
    snapshot, there = Snapshot(), dict[str, Any]()
    required = [
        RequiredNodes(
            tuple(sorted(some_labels(draw).items()))[: draw.choice([0, 0, 1, 2])],
            draw.choice([None, tuple(some_term(draw) for _ in range(draw.randint(0, 3)))]),
        )
        for _ in range(4)
    ]
    tolerations = [some_tolerations(draw) for _ in range(4)]
    for _ in range(30):
        name = f"n{draw.randrange(6)}"
        if draw.random() < 0.2 and name in there:
            del there[name]
            snapshot.apply(RemoveNode(name))
        else:
            there[name] = node(name, taints=some_taints(draw), more=some_labels(draw))
            snapshot.apply(PutNode(node_record(there[name])))
        one, some = draw.choice(required), draw.choice(tolerations)
        rows = snapshot.columns.nodes

        matching = snapshot.topology.eligible(one, None, rows)
        tolerated = snapshot.topology.eligible(RequiredNodes(), some, rows)

        for row in range(rows):
            here = snapshot.names[row] if row < len(snapshot.names) and snapshot.present[row] else ""
            known = there.get(here)
            assert matching[row] == (known is not None and one.match(here, known.metadata.labels))
            if known is not None:
                forbidding = [taint for taint in known.spec.taints if taint.effect != "PreferNoSchedule"]
                stays = all(any(tolerates(each, taint) for each in some) for taint in forbidding)
                assert tolerated[row] == stays


def test_which_nodes_are_eligible_is_found_again_for_changed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node(f"n{number}", taints=TAINTED, more=GPU) for number in range(50)]
    snapshot = full(*nodes)
    asked = question(preemptor(nodeSelector=GPU, tolerations=TOLERATED))
    plan(snapshot, asked, NOW)
    looked: list[int] = []
    whole = snapshot.topology._renew

    def counting(*args: Any) -> list[int]:
        rows = whole(*args)
        looked.append(len(rows))
        return rows

    monkeypatch.setattr(snapshot.topology, "_renew", counting)
    snapshot.apply(PutNode(node_record(node("n7"))))
    found = planned(snapshot, asked)

    assert found.candidates_total == 49
    assert looked
    assert max(looked) == 1
    assert HOST not in snapshot.topology._domains


def test_each_value_of_a_label_is_read_once_however_many_bounds_a_pod_compares_it_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = cluster(*(node(f"n{n}", more={"place": str(n)}) for n in range(50)))
    terms = [expressions(("place", ("Gt", "Lt")[n % 2], [str(10 * n)])) for n in range(100)]
    read: list[str] = []

    def counted(text: str) -> int | None:
        read.append(text)
        return whole_number(text)

    monkeypatch.setattr(topology, "whole_number", counted)
    rows = eligible(snapshot, question(preemptor(affinity=requiring(*terms))).constraints, np.arange(50))

    assert rows.tolist() == list(range(50))
    assert len(read) == 50 + 100
