"""Another look at preemptors that were refused while the snapshot was behind the scheduler's.

A watch that is silent for some seconds (a frozen connection, an API server that restarts) shows neither its
silence nor what it missed. A refusal made meanwhile depends on nothing that the scheduler waits for, so the
pod would lie in the unschedulable queue for up to five minutes, though the snapshot has long caught up. So
such a refusal asks for another try, and for a later one each time it has to: a pod waits at most about twice
as long as the snapshot was behind. A refusal from a snapshot that knows all that the scheduler knows stands.
Pure state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from makeway.planner.plan.result import PlanRefusal

FIRST = timedelta(seconds=1)
LONGEST = timedelta(seconds=60)
"""The pause before the first other try; it doubles, up to the longest."""

FORGOTTEN = timedelta(minutes=5)
"""After so long without a question a refusal counts as a first one again."""

_MOST = 10_000
"""How many are remembered: as many as the plugin does."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A pod was refused `number` times in a row while the snapshot was behind, the last time `at`."""

    number: int
    at: datetime


class SecondLook:
    """Which preemptors were refused lately from a snapshot that was behind, by UID."""

    def __init__(self) -> None:
        self._looks: dict[str, _Look] = {}

    def consider(self, refusal: PlanRefusal, uid: str, now: datetime, *, behind: bool) -> PlanRefusal:
        """Give the refusal, with a time to try again where the snapshot was behind; O(1), amortised."""
        last = self._looks.pop(uid, None)
        if not behind:
            return refusal
        number = last.number + 1 if last is not None and now - last.at <= FORGOTTEN else 1
        self._looks[uid] = _Look(number, now)
        if len(self._looks) > _MOST:
            del self._looks[next(iter(self._looks))]
        again = now + min(FIRST * 2 ** min(number - 1, 16), LONGEST)
        if refusal.retry_at is not None and refusal.retry_at <= again:
            return refusal
        return replace(refusal, retry_at=again)
