"""Which pods may be evicted so that a quota comes into effect: rules about the victim alone.

There is no preemptor, so what compares priorities does not apply: neither Kubernetes' own rule nor
PreemptionToleration, which protects a pod from preemptors of some priority. What protects a pod from
any preemptor does. Planner and evictor ask this same function.

1. pods of a DaemonSet: they would come straight back to the same node (YuniKorn),
2. mirror pods, and those that the policy protects: as for every preemption,
3. system-critical pods: they go only for a pod of higher priority, and there is none,
4. pods that a rule of the policy's `preemption` keeps that names no preemptors (`kept_from_quotas`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from makeway.core.policy import protection
from makeway.core.policy.document import Protection
from makeway.core.policy.exemption import NOT_EXEMPT, PREEMPTION_RULE
from makeway.core.policy.facts import SYSTEM_CRITICAL_PRIORITY, PodFacts
from makeway.core.policy.preemption import Party, Table, first_rule
from makeway.core.policy.rules import SYSTEM_CRITICAL

DAEMON_SET: Final = "daemonset-pod"

EXEMPT_NAMESPACE: Final = "exempt-namespace"
"""The rule that keeps pods of a namespace that queues never hold: they would come straight back."""

QUOTA: Final = "quota"
"""The rule that makes a pod removable for its queue's quota."""


@dataclass(frozen=True, slots=True)
class QuotaExemption:
    """The rule that forbids it, and why, for a person to read."""

    rule: str
    detail: str


def quota_exemption_of(victim: PodFacts, protected: Protection) -> QuotaExemption | None:
    """Return what forbids to evict a pod for any quota; None where nothing does. O(protected namespaces)."""
    if victim.daemon:
        return QuotaExemption(DAEMON_SET, "a DaemonSet's pod would come back to its node at once")
    exemption = protection.exemption_of(victim, protected)
    if exemption != NOT_EXEMPT:
        return QuotaExemption(exemption.rule, protection.detail_of(exemption, victim, protected))
    if victim.priority >= SYSTEM_CRITICAL_PRIORITY:
        return QuotaExemption(SYSTEM_CRITICAL, f"priority {victim.priority} is Kubernetes' own")
    return None


def kept_from_quotas(table: Table, victim: Party) -> QuotaExemption | None:
    """Return which rule of who may preempt whom keeps a pod from every quota; None where none does. O(rules).

    The first rule that names no preemptors and matches decides; a minimum run time does not count.
    """
    rule = first_rule(table, None, victim)
    if rule is None or rule.action == "allow":
        return None
    return QuotaExemption(PREEMPTION_RULE, f"rule {rule.name} of preemption.rules denies it")
