"""What restricts preemption, so that kube-scheduler's own, which knows no policy, acts where nothing does.

A scheduler without a plan asks no rule about single pods: it reads whether anything restricts. So a name here
says that a rule exists, not whom it keeps.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from makeway.core.k8s.objects import PriorityClass
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.core.policy.toleration import MINIMUM_PREEMPTABLE_PRIORITY, TOLERATION_SECONDS


@dataclass(frozen=True, slots=True)
class Restrictions:
    """By the names that a policy, or the cluster, has for them; both are empty where nothing restricts.

    `protecting`: hard budgets, and rules by which pods are never victims, whatever the preemptor's priority.
    `restricting`: queues, limits, and PriorityClasses that tolerate preemption.
    """

    protecting: tuple[str, ...] = ()
    restricting: tuple[str, ...] = ()


def restrictions(policy: Policy, *, queues: bool, tolerating: Collection[str]) -> Restrictions:
    """Return what restricts preemption. Pure. O(classes).

    `queues`: there is a queue configuration. `tolerating`: the PriorityClasses that may exempt a pod. Of the
    latter the first by name is named. Limits restrict where one is not its default.
    """
    protection = policy.protection
    protecting = (
        ("protection.namespaces", bool(protection.namespaces)),
        ("protection.minimumPriority", protection.minimum_priority is not None),
        ("protection.neverEvictNamespaces", bool(protection.never_evict_namespaces)),
        ("hardBudgetNamespaces", bool(policy.hard_budgets)),
    )
    restricting = (
        ("limits", policy.limits != PolicyLimits()),
        ("queues", queues),
        (f"PriorityClass {min(tolerating, default='')}", bool(tolerating)),
    )
    return Restrictions(
        tuple(name for name, there in protecting if there),
        tuple(name for name, there in restricting if there),
    )


def is_annotated(priority_class: PriorityClass) -> bool:
    """Report whether a class has an annotation of PreemptionToleration, other than a toleration of 0 seconds.

    Coarser than `tolerates`, and read alike by the scheduler: what the values mean is the planner's to say.
    """
    annotations = priority_class.metadata.annotations or {}
    seconds = annotations.get(TOLERATION_SECONDS)
    return seconds != "0" and (seconds is not None or MINIMUM_PREEMPTABLE_PRIORITY in annotations)
