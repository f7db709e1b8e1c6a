"""What a request says of earlier tries: refused victims, columns set aside; and the sample of a refusal."""

from dataclasses import replace
from datetime import timedelta

import pytest

from makeway.core.policy.document import DaemonSets, Policy, PolicyLimits, Protection
from makeway.planner.snapshot.changes import PutNode
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import (
    HIGH,
    LOW,
    MID,
    NOW,
    ask,
    choices,
    make_node,
    make_pod,
    make_snapshot,
    planned,
    refused,
)

URGENT = make_pod("P", priority=HIGH, size=400)


def full(node: str, uid: str = "", priority: int = LOW) -> PodRecord:
    return make_pod(uid or f"{node}0", node, priority, 500)


# ---------------------------------------------------------------------------------- refused victims


def test_a_pod_whose_deletion_was_refused_is_left_out_and_the_next_best_goes() -> None:
    snapshot = make_snapshot(["a", "b"], [full("a"), full("b", priority=MID)])

    assert choices(planned(snapshot, ask(URGENT))) == [("a", {"a0"}), ("b", {"b0"})]
    assert choices(planned(snapshot, ask(URGENT, refused=["a0"]))) == [("b", {"b0"})]


def test_what_was_refused_for_one_preemptor_goes_for_the_next_of_its_class() -> None:
    snapshot = make_snapshot(["a", "b"], [full("a"), full("b", priority=MID)])
    other = make_pod("Q", priority=HIGH, size=400)

    for _ in range(2):
        assert choices(planned(snapshot, ask(URGENT, refused=["a0"]))) == [("b", {"b0"})]
        assert choices(planned(snapshot, ask(other))) == [("a", {"a0"}), ("b", {"b0"})]


def test_a_refusal_counts_whose_deletion_was_refused_and_when_to_ask_again() -> None:
    snapshot = make_snapshot(["a"], [full("a")], policy=Policy())

    refusal = refused(snapshot, ask(URGENT, refused=["a0", "gone"]))

    assert refusal.reason == "PodsSpared"
    assert refusal.exempt == {"delete-refused": 1}
    assert "1 pod exempt by delete-refused" in refusal.message
    assert refusal.depends_on == (("Pod", "default", "a0"),)
    assert refusal.retry_at == NOW + timedelta(minutes=1)
    (near,) = refusal.nearest
    assert [(one.pod.uid, one.verdict.rule) for one in near.exempt.pods] == [("a0", "delete-refused")]


def test_a_pod_that_is_assumed_and_was_refused_stays() -> None:
    snapshot = make_snapshot(["a"], [make_pod("s", size=500)])
    question = ask(URGENT, assumed=[("s", "a")])

    assert choices(planned(snapshot, question)) == [("a", {"s"})]
    assert refused(snapshot, replace(question, refused=frozenset({"s"}))).exempt == {"delete-refused": 1}


def test_a_daemon_sets_pod_does_not_order_what_was_refused_again() -> None:
    policy = Policy(daemon_sets=DaemonSets(enabled=True))
    snapshot = make_snapshot(["a"], [full("a", "x"), full("a", "y")], policy=policy)
    snapshot.apply(PutNode(make_node("a", 1000)))
    (first,) = planned(snapshot, ask(URGENT, daemonset_node="a")).candidates
    (victim,) = [pod.pod.uid for pod in first.victims]
    (other,) = {"x", "y"} - {victim}

    (second,) = planned(snapshot, ask(URGENT, daemonset_node="a", refused=[victim])).candidates
    none = refused(snapshot, ask(URGENT, daemonset_node="a", refused=["x", "y"]))

    assert [pod.pod.uid for pod in second.victims] == [other]
    assert victim not in {pod.pod.uid for pod in second.removable}
    assert none.exempt == {"delete-refused": 2}
    assert none.retry_at == NOW + timedelta(minutes=1)
    assert ("Pod", "default", "x") in none.depends_on


# ------------------------------------------------------------------------------------ ignored columns


def test_with_columns_set_aside_every_node_with_a_removable_pod_is_left_to_the_filters() -> None:
    policy = Policy(protection=Protection(namespaces=("kube-system",)))
    kept = make_pod("k", "c", LOW, 100, namespace="kube-system")
    pods = [make_pod("s", "small", LOW, 50), make_pod("t", "b", LOW, 100), kept, full("d", priority=HIGH)]
    snapshot = make_snapshot([make_node("small", 100), "b", "c", "d"], pods, policy=policy)
    tall = make_pod("P", priority=HIGH, requests={"cpu": 9000, "hugepages-1Gi": 1, "x.io/gpu": 1})
    assert refused(snapshot, ask(tall)).reason == "ResourceNotOffered"

    plan = planned(snapshot, ask(tall, ignore_columns=True))

    assert plan.candidates == ()
    assert {one.node: [pod.pod.uid for pod in one.removable] for one in plan.unmodelled} == {
        "small": ["s"],
        "b": ["t"],
    }
    assert not any(pod.victim for one in plan.unmodelled for pod in one.removable)


def test_with_columns_set_aside_what_rules_keep_still_stays() -> None:
    snapshot = make_snapshot(
        ["a"], [full("a")], policy=Policy(protection=Protection(namespaces=("default",)))
    )

    refusal = refused(snapshot, ask(URGENT, ignore_columns=True))

    assert refusal.exempt == {"protected-namespace": 1}


# --------------------------------------------------------------------------------------- the sample


@pytest.fixture
def crowded() -> Snapshot:
    """Three nodes that are too small even when empty, one whose pods stay, and one without any."""
    names = ["a", "b", "c"]
    pods = [full(name) for name in names] + [full("high", priority=HIGH)]
    return make_snapshot([*names, "high", "empty"], pods)


def test_a_refusal_comes_with_one_node_that_the_columns_rule_out_by_turns(crowded: Snapshot) -> None:
    tall = make_pod("P", priority=HIGH, size=600)

    found = [refused(crowded, ask(tall, turn=turn)).sample for turn in range(6)]

    assert [one.node if one else "" for one in found] == ["a", "b", "c", "a", "b", "c"]
    assert [[pod.pod.uid for pod in one.removable] for one in found if one] == [
        [f"{name}0"] for name in "abcabc"
    ]


def test_a_refusal_where_nothing_may_go_has_no_sample(crowded: Snapshot) -> None:
    tall = make_pod("P", priority=LOW, size=600)

    assert refused(crowded, ask(tall)).sample is None


def test_a_node_that_only_the_policy_rules_out_is_no_sample() -> None:
    pods = [make_pod(f"a{number}", "a", LOW, 100) for number in range(5)]
    snapshot = make_snapshot(["a"], pods, policy=Policy(limits=PolicyLimits(victims_per_order=1)))

    refusal = refused(snapshot, ask(URGENT))

    assert refusal.reason == "ForbiddenByPolicy"
    assert refusal.sample is None
