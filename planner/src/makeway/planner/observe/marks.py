"""Which plans that wait may be behind which marks, kept up to date as both come and go.

A mark (DisruptionTarget) says by which scheduler a pod was marked, and names no preemptor. It belongs to one
of higher priority and of that scheduler that was planned for before: the first whose own plan removes that
pod, else the last that has a member on that node, else the last. Each mark belongs to one plan at most, so
sums over all of them are right however they were told apart. Pure state.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from makeway.core.comparison import BudgetKey, RemovedPod
from makeway.planner.snapshot.records import PodRecord

MOST_MARKS: Final = 10_000
"""PlanMarks in one place that belong to no plan yet; they are kept for seconds."""

ANYWHERE: Final = ""
"""The place of a preemption whose victims may be on any node."""

_NONE: Final[Set[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Evicted:
    """A pod that was marked for preemption, as it was seen; `scheduler`: who the mark says it was.

    `revision`: the snapshot's when the mark was seen; `seen`: when that was, on the monotonic clock.
    `for_group`: the mark says that it is for one. `writers`: field managers that wrote it. `unit`: what the
    pod goes with, whole or not at all; empty for none.
    """

    pod: PodRecord
    gone: RemovedPod
    scheduler: str
    at: datetime
    revision: int = 0
    seen: float = 0.0
    for_group: bool = False
    writers: frozenset[str] = frozenset()
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """A plan in mode `observe` whose counterpart is waited for.

    `key`: its preemptor: a pod's UID, or a group's namespace/name. `victims`: UIDs of those that it removes,
    by place: of a pod for each node that would do. `allowed`: what each budget allowed when it was made.
    `kept`: what is kept of it for its comparison.
    """

    decision_id: str
    key: str
    priority: int
    scheduler: str
    at: datetime
    victims: Mapping[str, frozenset[str]] = field(default_factory=dict)
    allowed: Mapping[BudgetKey, int] = field(default_factory=dict)
    kept: Any = None


Rank = tuple[bool, float, str]
"""How likely a plan is behind a mark, the likeliest first: the first that takes the pod, else the last."""


@dataclass(slots=True)
class WaitingPlan:
    """A plan that waits. `begun`: the nodes of nominations before it, by UID of the member.

    `over`: when its pod was bound, or gone; later marks are not for it.
    """

    expected: Expected
    begun: Mapping[str, str] = field(default_factory=dict)
    over: datetime | None = None

    def may_be_behind(self, mark: Evicted) -> bool:
        """Report whether a mark may be for its preemptor."""
        expected = self.expected
        return (
            expected.at <= mark.at
            and (self.over is None or mark.at <= self.over)
            and expected.priority > mark.gone.priority
            and expected.scheduler == mark.scheduler
        )

    def rank(self, mark: Evicted, place: str) -> Rank:
        """Return its rank among the plans that may be behind a mark."""
        since, name = self.expected.at.timestamp(), self.expected.decision_id
        takes = mark.gone.uid in self.expected.victims.get(place, _NONE)
        return (False, since, name) if takes else (True, -since, name)


@dataclass(slots=True)
class OpenMark:
    """A mark that belongs to no plan yet. `behind`: the plans that may be, by rank, and their preemptors."""

    mark: Evicted
    behind: list[tuple[Rank, str]] = field(default_factory=list)

    @property
    def shared(self) -> bool:
        """Whether several may be."""
        return len(self.behind) > 1

    @property
    def taken(self) -> bool:
        """Whether a plan that waits removes the pod."""
        return bool(self.behind) and not self.behind[0][0][0]

    def owner(self, here: Set[str]) -> str:
        """Return the preemptor it belongs to, empty for none; `here`: those with a member on its node."""
        for (others, _, _), key in self.behind if here else ():
            if key in here and others != self.taken:
                return key
        return self.behind[0][1] if self.behind else ""


class PlanMarks:
    """The marks in one place that belong to no plan yet, and the plans that wait there.

    A mark costs O(plans · log plans), a plan O(marks · log plans), the end of plans O(marks · plans) for all.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._marks: dict[str, OpenMark] = {}
        self._plans: dict[str, WaitingPlan] = {}

    def __len__(self) -> int:
        """How many marks and plans there are."""
        return len(self._marks) + len(self._plans)

    def add(self, mark: Evicted) -> None:
        """Take in a mark, where there is room for one more."""
        if len(self._marks) >= MOST_MARKS or mark.gone.uid in self._marks:
            return
        found = self._marks[mark.gone.uid] = OpenMark(mark)
        for plan in self._plans.values():
            self._compare(found, plan)

    def _compare(self, one: OpenMark, plan: WaitingPlan) -> None:
        if plan.may_be_behind(one.mark):
            insort(one.behind, (plan.rank(one.mark, self._place), plan.expected.key))

    def forget(self, unwanted: Callable[[Evicted], bool]) -> None:
        """Forget some marks. O(marks)."""
        self.drop([uid for uid, one in self._marks.items() if unwanted(one.mark)])

    def drop(self, uids: Iterable[str]) -> None:
        """Forget the marks of some pods."""
        for uid in uids:
            self._marks.pop(uid, None)

    def expect(self, plan: WaitingPlan) -> None:
        """Take in a plan that waits here from now on; there is no other of its preemptor."""
        self._plans[plan.expected.key] = plan
        for one in self._marks.values():
            self._compare(one, plan)

    def end(self, keys: Collection[str]) -> None:
        """Forget the plans of preemptors, which wait here no longer."""
        for key in keys:
            self._plans.pop(key, None)
        for one in self._marks.values():
            one.behind = [(rank, key) for rank, key in one.behind if key not in keys]

    def owned(self, nodes: Mapping[str, Set[str]]) -> dict[str, list[OpenMark]]:
        """Return the marks of each preemptor; `nodes`: the preemptors that have a member on each node.

        O(marks), and O(plans) for each mark on a node of members.
        """
        owned: defaultdict[str, list[OpenMark]] = defaultdict(list)
        for one in self._marks.values():
            if key := one.owner(nodes.get(one.mark.pod.node, _NONE)):
                owned[key].append(one)
        return owned

    def of_units(self) -> Iterator[OpenMark]:
        """Return the marks of units' pods behind which no plan may be that waits here. O(marks)."""
        return (one for one in self._marks.values() if one.mark.unit and not one.behind)

    def unclaimed(self, *, by_any: bool = False) -> list[Evicted]:
        """Return the marks that no plan which waits would have made, the eldest first.

        `by_any`: and that none of them may be behind.
        """
        found = (one.mark for one in self._marks.values() if not (one.behind if by_any else one.taken))
        return sorted(found, key=lambda mark: (mark.at, mark.gone.uid))
