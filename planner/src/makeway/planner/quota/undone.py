"""Whether pods are made anew past the queue gate, a minute after a success or while a process runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from makeway.core.k8s.importance import microseconds
from makeway.core.queues.amounts import Amounts, looser, over, texts_of
from makeway.core.queues.quota import QuotaObstacle, QuotaPlan
from makeway.core.text import counted
from makeway.planner.quota.processes import EndedQuota, RunningQuota
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

LOOK_AGAIN: Final = timedelta(seconds=60)
"""How long after a success usage is read again: by then what owners make anew is there."""

MADE_ANEW: Final = "made-anew"

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Success:
    """A process that ended well: what it brought its queue down to, and since when it ran."""

    ended: EndedQuota
    maximum: Amounts
    began_at: datetime


def undone(snapshot: Snapshot, path: str, success: Success, now: datetime) -> EndedQuota | None:
    """Return how the process has ended after all, where usage is above its maximum; None where it is not.

    A maximum that was raised meanwhile counts, one that was lowered has a process of its own. O(pods below).
    """
    queues = snapshot.queues
    queue = queues.tree.find(path) if queues.tree is not None else None
    if queue is None or queues.staying is None:
        return None
    most = looser(success.maximum, queue.maximum)
    used = queues.staying.of(queue.number)
    if not (excess := over(used, most)):
        return None
    held = texts_of({name: used[name] for name in excess})
    message = (
        f"{path} came down to its max, and uses {held} of at most {texts_of(most)} again: "
        f"evicting {counted(success.ended.evicted, 'pod')} had no lasting effect"
    )
    makers = _makers(_made_since(snapshot, path, success.began_at))
    return EndedQuota("undone", now, message, success.ended.evicted, makers)


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
