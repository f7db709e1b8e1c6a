"""Whether pods are made anew past the queue gate while a process runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from makeway.core.k8s.importance import microseconds
from makeway.core.queues.quota import QuotaObstacle, QuotaPlan
from makeway.core.text import counted
from makeway.planner.quota.processes import EndedQuota, RunningQuota
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

MADE_ANEW: Final = "made-anew"

_SHOWN: Final = 3


def in_vain(
    snapshot: Snapshot, path: str, process: RunningQuota, plan: QuotaPlan, now: datetime
) -> EndedQuota | None:
    """Return how a process ends that has evicted as many pods as it plans for, and has to free as much still.

    The gate lets no pod into a queue above its maximum, so that what was evicted has come again past it, and
    would for ever. None where it is not so. O(pods below).
    """
    if process.evicted < sum(unit.size for unit in plan.victims):
        return None
    if not any(plan.need.get(name, 0) >= amount for name, amount in process.need.items()):
        return None
    again = counted(process.evicted, "pod")
    message = f"{plan.message}, as when that began: evicting {again} had no lasting effect"
    makers = _makers(_made_since(snapshot, path, process.began_at))
    return EndedQuota("undone", now, message, process.evicted, makers)


def _made_since(snapshot: Snapshot, path: str, since: datetime) -> list[PodRecord]:
    """Return the pods in and below a queue that were created since then."""
    queues = snapshot.queues
    if queues.tree is None:
        return []
    began = microseconds(since) - 1_000_000  # creation times are whole seconds
    there = queues.staying_in(queues.tree.at(path))
    return [pod for pod in there if pod.facts.created_micros >= began]


def _makers(made: Iterable[PodRecord]) -> tuple[QuotaObstacle, ...]:
    """Name what made most of some pods."""
    pods = Counter(pod.controller or f"no owner in namespace {pod.namespace}" for pod in made)
    return tuple(
        QuotaObstacle(MADE_ANEW, f"{counted(number, 'pod')} made anew by {maker}")
        for maker, number in pods.most_common(_SHOWN)
    )
