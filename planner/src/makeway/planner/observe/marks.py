"""Which plans that wait may be behind which marks, kept up to date as both come and go.

A mark (DisruptionTarget) says by which scheduler a pod was marked, and names no preemptor. It belongs to one
of higher priority and of that scheduler that was planned for before: the first whose own plan removes that
pod, else the last. Each mark belongs to one plan at most, so sums over all of them are right however they
were told apart. Pure state.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Final

from makeway.core.comparison import BudgetKey, RemovedPod
from makeway.planner.snapshot.records import PodRecord

MOST_MARKS: Final = 10_000
"""Marks on one node that belong to no plan yet; they are kept for seconds."""

_NONE: Final[Set[str]] = frozenset()
_since = attrgetter("since")


@dataclass(frozen=True, slots=True)
class Evicted:
    """A pod that was marked for preemption, as it was seen; `scheduler`: who the mark says it was.

    `revision`: the snapshot's when the mark was seen.
    """

    pod: PodRecord
    gone: RemovedPod
    scheduler: str
    at: datetime
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Expected:
    """A plan in mode `observe` whose counterpart is waited for.

    `uid`: of its preemptor. `victims`: UIDs of those that it removes, for each node that would do. `allowed`:
    what each budget allowed when it was made.
    """

    decision_id: str
    uid: str
    priority: int
    scheduler: str
    at: datetime
    victims: Mapping[str, frozenset[str]] = field(default_factory=dict)
    allowed: Mapping[BudgetKey, int] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class WaitingPlan:
    """A plan that waits. `begun`: the node of the nomination before it, empty where there was none.

    `over`: when its pod was bound, or gone; later marks are not for it.
    """

    expected: Expected
    begun: str = ""
    over: datetime | None = None

    @property
    def since(self) -> tuple[datetime, str]:
        """A key that orders plans by when they were made."""
        return self.expected.at, self.expected.decision_id

    def may_be_behind(self, mark: Evicted) -> bool:
        """Report whether a mark may be for its preemptor."""
        expected = self.expected
        return (
            expected.at <= mark.at
            and (self.over is None or mark.at <= self.over)
            and expected.priority > mark.gone.priority
            and expected.scheduler == mark.scheduler
        )


@dataclass(frozen=True, slots=True)
class OwnedMark:
    """A mark that belongs to a plan. `shared`: another plan that waits may be behind it too."""

    mark: Evicted
    shared: bool


class PlanMarks:
    """The marks on one node that belong to no plan yet, and the plans that wait there.

    Whose marks are is worked out each time: O(marks · plans), of which a node has few.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._marks: dict[str, Evicted] = {}
        self._plans: list[WaitingPlan] = []  # the first in front

    def __len__(self) -> int:
        """How many marks and plans there are."""
        return len(self._marks) + len(self._plans)

    def add(self, mark: Evicted) -> None:
        """Take in a mark, where there is room for one more."""
        if len(self._marks) < MOST_MARKS:
            self._marks.setdefault(mark.gone.uid, mark)

    def forget(self, unwanted: Callable[[Evicted], bool]) -> None:
        """Forget some marks. O(marks)."""
        self._marks = {uid: one for uid, one in self._marks.items() if not unwanted(one)}

    def drop(self, uid: str) -> None:
        """Forget the mark of a pod."""
        self._marks.pop(uid, None)

    def expect(self, plan: WaitingPlan) -> None:
        """Take in a plan that waits here from now on; there is no other of its preemptor."""
        insort(self._plans, plan, key=_since)

    def end(self, uid: str) -> None:
        """Forget the plan of a preemptor, which waits here no longer."""
        self._plans = [plan for plan in self._plans if plan.expected.uid != uid]

    def owned(self) -> dict[str, list[OwnedMark]]:
        """Return the marks of each preemptor."""
        owned: defaultdict[str, list[OwnedMark]] = defaultdict(list)
        for mark in self._marks.values():
            taking, others = self._behind(mark)
            if taking or others:
                of = taking[0] if taking else others[-1]
                owned[of.expected.uid].append(OwnedMark(mark, len(taking) + len(others) > 1))
        return owned

    def unclaimed(self, *, by_any: bool = False) -> list[Evicted]:
        """Return the marks that no plan which waits would have made, the eldest first.

        `by_any`: and that none of them may be behind.
        """
        found = []
        for mark in self._marks.values():
            taking, others = self._behind(mark)
            if not taking and not (by_any and others):
                found.append(mark)
        return sorted(found, key=lambda mark: (mark.at, mark.gone.uid))

    def _behind(self, mark: Evicted) -> tuple[list[WaitingPlan], list[WaitingPlan]]:
        """Return the plans that may be behind a mark, the first in front: that remove its pod, and others."""
        behind = [plan for plan in self._plans if plan.may_be_behind(mark)]
        taking = [plan for plan in behind if mark.gone.uid in plan.expected.victims.get(self._node, _NONE)]
        return taking, [plan for plan in behind if plan not in taking] if taking else behind
