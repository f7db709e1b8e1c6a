"""Pods that are never victims, whatever the preemptor's priority."""

from datetime import UTC, datetime

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


def test_a_protected_pod_that_is_not_of_lower_priority_is_told_to_be_that() -> None:
    assert ask(PodFacts(priority=5, mirror=True), preemptor=5).rule == "lower-priority"
