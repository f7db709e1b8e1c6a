"""Which pods their queue never holds: what a cluster needs to start again must not wait for a quota.

1. pods of priority 2000000000 and above: Kubernetes' own classes,
2. pods of makeway's own namespace: the planner, the evictors and NATS open the gate for everyone else,
3. pods of the namespaces that the policy names; without it kube-system.

They are counted in their queues, so that the numbers are true. The scheduler's queue gate keeps the same
rule in Go, also while no planner has told it anything.
"""

from __future__ import annotations

from collections.abc import Set

from makeway.core.policy.document import Policy
from makeway.core.policy.facts import SYSTEM_CRITICAL_PRIORITY


def queue_exempt_namespaces(policy: Policy, own_namespace: str) -> frozenset[str]:
    """Return the namespaces whose pods are exempt. `own_namespace`: makeway's, empty where not known."""
    return frozenset({*policy.queues.exempt_namespaces, own_namespace} - {""})


def is_queue_exempt(namespace: str, priority: int, namespaces: Set[str]) -> bool:
    """Report whether a queue never holds a pod; `namespaces`: as `exempt_namespaces` returns them. O(1)."""
    return priority >= SYSTEM_CRITICAL_PRIORITY or namespace in namespaces
