"""The DP cases of docs/conformance.md that resources decide. P is the pod that needs room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

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


def test_dp_1_every_node_with_a_lower_pod_in_the_way_is_a_candidate() -> None:
    snapshot = make_snapshot(["n1", "n2"], [make_pod("p1", "n1", MID, L), make_pod("p2", "n2", MID, L)])

    assert choices(planned(snapshot, ask(make_pod("P", priority=HIGH, size=L)))) == [
        ("n1", {"p1"}),
        ("n2", {"p2"}),
    ]


@pytest.mark.parametrize("priority", [LOW, MID])
def test_dp_2_no_pod_of_equal_or_higher_priority_is_a_victim(priority: int) -> None:
    snapshot = make_snapshot(["n1", "n2"], [make_pod("p1", "n1", MID, L), make_pod("p2", "n2", MID, L)])

    refusal = refused(snapshot, ask(make_pod("P", priority=priority, size=L)))

    assert refusal.reason == "NoLowerPriorityPods"
    assert refusal.node_reasons == {"No pods of lower priority": 2}


def test_dp_3_a_small_pod_that_still_fits_is_given_back() -> None:
    snapshot = make_snapshot(["n1"], [make_pod("small", "n1", LOW, S), make_pod("mid", "n1", MID, L)])

    assert choices(planned(snapshot, ask(make_pod("P", priority=HIGH, size=L)))) == [("n1", {"mid"})]


def test_dp_4_lower_pods_go_and_the_rest_of_the_node_stays() -> None:
    snapshot = make_snapshot(
        ["n1", "n2"],
        [
            make_pod("a", "n1", MID, S),
            make_pod("b", "n1", LOW, S),
            make_pod("c", "n1", MID, M),
            make_pod("d", "n1", HIGH, S),
            make_pod("e", "n2", HIGH, L),
        ],
    )

    assert choices(planned(snapshot, ask(make_pod("P", priority=HIGH, size=L)))) == [("n1", {"b", "c"})]


def test_dp_5_of_two_equal_pods_the_newer_goes() -> None:
    snapshot = make_snapshot(
        ["n1"],
        [
            make_pod("a", "n1", LOW, S, start=5),
            make_pod("b", "n1", LOW, S, start=4),
            make_pod("c", "n1", MID, M, start=3),
            make_pod("d", "n1", HIGH, S, start=2),
        ],
    )

    assert choices(planned(snapshot, ask(make_pod("P", priority=HIGH, size=L)))) == [("n1", {"a", "c"})]


def test_dp_6_a_budget_of_one_is_violated_once_by_two_victims() -> None:
    snapshot = make_snapshot(
        ["n1"],
        [make_pod("a", "n1", MID, M, labels=FOO), make_pod("b", "n1", MID, M, labels=FOO)],
        [make_budget("foo", FOO, 1)],
    )

    (candidate,) = planned(snapshot, ask(make_pod("P", priority=HIGH, size=XL))).candidates

    assert victims(candidate) == {"a", "b"}
    assert candidate.pdb_violations == 1


def test_dp_7_a_pod_whose_disruption_is_counted_already_violates_nothing() -> None:
    snapshot = make_snapshot(
        ["n1"],
        [make_pod("a", "n1", MID, M, labels=FOO), make_pod("b", "n1", MID, M, labels=FOO)],
        [make_budget("foo", FOO, 1, disrupted=["b"])],
    )

    (candidate,) = planned(snapshot, ask(make_pod("P", priority=HIGH, size=XL))).candidates

    assert victims(candidate) == {"a", "b"}
    assert candidate.pdb_violations == 0


def test_dp_8_a_node_whose_columns_need_no_pod_gone_is_left_to_verification() -> None:
    snapshot = make_snapshot(
        ["n1"],
        [make_pod("a", "n1", LOW, S), make_pod("b", "n1", MID, S), make_pod("c", "n1", HIGH, S)],
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


def best(pods: Mapping[str, Sequence[tuple[int, int, float]]]) -> tuple[str, str]:
    """The chosen node, and the rule that decided, for P high XL; pods as (priority, size, start)."""
    records = [
        make_pod(f"{node}-{index}", node, priority, size, start=start)
        for node, of_node in pods.items()
        for index, (priority, size, start) in enumerate(of_node)
    ]
    result = planned(make_snapshot(list(pods), records), ask(make_pod("P", priority=HIGH, size=XL)))
    return result.candidates[0].node, result.candidates[0].decided_by


def test_dp_10_the_lowest_highest_priority_wins() -> None:
    pods = {
        "n1": [(MID, L, 0), (MID, M, 0)],
        "n2": [(MID, L, 0), (LOW, M, 0)],
        "n3": [(LOW, L, 0), (LOW, M, 0)],
    }
    assert best(pods) == ("n3", "lowest-highest-priority")


def test_dp_11_the_lowest_sum_of_priorities_wins() -> None:
    pods = {
        "n1": [(MID, M, 0), (MID, L, 0)],
        "n2": [(MID, L, 0), (LOW, M, 0)],
        "n3": [(MID, M, 0), (MID, L, 0)],
    }
    assert best(pods) == ("n2", "lowest-priority-sum")


def test_dp_12_negative_priorities_do_not_make_more_victims_look_better() -> None:
    pods = {
        "n1": [(MID, S, 0), (NEG, S, 0), (MID, S, 0), (NEG, S, 0)],
        "n2": [(MID, L, 0), (NEG, M, 0)],
        "n3": [(MID, M, 0), (NEG, S, 0), (LOW, S, 0)],
    }
    assert best(pods)[0] == "n2"


@pytest.mark.parametrize(
    ("starts", "winner"),
    [
        ({"n1": (2, 2), "n2": (3, 3), "n3": (1, 1)}, "n2"),
        ({"n1": (4, 2), "n2": (5, 1), "n3": (3, 6)}, "n3"),
    ],
)
def test_dp_13_the_latest_of_the_earliest_starts_wins(
    starts: dict[str, tuple[int, int]], winner: str
) -> None:
    pods = {
        node: [(MID, M, float(first)), (MID, L, float(second))] for node, (first, second) in starts.items()
    }
    assert best(pods) == (winner, "latest-start")


def test_dp_13_of_the_victims_only_those_of_the_highest_priority_count_with_their_start() -> None:
    pods = {"n1": [(MID, M, 4), (LOW, L, 6)], "n2": [(MID, M, 5), (LOW, L, 0)]}

    assert best(pods) == ("n2", "latest-start")


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


def test_dp_18_of_two_equal_candidates_the_lower_name_wins() -> None:
    pods = [make_pod("z", "n2", LOW, XL), make_pod("a", "n1", LOW, XL)]

    result = planned(make_snapshot(["n2", "n1"], pods), ask(make_pod("P", priority=HIGH, size=L)))

    assert [proposal.node for proposal in result.candidates] == ["n1", "n2"]
    assert result.candidates[0].decided_by == "node-name"
