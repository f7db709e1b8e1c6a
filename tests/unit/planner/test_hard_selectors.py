"""Hard budgets cover the pods that the eviction API counts, soft ones those that kube-scheduler counts."""

import msgspec
import pytest

from makeway.core.k8s.budget import Budget, budget_of
from makeway.core.k8s.objects import PodDisruptionBudget
from makeway.core.policy.document import Policy
from makeway.planner.snapshot.changes import Enforce, PutBudget
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import HIGH, LOW, ask, make_pod, make_snapshot, planned, refused

HARD = Policy(disruption_budgets="hard", hard_budget_namespaces=("*",))
ABSENT = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
P = make_pod("P", priority=HIGH, size=200)


def frozen(selector: object, name: str = "freeze") -> Budget:
    made = {
        "metadata": {"namespace": "default", "name": name, "generation": 1},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": 0, "observedGeneration": 1},
    }
    return budget_of(msgspec.convert(made, PodDisruptionBudget))


def snapshot_under(budget: Budget, labels: dict[str, str], policy: Policy) -> Snapshot:
    return make_snapshot(["a"], [make_pod("w", "a", LOW, 400, labels=labels)], [budget], policy=policy)


@pytest.mark.parametrize(("selector", "labels"), [({}, {"app": "web"}), ({}, {}), (ABSENT, {})])
def test_a_hard_budget_keeps_what_the_eviction_api_counts(selector: object, labels: dict[str, str]) -> None:
    snapshot = snapshot_under(frozen(selector), labels, HARD)
    assert refused(snapshot, ask(P)).exempt == {"hard-budget": 1}


@pytest.mark.parametrize(("selector", "labels"), [({}, {"app": "web"}), ({}, {}), (ABSENT, {})])
def test_a_soft_budget_covers_only_what_schedulers_count(selector: object, labels: dict[str, str]) -> None:
    snapshot = snapshot_under(frozen(selector), labels, Policy())
    assert snapshot.budgets.members(snapshot.budget_set("w")) == ()
    assert planned(snapshot, ask(P)).candidates[0].node == "a"


@pytest.mark.parametrize(("selector", "labels"), [({}, {"app": "web"}), ({}, {}), (ABSENT, {})])
def test_pods_are_matched_anew_when_their_budgets_become_hard_or_soft(
    selector: object, labels: dict[str, str]
) -> None:
    snapshot = snapshot_under(frozen(selector), labels, Policy())
    snapshot.apply(Enforce(HARD, "hard"))
    assert refused(snapshot, ask(P)).exempt == {"hard-budget": 1}
    snapshot.apply(Enforce(Policy(), "soft"))
    assert planned(snapshot, ask(P)).candidates[0].node == "a"
    assert snapshot.budgets.members(snapshot.budget_set("w")) == ()


def test_only_namespaces_whose_budgets_become_hard_and_cover_others_then_are_matched_anew() -> None:
    snapshot = snapshot_under(frozen({"matchLabels": {"app": "web"}}), {"app": "web"}, Policy())
    assert snapshot.budgets.hold(("*",)) == []
    snapshot.apply(PutBudget(frozen({}, "all")))
    assert snapshot.budgets.hold(("*",)) == []
    assert snapshot.budgets.hold(("other",)) == ["default"]
    assert snapshot.budgets.hold(("default",)) == ["default"]


def test_many_budgets_with_an_empty_selector_are_too_many_only_where_they_are_hard() -> None:
    snapshot = snapshot_under(frozen({}), {"app": "web"}, Policy())
    for number in range(200):
        snapshot.apply(PutBudget(frozen({}, f"b{number}")))
    assert planned(snapshot, ask(P)).candidates[0].victims[0].pdb_violating is False
    snapshot.apply(Enforce(HARD, "hard"))
    assert refused(snapshot, ask(P)).exempt == {"hard-budget": 1}
