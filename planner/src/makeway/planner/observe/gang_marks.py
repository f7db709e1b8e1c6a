"""Which plans for groups may be behind which marks, kept up to date as both come and go.

A mark for a group says so, and by which scheduler; it names no group. It belongs to a group of higher
priority and of that scheduler that was planned for before: the first whose own plan takes that pod, else the
last that has a member on that node, else the last. A unit's pods run where no member goes. Each mark belongs
to one group at most. Pure state.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Final

from makeway.core.comparison import BudgetKey
from makeway.planner.observe.pairing import Evicted

MOST_MARKS: Final = 10_000
"""Marks that belong to no group yet; they are kept for seconds."""

_NO_GROUPS: Final[Set[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class ExpectedGang:
    """A plan for a group whose counterpart is waited for. `victims`: UIDs of those that it would take.

    `group`: namespace/name. `allowed`: what each budget allowed when it was made.
    """

    decision_id: str
    group: str
    priority: int
    scheduler: str
    at: datetime
    victims: frozenset[str] = frozenset()
    allowed: Mapping[BudgetKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A plan that waits. `first`, `last`: the least of them is of the first plan, and of the last."""

    expected: ExpectedGang
    group: str
    first: tuple[float, str]
    last: tuple[float, str]

    @classmethod
    def of(cls, expected: ExpectedGang) -> _Plan:
        since, name = expected.at.timestamp(), expected.decision_id
        return cls(expected, expected.group, (since, name), (-since, name))

    def may_be_behind(self, mark: Evicted) -> bool:
        expected = self.expected
        return (
            expected.at <= mark.at
            and expected.priority > mark.gone.priority
            and expected.scheduler == mark.scheduler
        )


_first, _last = attrgetter("first"), attrgetter("last")


@dataclass(slots=True)
class OpenMark:
    """A mark that belongs to no group yet, and the plans that wait and may be behind it.

    `taking`: those that take the pod, the first in front. `others`: those that do not, the last in front.
    """

    mark: Evicted
    taking: list[_Plan]
    others: list[_Plan]

    @property
    def shared(self) -> bool:
        """Whether several may be."""
        return len(self.taking) + len(self.others) > 1

    def owner(self, here: Set[str]) -> str:
        """Return the group that it belongs to, empty for none; `here`: those with a member on its node."""
        plans = self.taking or self.others
        if here:
            for plan in plans:
                if plan.group in here:
                    return plan.group
        return plans[0].group if plans else ""


class GangMarks:
    """The marks that belong to no group yet, and the plans that wait.

    A mark costs O(plans), a plan O(marks · log plans), the end of plans O(marks · plans) for all at once.
    """

    def __init__(self) -> None:
        self._marks: dict[str, OpenMark] = {}
        self._plans: list[_Plan] = []  # the last in front

    def __len__(self) -> int:
        """How many marks there are."""
        return len(self._marks)

    def add(self, mark: Evicted) -> None:
        """Take in a mark, where there is room for one more."""
        uid = mark.gone.uid
        if len(self._marks) >= MOST_MARKS or uid in self._marks:
            return
        able = [plan for plan in self._plans if plan.may_be_behind(mark)]
        taking = sorted((plan for plan in able if uid in plan.expected.victims), key=_first)
        others = [plan for plan in able if uid not in plan.expected.victims] if taking else able
        self._marks[uid] = OpenMark(mark, taking, others)

    def forget(self, unwanted: Callable[[Evicted], bool]) -> None:
        """Forget some marks. O(marks)."""
        self.drop([uid for uid, one in self._marks.items() if unwanted(one.mark)])

    def drop(self, uids: Iterable[str]) -> None:
        """Forget the marks of some pods."""
        for uid in uids:
            del self._marks[uid]

    def expect(self, expected: ExpectedGang) -> None:
        """Take in a plan that waits from now on; there is no other of its group."""
        plan = _Plan.of(expected)
        insort(self._plans, plan, key=_last)
        for uid, one in self._marks.items():
            if plan.may_be_behind(one.mark):
                if uid in expected.victims:
                    insort(one.taking, plan, key=_first)
                else:
                    insort(one.others, plan, key=_last)

    def end(self, groups: Collection[str]) -> None:
        """Forget the plans of groups, which wait no longer."""
        if not groups:
            return
        self._plans = [plan for plan in self._plans if plan.group not in groups]
        for one in self._marks.values():
            one.taking = [plan for plan in one.taking if plan.group not in groups]
            one.others = [plan for plan in one.others if plan.group not in groups]

    def owned(self, nodes: Mapping[str, Set[str]]) -> dict[str, list[OpenMark]]:
        """Return the marks that belong to each group; `nodes`: the groups that have a member on each node.

        O(marks), and O(plans) for each mark on a node of members.
        """
        owned: defaultdict[str, list[OpenMark]] = defaultdict(list)
        for one in self._marks.values():
            if group := one.owner(nodes.get(one.mark.pod.node, _NO_GROUPS)):
                owned[group].append(one)
        return owned

    def unowned(self) -> list[Evicted]:
        """Return the marks that no plan is behind, the eldest first."""
        found = (one.mark for one in self._marks.values() if not (one.taking or one.others))
        return sorted(found, key=lambda mark: (mark.at, mark.gone.uid))
