"""What an order of a queue's quota may be about: a queue whose quota is enforced, and pods in that queue.

The evictor asks this of the queues that it has read itself, whatever the order says; the planner plans with
the same tree, placement and requests, so that what it orders in good faith passes. That the queue is above
its maximum is not asked here: who knows no pods but those of the order cannot know it.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from makeway.core.k8s.objects import Pod
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.queue_labels import asked_for
from makeway.core.k8s.requests import pod_requests
from makeway.core.queues.placement import place
from makeway.core.queues.quota_exemption import EXEMPT_NAMESPACE, QuotaExemption
from makeway.core.queues.tree import NEVER, QueueTree

NOT_IN_QUEUE: Final = "not-in-queue"
"""The rule that keeps a pod of another queue."""

NOT_LIMITED: Final = "not-limited"
"""The rule that keeps a pod that requests nothing that the maximum limits: its eviction would free none."""


def unenforced(tree: QueueTree, path: str) -> str:
    """Return why the configuration lets no pod go for a queue's quota; empty where pods may. O(1)."""
    queue = tree.find(path)
    if queue is None:
        return f"there is no queue {path}"
    if not tree.quota_preemption:
        return "quotapreemptionenabled is not true"
    if not queue.maximum:
        return f"{path} has no max"
    if queue.delay == NEVER:
        return f"{path} has no quota.preemption.delay"
    return ""


def bar_of(
    tree: QueueTree, path: str, pod: Pod, exempt_namespaces: Set[str] = frozenset()
) -> QuotaExemption | None:
    """Return what in the configuration of the queues keeps a pod from going for the quota of a queue.

    None where nothing does. `exempt_namespaces`: as `queue_exempt_namespaces` returns them. O(containers).
    """
    namespace = pod.metadata.namespace
    if namespace in exempt_namespaces:
        return QuotaExemption(EXEMPT_NAMESPACE, f"queues never hold pods of namespace {namespace}")
    queue = tree.find(path)
    own = place(tree, asked_for(pod.metadata.labels or {}), namespace).queue
    if queue is None or not queue.number <= own.number < queue.below:
        return QuotaExemption(NOT_IN_QUEUE, f"the pod is in {own.path}, the order is for {path}")
    try:
        requests = pod_requests(pod, placed=True)
    except QuantityError as error:
        return QuotaExemption(NOT_LIMITED, f"what the pod requests cannot be read: {error}")
    if requests.keys().isdisjoint(queue.maximum):
        limited = ", ".join(sorted(queue.maximum))
        return QuotaExemption(NOT_LIMITED, f"the pod requests nothing that {path} limits: {limited}")
    return None
