"""Label selectors, and which pods a disruption budget covers."""

from typing import Any

import msgspec
import pytest

from makeway.core.k8s.budget import Budget, budget_of
from makeway.core.k8s.objects import LabelSelector, PodDisruptionBudget
from makeway.core.k8s.selector import SelectorError, compile_selector


def selector(**fields: Any) -> LabelSelector:
    return msgspec.convert(fields, LabelSelector)


def expression(operator: str, *values: str) -> LabelSelector:
    return selector(matchExpressions=[{"key": "app", "operator": operator, "values": list(values)}])


@pytest.mark.parametrize(
    ("wanted", "labels", "matches"),
    [
        (selector(matchLabels={"app": "a"}), {"app": "a", "x": "y"}, True),
        (selector(matchLabels={"app": "a"}), {"app": "b"}, False),
        (expression("In", "a", "b"), {"app": "b"}, True),
        (expression("In", "a"), {}, False),
        (expression("NotIn", "a"), {"app": "b"}, True),
        (expression("NotIn", "a"), {}, True),
        (expression("NotIn", "a"), {"app": "a"}, False),
        (expression("Exists"), {"app": ""}, True),
        (expression("Exists"), {}, False),
        (expression("DoesNotExist"), {}, True),
        (expression("DoesNotExist"), {"app": "a"}, False),
        (selector(), {"app": "a"}, True),
    ],
)
def test_a_selector_matches_as_in_kubernetes(
    wanted: LabelSelector, labels: dict[str, str], matches: bool
) -> None:
    assert compile_selector(wanted).matches(labels) is matches


@pytest.mark.parametrize(
    "wrong",
    [
        expression("In"),
        expression("Exists", "a"),
        expression("Sometimes", "a"),
        expression("In", "not a value!"),
        selector(matchLabels={"not a key": "a"}),
        selector(matchLabels={"UPPER.example/x": "a"}),
        selector(matchLabels={"app": "v" * 64}),
    ],
)
def test_what_kubernetes_would_not_accept_is_refused(wrong: LabelSelector) -> None:
    with pytest.raises(SelectorError):
        compile_selector(wrong)


def budget(spec: dict[str, Any], disrupted: tuple[str, ...] = ()) -> Budget:
    status = {"disruptionsAllowed": 1, "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z")}
    made = {"metadata": {"name": "b", "namespace": "ns"}, "spec": spec, "status": status}
    return budget_of(msgspec.convert(made, PodDisruptionBudget))


APP = {"selector": {"matchLabels": {"app": "a"}}}


def test_a_budget_covers_its_namespaces_matching_pods_that_are_not_disrupted_yet() -> None:
    found = budget(APP, disrupted=("old",))

    assert found.covers("ns", "p", {"app": "a"})
    assert not found.covers("other", "p", {"app": "a"})
    assert not found.covers("ns", "p", {"app": "b"})
    assert not found.covers("ns", "old", {"app": "a"})


@pytest.mark.parametrize(
    "spec", [{}, {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": []}]}}]
)
def test_a_budget_with_no_or_an_invalid_selector_covers_nothing(spec: dict[str, Any]) -> None:
    assert not budget(spec).covers("ns", "p", {"app": "a"})
    assert not budget(spec).covers_eviction("ns", "p", {"app": "a"})
    assert not budget(spec).covers_unlabelled


def test_an_empty_selector_covers_nothing_for_the_scheduler_and_every_pod_for_the_eviction_api() -> None:
    found = budget({"selector": {}}, disrupted=("old",))

    assert not found.covers("ns", "p", {"app": "a"})
    assert found.covers_eviction("ns", "p", {"app": "a"})
    assert found.covers_eviction("ns", "p", {})
    assert not found.covers_eviction("other", "p", {"app": "a"})
    assert not found.covers_eviction("ns", "old", {"app": "a"})


def test_a_pod_without_labels_is_covered_by_nothing_for_the_scheduler() -> None:
    missing = {"selector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}

    assert budget(missing).covers("ns", "p", {"other": "x"})
    assert not budget(missing).covers("ns", "p", {})
    assert budget(missing).covers_eviction("ns", "p", {})
