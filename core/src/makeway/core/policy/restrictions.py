"""What restricts preemption, so that kube-scheduler's own, which knows no policy, acts where nothing does.

A scheduler without a plan asks no rule about single pods: it reads whether anything restricts. So a name here
says that a rule exists, not whom it keeps.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from makeway.core.k8s.objects import PriorityClass
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.core.policy.toleration import MINIMUM_PREEMPTABLE_PRIORITY, TOLERATION_SECONDS

_UNSAID: Final = PolicyLimits(
    orders_in_flight=1000,
    victims_per_minute=1_000_000,
    victims_per_namespace_and_minute=1_000_000,
    victims_percent_per_ten_minutes=100,
)
"""What holds for verified orders where a policy says nothing."""


@dataclass(frozen=True, slots=True)
class Restrictions:
    """By the names that a policy, or the cluster, has for them; both are empty where nothing restricts.

    `protecting`: hard budgets, and rules by which pods are no victims, whatever the preemptor's priority.
    `restricting`: queues, limits, and PriorityClasses that tolerate preemption.
    """

    protecting: tuple[str, ...] = ()
    restricting: tuple[str, ...] = ()


def restrictions(policy: Policy, *, queues: bool, tolerating: Collection[str]) -> Restrictions:
    """Return what restricts preemption. Pure. O(classes).

    `queues`: a queue has a limit or a guarantee. `tolerating`: the PriorityClasses that may exempt a pod; the
    first by name is named. Limits restrict where one is stricter than without a policy.
    """
    protection = policy.protection
    protecting = (
        ("protection.namespaces", bool(protection.namespaces)),
        ("protection.minimumPriority", protection.minimum_priority is not None),
        ("protection.neverEvictNamespaces", bool(protection.never_evict_namespaces)),
        ("hardBudgetNamespaces", bool(policy.hard_budgets)),
        ("preemption.rules", bool(policy.preemption.rules)),
        ("preemption.bands", bool(policy.preemption.bands)),
    )
    restricting = (
        ("limits", _is_stricter(policy.limits)),
        ("queues", queues),
        (f"PriorityClass {min(tolerating, default='')}", bool(tolerating)),
    )
    return Restrictions(
        tuple(name for name, there in protecting if there),
        tuple(name for name, there in restricting if there),
    )


def _is_stricter(limits: PolicyLimits) -> bool:
    """Report whether any preemption is refused, or waits, that is not where nothing is said."""
    said = ((getattr(limits, name), getattr(_UNSAID, name)) for name in PolicyLimits.__struct_fields__)
    return any(own is not None and own < without for own, without in said)


def is_annotated(priority_class: PriorityClass) -> bool:
    """Report whether a class has an annotation of PreemptionToleration, other than a toleration of 0 seconds.

    Coarser than `tolerates`, and read alike by the scheduler: what the values mean is the planner's to say.
    """
    annotations = priority_class.metadata.annotations or {}
    seconds = annotations.get(TOLERATION_SECONDS)
    return seconds != "0" and (seconds is not None or MINIMUM_PREEMPTABLE_PRIORITY in annotations)
