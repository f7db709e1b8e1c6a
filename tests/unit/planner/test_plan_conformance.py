"""The DP cases of docs/conformance.md that resources decide. P is the pod that needs room."""

import pytest

from preemption_cases import CASES, Case
from unit.planner.building import (
    HIGH,
    LOW,
    MID,
    NEG,
    XL,
    L,
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
    victims,
)

FOO = {"app": "foo"}


PRIORITIES = {"neg": NEG, "low": LOW, "mid": MID, "high": HIGH}
DECIDED_BY = {
    "DP-10": "lowest-highest-priority",
    "DP-11": "lowest-priority-sum",
    "DP-12": "lowest-priority-sum",
    "DP-13": "latest-start",
    "DP-18": "node-name",
}


@pytest.mark.parametrize(("name", "case"), CASES.items(), ids=CASES.keys())
def test_default_preemption(name: str, case: Case) -> None:
    pods = [
        make_pod(f"{node}-{pod}", node, PRIORITIES[priority], size, start=start)
        for node, of_node in case.nodes.items()
        for pod, priority, size, start in of_node
    ]
    snapshot = make_snapshot(list(case.nodes), pods)
    question = ask(make_pod("P", priority=PRIORITIES[case.priority], size=case.size))
    if not case.candidates:
        refusal = refused(snapshot, question)
        assert refusal.reason == "NoLowerPriorityPods"
        assert refusal.node_reasons == {"No pods of lower priority": len(case.nodes)}
        return

    result = planned(snapshot, question)

    wanted = [(node, {f"{node}-{pod}" for pod in gone}) for node, gone in case.candidates.items()]
    assert choices(result) == wanted
    rule = name.partition(" ")[0]
    assert result.candidates[0].decided_by == DECIDED_BY.get(rule, result.candidates[0].decided_by)


@pytest.mark.parametrize(
    ("disrupted", "violations"),
    [([], 1), (["b"], 0)],
    ids=["DP-6 one of two violates the budget", "DP-7 an eviction already counted does not"],
)
def test_a_budget_counts_violations(disrupted: list[str], violations: int) -> None:
    pods = [make_pod(name, "n1", MID, M, labels=FOO) for name in ("a", "b")]
    snapshot = make_snapshot(["n1"], pods, [make_budget("foo", FOO, 1, disrupted)])

    (candidate,) = planned(snapshot, ask(make_pod("P", priority=HIGH, size=XL))).candidates

    assert (victims(candidate), candidate.pdb_violations) == ({"a", "b"}, violations)


def test_dp_8_a_node_whose_columns_need_no_pod_gone_is_left_to_verification() -> None:
    snapshot = make_snapshot(
        ["n1"], [make_pod("a", "n1", LOW, S), make_pod("b", "n1", MID, S), make_pod("c", "n1", HIGH, S)]
    )

    result = planned(snapshot, ask(make_pod("P", priority=HIGH, size=S)))

    assert result.candidates == ()
    (unmodelled,) = result.unmodelled
    assert [one.pod.uid for one in unmodelled.removable] == ["b", "a"]
    assert victims(unmodelled) == set()


def test_dp_9_nodes_in_the_way_of_a_spread_are_unmodelled_and_those_without_lower_pods_are_not() -> None:
    snapshot = make_snapshot(
        ["a", "b", "x"],
        [
            make_pod("a1", "a", MID),
            make_pod("a2", "a", LOW),
            make_pod("b1", "b", LOW),
            make_pod("x1", "x", HIGH),
            make_pod("x2", "x", HIGH),
        ],
    )

    result = planned(snapshot, ask(make_pod("P", priority=HIGH, size=S)))

    assert [proposal.node for proposal in result.unmodelled] == ["b", "a"]
    assert result.unmodelled_total == 2


def test_dp_13_of_the_victims_only_those_of_the_highest_priority_count_with_their_start() -> None:
    pods = [make_pod("a", "n1", MID, M, start=4), make_pod("b", "n1", LOW, L, start=6)]
    pods += [make_pod("c", "n2", MID, M, start=5), make_pod("d", "n2", LOW, L)]

    best = planned(make_snapshot(["n1", "n2"], pods), ask(make_pod("P", priority=HIGH, size=XL))).candidates[
        0
    ]

    assert (best.node, best.decided_by) == ("n2", "latest-start")


def test_dp_14_of_5000_nodes_the_one_far_better_is_always_found() -> None:
    nodes = [make_node(f"n{index:04}") for index in range(5000)]
    pods = [make_pod(f"p{index}", f"n{index:04}", MID, XL) for index in range(5000) if index != 4321]
    pods.append(make_pod("cheap", "n4321", LOW, XL))

    result = planned(make_snapshot(nodes, pods), ask(make_pod("P", priority=HIGH, size=L)))

    assert choices(result)[0] == ("n4321", {"cheap"})
    assert result.candidates_total == 5000
    assert len(result.candidates) == 16
    assert [proposal.node for proposal in result.candidates[1:3]] == ["n0000", "n0001"]


def test_dp_15_a_pod_that_never_preempts_gets_a_refusal() -> None:
    snapshot = make_snapshot(["n1"], [make_pod("p1", "n1", LOW, XL)])

    refusal = refused(snapshot, ask(make_pod("P", priority=HIGH, size=L), may_preempt=False))

    assert refusal.reason == "PreemptionPolicyNever"
