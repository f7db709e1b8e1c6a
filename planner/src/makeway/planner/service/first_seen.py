"""Since when pods that are bound to one node have not fitted on it, for the start delay. Pure state.

A pod's own condition says so after its first failure, and another planner reads it there; this memory is
for the time before the scheduler has written it.
"""

from __future__ import annotations

from datetime import datetime

_MOST = 20_000
"""How many are remembered: the pods of several DaemonSets on the largest clusters."""


class FirstSeen:
    """When each pod was first asked about, by UID."""

    def __init__(self) -> None:
        self._seen: dict[str, datetime] = {}

    def note(self, uid: str, told: datetime | None, now: datetime) -> datetime:
        """Give since when a pod has not fitted: what its condition tells, or the first question. O(1)."""
        seen = self._seen.setdefault(uid, now)
        if len(self._seen) > _MOST:
            del self._seen[next(iter(self._seen))]
        return seen if told is None else min(seen, told)
