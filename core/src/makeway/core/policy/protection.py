"""Pods that are never victims: mirror pods always, and those that the policy protects.

Source: the policy document's `protection`. Protection looks at the pod alone: no preemptor's priority is
high enough.
"""

from __future__ import annotations

from makeway.core.policy.document import Protection, in_namespaces
from makeway.core.policy.exemption import (
    ANY_PREEMPTOR,
    MIRROR_POD,
    NEVER_EVICT,
    NOT_EXEMPT,
    PROTECTED_NAMESPACE,
    PROTECTED_PRIORITY,
    Exemption,
    exempt_from_all,
)
from makeway.core.policy.facts import PodFacts


def exemption_of(victim: PodFacts, protection: Protection) -> Exemption:
    """Return the protection of a pod as an exemption. O(protected namespaces)."""
    if victim.mirror:
        return exempt_from_all(MIRROR_POD)
    if victim.namespace in protection.namespaces:
        return exempt_from_all(PROTECTED_NAMESPACE)
    if protection.minimum_priority is not None and victim.priority >= protection.minimum_priority:
        return exempt_from_all(PROTECTED_PRIORITY)
    if victim.never_evict and _is_honoured(victim.namespace, protection):
        return exempt_from_all(NEVER_EVICT)
    return NOT_EXEMPT


def detail_of(exemption: Exemption, victim: PodFacts, protection: Protection) -> str:
    """Return in words why a pod is protected, or that it is not."""
    if exemption.below < ANY_PREEMPTOR:
        return "not protected"
    match exemption.rule:
        case "mirror-pod":
            return "a mirror pod cannot be evicted through the API"
        case "protected-namespace":
            return f"namespace {victim.namespace} is protected"
        case "protected-priority":
            return f"priority {victim.priority} >= protected priority {protection.minimum_priority}"
    return f"annotated never to be evicted, which is honoured in namespace {victim.namespace}"


def _is_honoured(namespace: str, protection: Protection) -> bool:
    return in_namespaces(namespace, protection.never_evict_namespaces)
