"""Who matters more, and who may be removed for whom."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.k8s.importance import NOT_STARTED, importance, microseconds, moment_of
from makeway.core.k8s.objects import Metadata, PriorityClass
from makeway.core.policy.document import Policy, Protection
from makeway.core.policy.facts import NOT_SCHEDULED, PodFacts
from makeway.core.policy.rules import (
    PreemptionPair,
    PreemptorFacts,
    Rule,
    Verdict,
    exemption_of,
    judge,
    lower_priority,
    rules_in_force,
    victim_rules,
)
from makeway.core.policy.toleration import MINIMUM_PREEMPTABLE_PRIORITY, TOLERATION_SECONDS
from makeway.core.policy.toleration_record import UNREAD_RECORD

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_higher_priority_then_earlier_start_then_lower_uid_matters_more() -> None:
    order = [
        importance(10, 5, "z"),
        importance(0, 1, "z"),
        importance(0, 2, "a"),
        importance(0, 2, "b"),
        importance(0, NOT_STARTED, "a"),
        importance(-5, 0, "a"),
    ]

    assert sorted(order) == order


def test_times_keep_their_microseconds() -> None:
    moment = NOW + timedelta(microseconds=1)

    assert moment_of(microseconds(moment)) == moment
    assert microseconds(None) == NOT_STARTED


def pair(preemptor: int, victim: int | PodFacts) -> PreemptionPair:
    facts = PodFacts(priority=victim) if isinstance(victim, int) else victim
    return PreemptionPair(PreemptorFacts(priority=preemptor), facts, NOW)


@pytest.mark.parametrize(("victim", "removable"), [(9, True), (10, False), (11, False)])
def test_only_a_pod_of_lower_priority_may_go(victim: int, removable: bool) -> None:
    verdict = judge((lower_priority,), pair(10, victim))

    assert verdict.removable is removable
    assert verdict.rule == "lower-priority"
    assert str(victim) in verdict.detail


def test_the_first_rule_that_forbids_speaks_and_without_one_the_first_of_all() -> None:
    def exempt(pair: PreemptionPair) -> Verdict:
        return Verdict(pair.victim.priority < 5, "exempt", "")

    assert judge((lower_priority, exempt), pair(10, 9)).rule == "exempt"
    assert judge((lower_priority, exempt), pair(10, 4)).rule == "lower-priority"
    assert not judge((), pair(10, 0)).removable


@pytest.mark.parametrize(("preemptor", "removable"), [(2_000_000_000, False), (2_000_000_001, True)])
def test_a_system_critical_pod_goes_only_for_a_higher_one_where_equal_priorities_may_go(
    preemptor: int, removable: bool
) -> None:
    verdict = judge(victim_rules(Policy(), {}), pair(preemptor, 2_000_000_000))

    assert verdict.removable is removable
    assert verdict.rule == "system-critical"
    assert judge(victim_rules(Policy(), {}), pair(5, 5)).removable


def test_without_policy_and_annotations_only_priorities_decide() -> None:
    rules = rules_in_force(Policy(), {"plain": PriorityClass(metadata=Metadata(name="plain"))})
    asks_to_stay = PodFacts(namespace="kube-system", priority=5, priority_class="plain", never_evict=True)

    assert judge(rules, pair(1, PodFacts(priority_class="plain"))).removable
    assert judge(rules, pair(6, asks_to_stay)).removable


def test_a_protected_pod_that_is_not_of_lower_priority_is_told_to_be_that() -> None:
    protected = PodFacts(priority=5, mirror=True)

    assert judge(rules_in_force(Policy(), {}), pair(5, protected)).rule == "lower-priority"


def test_rules_see_classes_as_they_are_when_they_are_asked() -> None:
    classes: dict[str, PriorityClass] = {}
    rules = rules_in_force(Policy(), classes, UNREAD_RECORD)
    before = judge(rules, pair(1, PodFacts(priority_class="late")))
    classes["late"] = PriorityClass(metadata=Metadata(name="late"))

    assert (before.removable, before.rule) == (False, "preemption-toleration")
    assert judge(rules, pair(1, PodFacts(priority_class="late"))).removable


SECONDS = st.sampled_from(["-1", "0", "5", "100", "soon"]) | st.none()
CLASSES = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.builds(
        lambda minimum, seconds: PriorityClass(
            metadata=Metadata(
                annotations={
                    key: value
                    for key, value in ((MINIMUM_PREEMPTABLE_PRIORITY, minimum), (TOLERATION_SECONDS, seconds))
                    if value is not None
                }
            ),
            value=5,
        ),
        minimum=st.sampled_from(["3", "8", "many"]) | st.none(),
        seconds=SECONDS,
    ),
)
VICTIMS = st.builds(
    PodFacts,
    namespace=st.sampled_from(["lab", "shop"]),
    priority=st.integers(0, 9),
    priority_class=st.sampled_from(["", "a", "b", "gone"]),
    scheduled_micros=st.integers(0, 10).map(lambda ago: microseconds(NOW) - ago * 1_000_000)
    | st.just(NOT_SCHEDULED),
    mirror=st.booleans(),
    never_evict=st.booleans(),
)
POLICIES = st.builds(
    Policy,
    protection=st.builds(
        Protection,
        namespaces=st.sampled_from([(), ("lab",)]),
        minimum_priority=st.none() | st.integers(0, 9),
        never_evict_namespaces=st.sampled_from([(), ("shop",), ("*",)]),
    ),
)


@given(POLICIES, CLASSES, VICTIMS, st.integers(0, 10))
def test_an_exemption_says_what_its_rules_say(
    policy: Policy, classes: dict[str, PriorityClass], victim: PodFacts, preemptor: int
) -> None:
    rules: tuple[Rule, ...] = victim_rules(policy, classes)
    exemption = exemption_of(victim, policy, classes)
    verdict = judge(rules, pair(preemptor, victim))

    assert exemption.applies(preemptor, microseconds(NOW)) is not verdict.removable
    if not verdict.removable:
        assert exemption.rule == verdict.rule
        assert verdict.until is None or exemption.until == microseconds(verdict.until)
