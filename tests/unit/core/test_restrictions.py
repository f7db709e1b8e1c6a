"""What restricts preemption, by name, so that a scheduler without a plan holds its pods."""

import pytest

from makeway.core.k8s.objects import Metadata, PriorityClass
from makeway.core.policy.document import DaemonSets, Groups, Policy, PolicyLimits, Protection
from makeway.core.policy.restrictions import Restrictions, is_annotated, restrictions

SECONDS = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds"
MINIMUM = "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority"


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        (Policy(), Restrictions()),
        # How far makeway goes, and what it may do beyond kube-scheduler, restricts nothing.
        (Policy(mode="observe", namespace_modes={"a": "off"}), Restrictions()),
        (Policy(daemon_sets=DaemonSets(enabled=True), groups=Groups(preemptors="hold")), Restrictions()),
        (Policy(hard_budget_namespaces=("a",)), Restrictions()),
        (
            Policy(disruption_budgets="hard", hard_budget_namespaces=("a",)),
            Restrictions(("hardBudgetNamespaces",)),
        ),
        (Policy(protection=Protection(namespaces=("a",))), Restrictions(("protection.namespaces",))),
        (Policy(protection=Protection(minimum_priority=0)), Restrictions(("protection.minimumPriority",))),
        (
            Policy(protection=Protection(never_evict_namespaces=("*",))),
            Restrictions(("protection.neverEvictNamespaces",)),
        ),
        (Policy(limits=PolicyLimits(victims_per_minute=5)), Restrictions((), ("limits",))),
        (Policy(limits=PolicyLimits(victims_per_order=99)), Restrictions((), ("limits",))),
        (Policy(limits=PolicyLimits(victims_percent_per_ten_minutes=99)), Restrictions((), ("limits",))),
        (Policy(limits=PolicyLimits(victims_per_order=200, victims_per_minute=1_000_000)), Restrictions()),
    ],
)
def test_each_rule_of_a_policy_that_keeps_pods_is_named(policy: Policy, found: Restrictions) -> None:
    assert restrictions(policy, queues=False, tolerating=()) == found


def test_queues_and_the_first_class_that_tolerates_are_named() -> None:
    found = restrictions(Policy(), queues=True, tolerating={"b", "a", "c"})

    assert found == Restrictions((), ("queues", "PriorityClass a"))


@pytest.mark.parametrize(
    ("annotations", "annotated"),
    [
        (None, False),
        ({"makeway.dev/preemption-delay": "30s"}, False),
        ({SECONDS: "0"}, False),
        ({SECONDS: "0", MINIMUM: "5"}, False),
        ({SECONDS: "-1"}, True),
        ({SECONDS: "60", MINIMUM: "5"}, True),
        ({MINIMUM: "5"}, True),
        ({SECONDS: "for ever"}, True),
    ],
)
def test_a_class_counts_by_its_annotations_whatever_they_mean(
    annotations: dict[str, str] | None, annotated: bool
) -> None:
    assert is_annotated(PriorityClass(metadata=Metadata(name="a", annotations=annotations))) == annotated
