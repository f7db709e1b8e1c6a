"""How far a request and the planner's snapshot are behind, and what is done about it. Pure state.

* How long a request waited before it was read, without trusting that two clocks agree: its id holds the
  time of its making, by a clock of its bridge that nothing sets. The smallest difference to such a clock of
  our own that a sender has shown lately is skew and the way here; what is beyond it is waiting.
* Refusals from a snapshot that was behind the scheduler's. A watch that is silent for some seconds (a
  frozen connection, an API server that restarts) shows neither its silence nor what it missed. Such a
  refusal depends on nothing that the scheduler waits for, so the pod would stay in the unschedulable queue
  for up to five minutes, though the snapshot has long caught up. So it asks for another try, and for a
  later one each time it has to: a pod waits at most about twice as long as the snapshot was behind.
  So do refusals for room that is only pledged to others: where no commit comes, nothing in the cluster says.
* Since when pods that are bound to one node have not fitted on it, for the start delay. A pod's own
  condition says so after its first failure, and another planner reads it there; until the scheduler has
  written it, this does.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from makeway.bus.ids import moment_in
from makeway.core.recent import Recent
from makeway.planner.plan.result import PlanRefusal

WINDOW_SECONDS: Final = 60.0
"""How long a smallest difference holds: clocks drift, and bridges come and go."""

FIRST_PAUSE: Final = timedelta(seconds=1)
LONGEST_PAUSE: Final = timedelta(seconds=60)
"""The pause before the first other try; it doubles, up to the longest."""

FORGOTTEN: Final = timedelta(minutes=5)
"""After so long without a question a refusal counts as a first one again."""

_MAX_REFUSALS: Final = 10_000
"""How many are remembered: as many as the plugin does."""

_MAX_FAILURES: Final = 20_000
"""How many are remembered: the pods of several DaemonSets on the largest clusters."""


class RequestAges:
    """Keeps the smallest difference of the last minute, of each sender. O(1) a request, amortised."""

    def __init__(self) -> None:
        # By sender, the one that was heard last at the end. Ascending in both time and difference: the
        # first is the smallest that is still young enough.
        self._smallest: OrderedDict[str, deque[tuple[float, float]]] = OrderedDict()

    def __len__(self) -> int:
        """How many senders were heard within the last minute."""
        return len(self._smallest)

    def waited_seconds(self, sender: str, request_id: str, now_seconds: float) -> float | None:
        """Return how long the request has waited, or a commit by its order's id.

        None where there is nothing to tell it by: its id holds no time, or its sender was not heard lately.
        `sender`: what has one clock; those of different senders are never compared. `now_seconds`: of a clock
        that nothing sets.
        """
        made = moment_in(request_id)
        if made is None:
            return None
        difference = now_seconds - made.timestamp()
        smallest = self._smallest.setdefault(sender, deque())
        self._smallest.move_to_end(sender)
        while smallest and smallest[0][0] < now_seconds - WINDOW_SECONDS:
            smallest.popleft()
        if smallest and difference - smallest[0][1] > WINDOW_SECONDS:
            smallest.clear()  # none waits for so long beside others that do not: the bridge's clock was set
        is_first = not smallest
        while smallest and smallest[-1][1] >= difference:
            smallest.pop()
        smallest.append((now_seconds, difference))
        while next(iter(self._smallest.values()))[-1][0] < now_seconds - WINDOW_SECONDS:
            self._smallest.popitem(last=False)
        return None if is_first else difference - smallest[0][1]


@dataclass(frozen=True, slots=True)
class _StaleRefusal:
    """A pod was refused `number` times in a row while the snapshot was behind, the last time `at`."""

    number: int
    at: datetime


class StaleRefusals:
    """Which preemptors were refused lately from a snapshot that was behind, by UID."""

    def __init__(self) -> None:
        self._refusals = Recent[str, _StaleRefusal](_MAX_REFUSALS)

    def with_retry(self, refusal: PlanRefusal, uid: str, now: datetime, *, behind: bool) -> PlanRefusal:
        """Return the refusal, with a time to try again where the snapshot was behind; O(1), amortised."""
        last = self._refusals.pop(uid, None)
        if not behind:
            return refusal
        number = last.number + 1 if last is not None and now - last.at <= FORGOTTEN else 1
        self._refusals[uid] = _StaleRefusal(number, now)
        again = now + min(FIRST_PAUSE * 2 ** min(number - 1, 16), LONGEST_PAUSE)
        if refusal.retry_at is not None and refusal.retry_at <= again:
            return refusal
        return replace(refusal, retry_at=again)


class FirstFailures:
    """When each pod was first asked about, by UID."""

    def __init__(self) -> None:
        self._seen = Recent[str, datetime](_MAX_FAILURES)

    def note(self, uid: str, told: datetime | None, now: datetime) -> datetime:
        """Return since when a pod has not fitted: what its condition tells, or the first question. O(1)."""
        seen = self._seen.setdefault(uid, now)
        return seen if told is None else min(seen, told)
