"""Which plans that wait may be behind which marks, kept up to date as both come and go.

A mark (DisruptionTarget) says by which scheduler a pod was marked, and names no preemptor. It belongs to one
of higher priority and of that scheduler that was planned for before: the first whose own plan removes that
pod, else the last that has a member on that node, else the last. Each mark belongs to one plan at most, so
sums over all of them are right however they were told apart. Pure state.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Final

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

    `key`: its preemptor: a pod's UID, or a group's namespace/name. `victims`: UIDs of those that it removes,
    by place: of a pod for each node that would do. `allowed`: what each budget allowed when it was made.
    """

    decision_id: str
    key: str
    priority: int
    scheduler: str
    at: datetime
    victims: Mapping[str, frozenset[str]] = field(default_factory=dict)
    allowed: Mapping[BudgetKey, int] = field(default_factory=dict)


@dataclass(slots=True)
class WaitingPlan:
    """A plan that waits. `begun`: the nodes of nominations before it, by UID of the member.

    `over`: when its pod was bound, or gone; later marks are not for it. `first`, `last`: the least of them
    is of the first plan, and of the last.
    """

    expected: Expected
    begun: Mapping[str, str] = field(default_factory=dict)
    over: datetime | None = None
    first: tuple[float, str] = field(init=False)
    last: tuple[float, str] = field(init=False)

    def __post_init__(self) -> None:
        since, name = self.expected.at.timestamp(), self.expected.decision_id
        self.first, self.last = (since, name), (-since, name)

    def may_be_behind(self, mark: Evicted) -> bool:
        """Report whether a mark may be for its preemptor."""
        expected = self.expected
        return (
            expected.at <= mark.at
            and (self.over is None or mark.at <= self.over)
            and expected.priority > mark.gone.priority
            and expected.scheduler == mark.scheduler
        )


_first, _last = attrgetter("first"), attrgetter("last")


@dataclass(slots=True)
class OpenMark:
    """A mark that belongs to no plan yet, and the plans that wait and may be behind it.

    `taking`: those that remove the pod, the first in front. `others`: those that do not, the last in front.
    """

    mark: Evicted
    taking: list[WaitingPlan] = field(default_factory=list)
    others: list[WaitingPlan] = field(default_factory=list)

    @property
    def shared(self) -> bool:
        """Whether several may be."""
        return len(self.taking) + len(self.others) > 1

    def owner(self, here: Set[str]) -> str:
        """Return the preemptor it belongs to, empty for none; `here`: those with a member on its node."""
        plans = self.taking or self.others
        if here:
            for plan in plans:
                if plan.expected.key in here:
                    return plan.expected.key
        return plans[0].expected.key if plans else ""


class PlanMarks:
    """The marks in one place that belong to no plan yet, and the plans that wait there.

    A mark costs O(plans), a plan O(marks · log plans), the end of plans O(marks · plans) for all at once.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._marks: dict[str, OpenMark] = {}
        self._plans: list[WaitingPlan] = []  # the last in front

    def __len__(self) -> int:
        """How many marks and plans there are."""
        return len(self._marks) + len(self._plans)

    def add(self, mark: Evicted) -> None:
        """Take in a mark, where there is room for one more."""
        if len(self._marks) >= MOST_MARKS or mark.gone.uid in self._marks:
            return
        found = self._marks[mark.gone.uid] = OpenMark(mark)
        for plan in self._plans:
            self._compare(found, plan)

    def _compare(self, one: OpenMark, plan: WaitingPlan) -> None:
        if plan.may_be_behind(one.mark):
            if one.mark.gone.uid in plan.expected.victims.get(self._place, _NONE):
                insort(one.taking, plan, key=_first)
            else:
                insort(one.others, plan, key=_last)

    def forget(self, unwanted: Callable[[Evicted], bool]) -> None:
        """Forget some marks. O(marks)."""
        self.drop([uid for uid, one in self._marks.items() if unwanted(one.mark)])

    def drop(self, uids: Iterable[str]) -> None:
        """Forget the marks of some pods."""
        for uid in uids:
            self._marks.pop(uid, None)

    def expect(self, plan: WaitingPlan) -> None:
        """Take in a plan that waits here from now on; there is no other of its preemptor."""
        insort(self._plans, plan, key=_last)
        for one in self._marks.values():
            self._compare(one, plan)

    def end(self, keys: Collection[str]) -> None:
        """Forget the plans of preemptors, which wait here no longer."""

        def kept(plans: list[WaitingPlan]) -> list[WaitingPlan]:
            return [plan for plan in plans if plan.expected.key not in keys]

        self._plans = kept(self._plans)
        for one in self._marks.values():
            one.taking, one.others = kept(one.taking), kept(one.others)

    def owned(self, nodes: Mapping[str, Set[str]]) -> dict[str, list[OpenMark]]:
        """Return the marks of each preemptor; `nodes`: the preemptors that have a member on each node.

        O(marks), and O(plans) for each mark on a node of members.
        """
        owned: defaultdict[str, list[OpenMark]] = defaultdict(list)
        for one in self._marks.values():
            if key := one.owner(nodes.get(one.mark.pod.node, _NONE)):
                owned[key].append(one)
        return owned

    def unclaimed(self, *, by_any: bool = False) -> list[Evicted]:
        """Return the marks that no plan which waits would have made, the eldest first.

        `by_any`: and that none of them may be behind.
        """
        found = (one.mark for one in self._marks.values() if not one.taking and not (by_any and one.others))
        return sorted(found, key=lambda mark: (mark.at, mark.gone.uid))
