"""Pods that are never victims, whatever the preemptor's priority."""

from datetime import UTC, datetime

import pytest

from makeway.core.policy.document import Policy, Protection
from makeway.core.policy.facts import PodFacts
from makeway.core.policy.rules import PreemptionPair, PreemptorFacts, Verdict, judge, rules_in_force

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HIGHEST = 2**31 - 1


def ask(victim: PodFacts, preemptor: int = HIGHEST, **protection: object) -> Verdict:
    policy = Policy(protection=Protection(**protection))  # type: ignore[arg-type]
    return judge(rules_in_force(policy, {}), PreemptionPair(PreemptorFacts(priority=preemptor), victim, NOW))


def test_without_a_policy_only_the_priority_counts() -> None:
    assert ask(PodFacts(namespace="kube-system", priority=5, never_evict=True)).removable


def test_a_mirror_pod_is_never_a_victim() -> None:
    verdict = ask(PodFacts(mirror=True))

    assert (verdict.removable, verdict.rule) == (False, "mirror-pod")


def test_a_pod_in_a_protected_namespace_is_never_a_victim() -> None:
    verdict = ask(PodFacts(namespace="ledger"), namespaces=("ledger",))

    assert (verdict.removable, verdict.rule) == (False, "protected-namespace")
    assert "ledger" in verdict.detail
    assert ask(PodFacts(namespace="shop"), namespaces=("ledger",)).removable


@pytest.mark.parametrize(("priority", "removable"), [(999, True), (1000, False), (1001, False)])
def test_a_pod_from_the_protected_priority_on_is_never_a_victim(priority: int, removable: bool) -> None:
    verdict = ask(PodFacts(priority=priority), minimum_priority=1000)

    assert verdict.removable is removable
    if not removable:
        assert verdict.rule == "protected-priority"
        assert "1000" in verdict.detail


@pytest.mark.parametrize(
    ("namespaces", "removable"), [((), True), (("shop",), True), (("lab",), False), (("*",), False)]
)
def test_never_evict_is_honoured_where_the_policy_says(namespaces: tuple[str, ...], removable: bool) -> None:
    verdict = ask(PodFacts(namespace="lab", never_evict=True), never_evict_namespaces=namespaces)

    assert verdict.removable is removable
    assert removable or verdict.rule == "never-evict"


def test_a_protected_pod_that_is_not_of_lower_priority_is_told_to_be_that() -> None:
    assert ask(PodFacts(priority=5, mirror=True), preemptor=5).rule == "lower-priority"
