"""What the snapshot was like a few seconds ago, as far as a preemption changes it: pods that left, budgets.

The columns keep no versions. What has changed since a moment is put over them for one plan instead: the pods
that have left since count as being there, and budgets allow what they allowed. Pure state, told of each
change by the snapshot; memory is bounded, and a change that is none of a budget costs one comparison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.changes import Change, PutBudget, RemoveBudget
from makeway.planner.snapshot.pod_table import REMEMBERED_DEPARTURES
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

MOST_BUDGET_CHANGES: Final = 10_000
"""Changes of budgets that are remembered, at some 200 bytes each."""

MOST_RESTORED: Final = 1000
"""Pods that one plan restores; each copies its node out of the columns."""


@dataclass(frozen=True, slots=True)
class Past:
    """What differs from the snapshot as it is. `complete`: nothing of it is forgotten already."""

    left: tuple[PodRecord, ...] = ()
    allowed: Mapping[Key, int] | None = None
    complete: bool = True


class ShortPast:
    """What budgets allowed before each of their last changes. `note` is told of every change applied."""

    def __init__(self) -> None:
        self._allowed: dict[Key, int] = {}
        self._changes: deque[tuple[int, Key, int]] = deque()  # revision, budget, what it allowed before
        self._forgotten = -1

    def note(self, change: Change, revision: int) -> None:
        """Take note of a change that led to a revision. O(1)."""
        if isinstance(change, PutBudget):
            key, allowed = change.budget.key, change.budget.allowed
        elif isinstance(change, RemoveBudget):
            key, allowed = change.key, 0
        else:
            return
        before = self._allowed.get(key, 0)
        if isinstance(change, RemoveBudget):
            self._allowed.pop(key, None)
        else:
            self._allowed[key] = allowed
        if before != allowed:
            self._changes.append((revision, key, before))
        while len(self._changes) > MOST_BUDGET_CHANGES:
            self._forgotten = self._changes.popleft()[0]

    def before(self, snapshot: Snapshot, revision: int) -> Past:
        """Return what has changed since the snapshot was at a revision. O(changes since).

        A pod that was already being deleted then, and has left since, is not among them. One of a group comes
        back as a pod by itself: its group has been counted without it.
        """
        left: list[PodRecord] = []
        complete = self._forgotten <= revision
        seen = 0
        for uid in reversed(snapshot.departures):
            departure = snapshot.departures[uid]
            if departure.revision <= revision:
                break
            seen += 1
            if departure.pod.node and uid not in snapshot.pods:
                left.append(_as_it_was(departure.pod))
                complete = complete and not departure.pod.group
        if seen >= REMEMBERED_DEPARTURES or len(left) > MOST_RESTORED:
            complete = False
        allowed: dict[Key, int] = {}
        for changed, key, before in reversed(self._changes):
            if changed <= revision:
                break
            allowed[key] = before
        return Past(tuple(left[-MOST_RESTORED:]), allowed, complete)


def _as_it_was(pod: PodRecord) -> PodRecord:
    if not (pod.terminating or pod.group):
        return pod
    signature = replace(pod.signature, terminating=False)
    return replace(pod, terminating=False, ends_micros=0, signature=signature, group="")
