"""Marks left behind: pods that carry preemption's DisruptionTarget, live on, and belong to no live order.

An evictor takes its marks back when its order fails. Where NATS has lost the order as well as the
evictor, no process remembers them. The planner sees every pod, so it notices; it may write nothing, so it
proposes the repair to the evictors, which look again before they act.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from makeway.core.k8s.disruption import lives_on_marked
from makeway.core.k8s.objects import Pod

PATIENCE_SECONDS = 15.0
"""How long a mark may belong to no live order. A preemption takes well under a second from mark to delete,
also that of another scheduler, whose orders are not known here."""

REPEAT_SECONDS = 5.0
"""Between two proposals about the same pod."""

AT_ONCE = 50
"""Proposals in one round; those that wait longest come first."""


@dataclass(frozen=True)
class Mark:
    """A pod, this incarnation of it."""

    namespace: str
    name: str
    uid: str


@dataclass
class _Seen:
    mark: Mark
    since: float
    """When it was first seen without a live order, on the monotonic clock."""
    proposed_at: float | None = None


class Marks:
    """Follows the marks of all pods; a handler of the pods' list-watch. O(marks) a round."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._seen: dict[str, _Seen] = {}

    def __len__(self) -> int:
        """How many pods carry a mark."""
        return len(self._seen)

    def put(self, item: Pod) -> None:
        """Note whether the pod is marked."""
        metadata = item.metadata
        if not lives_on_marked(item):
            self._seen.pop(metadata.uid, None)
        elif metadata.uid not in self._seen:
            mark = Mark(metadata.namespace, metadata.name, metadata.uid)
            self._seen[metadata.uid] = _Seen(mark, self._monotonic())

    def drop(self, item: Pod) -> None:
        """Forget a pod that is gone."""
        self._seen.pop(item.metadata.uid, None)

    def retain(self, uids: set[str]) -> None:
        """Forget pods that a complete list does not have."""
        for uid in self._seen.keys() - uids:
            del self._seen[uid]

    def due(self, live: Collection[str]) -> list[Mark]:
        """Return the marks to propose now. `live`: UIDs that live orders name; their patience begins anew."""
        now = self._monotonic()
        waiting = []
        for uid, seen in self._seen.items():
            if uid in live:
                seen.since, seen.proposed_at = now, None
            elif now - seen.since >= PATIENCE_SECONDS and (
                seen.proposed_at is None or now - seen.proposed_at >= REPEAT_SECONDS
            ):
                waiting.append(seen)
        waiting.sort(key=lambda seen: (seen.since, seen.mark.uid))
        for seen in waiting[:AT_ONCE]:
            seen.proposed_at = now
        return [seen.mark for seen in waiting[:AT_ONCE]]
