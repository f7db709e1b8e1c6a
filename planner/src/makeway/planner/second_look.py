"""A second look at preemptors that were refused: the snapshot may have been behind the scheduler's.

A watch that is silent for some seconds (a frozen connection, an API server that restarts) shows neither its
silence nor what it missed. A refusal made meanwhile depends on nothing that the scheduler waits for, so the
pod would lie in the unschedulable queue for up to five minutes, though the snapshot has long caught up. So
the first refusal of a pod asks for one more try; a second one stands. Pure state.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from makeway.planner.answer import Refusal

AFTER = timedelta(seconds=10)
"""When a refused pod is tried once more; as long as a failed order's preemptor may be without a try."""

FORGOTTEN = timedelta(minutes=5)
"""After so long a refusal counts as a first one again; the scheduler itself tries again as often."""

_MOST = 10_000
"""How many are remembered: as many as the plugin does."""


class SecondLook:
    """Which preemptors were refused lately, by UID."""

    def __init__(self) -> None:
        self._refused: dict[str, datetime] = {}

    def consider(self, refusal: Refusal, uid: str, now: datetime) -> Refusal:
        """Give the refusal with a time to try again where it is the pod's first; O(1), amortised."""
        first = self._refused.pop(uid, None)
        if first is None or now - first > FORGOTTEN:
            first = now
        self._refused[uid] = first
        if len(self._refused) > _MOST:
            del self._refused[next(iter(self._refused))]
        if first != now or refusal.retry_at is not None:
            return refusal
        return replace(refusal, retry_at=now + AFTER)
