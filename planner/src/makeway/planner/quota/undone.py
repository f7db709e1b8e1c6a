"""Whether what a successful process has brought down is up again a minute later. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from makeway.core.k8s.importance import microseconds
from makeway.core.queues.amounts import Amounts, looser, over, texts_of
from makeway.core.queues.quota import QuotaObstacle
from makeway.core.text import counted
from makeway.planner.quota.processes import EndedQuota
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
        f"{counted(success.ended.evicted, 'pod')} went for nothing"
    )
    makers = tuple(
        QuotaObstacle(MADE_ANEW, f"{counted(pods, 'pod')} made anew by {maker}")
        for maker, pods in _makers(snapshot, path, success.began_at).most_common(_SHOWN)
    )
    return EndedQuota("undone", now, message, success.ended.evicted, makers)


def _makers(snapshot: Snapshot, path: str, since: datetime) -> Counter[str]:
    """Count the pods in and below a queue that were created since then, by what made them."""
    queues = snapshot.queues
    tree = queues.tree
    if tree is None:
        return Counter()
    began = microseconds(since) - 1_000_000  # creation times are whole seconds
    return Counter(
        pod.controller or f"no owner in namespace {pod.namespace}"
        for pod in queues.staying_in(tree.at(path))
        if pod.facts.created_micros >= began
    )
