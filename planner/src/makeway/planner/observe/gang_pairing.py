"""Which of the pods that kube-scheduler's own preemption evicts for pod groups belong to which group's plan.

A mark for a group says so, and by which scheduler; it names no group. It belongs to a group of higher
priority and of that scheduler that was planned for before: the first whose own plan takes that pod, else the
last that has a member on that node, else the last. A unit's pods run where no member goes. Each mark belongs
to one group at most. Pure state: it is told what the watch sees, and the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from makeway.core.comparison import BudgetKey
from makeway.core.k8s.objects import Pod
from makeway.planner.observe.pairing import QUIET, WINDOW, Evicted

MOST_MARKS: Final = 10_000
"""Marks that belong to no group yet; they are kept for seconds."""

MOST_MEMBERS: Final = 10_000
"""Members with a nomination that are followed, of all groups."""

MOST_WAITING: Final = 32
"""Plans for groups that wait for their counterpart; for one more the eldest is given up."""

SETTLED: Final = timedelta(seconds=1)
"""So long after its first mark a preemption waits for nominations of members that have none yet."""


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
class ComparedGang:
    """A plan for a group and what was done about it. `nodes`: where others nominated or bound its members.

    `bound`: a member has found a place. `shared`: another group that waits may be behind one of the marks.
    """

    expected: ExpectedGang
    nodes: tuple[str, ...]
    evicted: tuple[Evicted, ...]
    nominated_at: datetime | None = None
    bound: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class UnaskedGang:
    """A preemption for a group that no scheduler asked about. `members`: as they were when nominated.

    `at`, `revision`: when its first mark was seen, and the snapshot's revision then.
    """

    group: str
    members: tuple[tuple[Pod, str], ...]
    at: datetime
    revision: int


@dataclass(slots=True)
class _Member:
    pod: Pod
    node: str
    at: datetime
    bound: bool = False


@dataclass(slots=True)
class _Open:
    expected: ExpectedGang
    begun: frozenset[str]
    """Members that had a nomination before the plan."""


class GangPairing:
    """The groups that wait, their members, and the marks that belong to none yet.

    A pod event costs O(1), `due` and `unasked` O(marks · groups that wait + members). `ours`: whether one of
    makeway's own orders removes a pod.
    """

    def __init__(self, ours: Callable[[str], bool] = lambda _: False) -> None:
        self._ours = ours
        self._open: dict[str, _Open] = {}
        self._members: dict[str, dict[str, _Member]] = {}
        self._group_of: dict[str, str] = {}
        self._marks: dict[str, Evicted] = {}
        self._told: dict[str, datetime] = {}

    def __len__(self) -> int:
        """How many plans wait."""
        return len(self._open)

    @property
    def idle(self) -> bool:
        """Whether there is nothing that `due` would look at."""
        return not self._open and not self._marks

    def expect(self, expected: ExpectedGang, *, asked: bool = True) -> list[ComparedGang]:
        """Wait for the counterpart of a plan; returns the pair of the group's last plan, which that ends.

        `asked`: by a scheduler, which acts after that; else it has acted already.
        """
        pairs = []
        if expected.group in self._open:
            pairs.append(self._close(expected.group))
        elif len(self._open) >= MOST_WAITING:
            del self._open[next(iter(self._open))]
        before = frozenset(self._members.get(expected.group, {})) if asked else frozenset[str]()
        self._open[expected.group] = _Open(expected, before)
        return pairs

    def put(self, group: str, pod: Pod, now: datetime) -> None:
        """Take in a member of a group: nominated, bound, or neither."""
        uid, bound = pod.metadata.uid, bool(pod.spec.node_name)
        known = self._members.get(group, {}).get(uid)
        if bound and known is not None:
            known.node, known.bound = pod.spec.node_name or "", True
            return
        node = pod.spec.node_name or pod.status.nominated_node_name or ""
        if not node or (bound and group not in self._open):
            self.drop(uid)
            return
        if known is not None and known.node == node:
            return
        if known is None and len(self._group_of) >= MOST_MEMBERS:
            self.drop(next(iter(self._group_of)))
        self._group_of[uid] = group
        self._members.setdefault(group, {})[uid] = _Member(pod, node, now, bound)

    def drop(self, uid: str) -> None:
        """Forget a pod that is gone, or has no nomination any more."""
        group = self._group_of.pop(uid, None)
        if group is None:
            return
        here = self._members[group]
        del here[uid]
        if not here:
            del self._members[group]
            self._told.pop(group, None)

    def retain(self, uids: set[str]) -> None:
        """Forget all members but these."""
        for uid in self._group_of.keys() - uids:
            self.drop(uid)

    def evicted(self, mark: Evicted) -> None:
        """Take in that a pod was marked for a group.

        One of makeway's own orders is looked at now: once such an order fails, its mark looks like another's.
        """
        if len(self._marks) < MOST_MARKS and not self._ours(mark.gone.uid):
            self._marks.setdefault(mark.gone.uid, mark)

    def due(self, now: datetime) -> list[ComparedGang]:
        """Return the pairs of which nothing more is expected, and forget marks that belong to no plan."""
        self._forget_own()
        last: dict[str, datetime] = {}
        nodes = self._nodes()
        for mark in self._marks.values():
            for group in self._owners(mark, nodes)[:1]:
                last[group] = max(mark.at, last.get(group, mark.at))
        ended = []
        for group, waiting in self._open.items():
            since = self._nominated_at(waiting)
            signs = [sign for sign in (since, last.get(group)) if sign is not None]
            if now - max((*signs, waiting.expected.at)) >= (QUIET if signs else WINDOW):
                ended.append(group)
        pairs = [self._close(group) for group in ended]
        oldest = now - WINDOW - QUIET
        self._marks = {uid: mark for uid, mark in self._marks.items() if mark.at >= oldest}
        return pairs

    def unasked(
        self, now: datetime, priority_of: Callable[[str], int | None], waiting: Callable[[str], int]
    ) -> list[UnaskedGang]:
        """Return the preemptions for groups that marks tell of and no plan waits for, each once.

        `priority_of`: a group's, None where it is not known. `waiting`: how many of its members have no node.
        """
        self._forget_own()
        open_nodes = self._nodes()
        marks = sorted(
            (mark for mark in self._marks.values() if not self._owners(mark, open_nodes)),
            key=lambda mark: (mark.at, mark.gone.uid),
        )
        found: list[UnaskedGang] = []
        for group, members in self._members.items() if marks else ():
            priority = priority_of(group)
            if group in self._open or priority is None:
                continue
            nodes = {one.node for one in members.values()}
            told = self._told.get(group)
            mine = [
                mark
                for mark in marks
                if mark.gone.priority < priority
                and mark.scheduler in {one.pod.spec.scheduler_name for one in members.values()}
                and (told is None or mark.at > told + WINDOW)
            ]
            if not mine or not any(mark.pod.node in nodes for mark in mine):
                continue
            fresh = [one for one in members.values() if abs(one.at - mine[0].at) <= WINDOW]
            seen = sum(not one.bound for one in fresh)
            if not fresh or (seen < waiting(group) and now - mine[0].at < SETTLED):
                continue
            self._told[group] = now
            members_then = tuple((one.pod, one.node) for one in fresh)
            found.append(UnaskedGang(group, members_then, mine[0].at, mine[0].revision))
        return found

    # -------------------------------------------------------------------------------- inner work

    def _forget_own(self) -> None:
        self._marks = {uid: mark for uid, mark in self._marks.items() if not self._ours(uid)}

    def _nominated_at(self, waiting: _Open) -> datetime | None:
        members = self._members.get(waiting.expected.group, {})
        return max((one.at for uid, one in members.items() if uid not in waiting.begun), default=None)

    def _nodes(self) -> dict[str, set[str]]:
        """Return where the members of the groups that wait are nominated to or bound."""
        return {group: {one.node for one in self._members.get(group, {}).values()} for group in self._open}

    def _owners(self, mark: Evicted, nodes: Mapping[str, set[str]]) -> list[str]:
        """Return the groups that may be behind a mark, first the one that it belongs to."""
        able = [
            waiting.expected
            for waiting in self._open.values()
            if waiting.expected.at <= mark.at
            and waiting.expected.priority > mark.gone.priority
            and waiting.expected.scheduler == mark.scheduler
        ]

        def rank(expected: ExpectedGang) -> tuple[bool, bool, float, str]:
            planned = mark.gone.uid in expected.victims
            elsewhere = mark.pod.node not in nodes[expected.group]
            since = expected.at.timestamp()
            return not planned, elsewhere, since if planned else -since, expected.decision_id

        return [expected.group for expected in sorted(able, key=rank)]

    def _close(self, group: str) -> ComparedGang:
        waiting = self._open[group]
        nodes = self._nodes()
        owners = {uid: self._owners(mark, nodes) for uid, mark in sorted(self._marks.items())}
        own = [uid for uid, groups in owners.items() if groups and groups[0] == group]
        marks = tuple(self._marks.pop(uid) for uid in own)
        del self._open[group]
        members = self._members.get(group, {})
        if members:
            self._told[group] = max((mark.at for mark in marks), default=waiting.expected.at)
        return ComparedGang(
            expected=waiting.expected,
            nodes=tuple(sorted({one.node for one in members.values()})),
            evicted=tuple(mark for mark in marks if not self._ours(mark.gone.uid)),
            nominated_at=self._nominated_at(waiting),
            bound=any(one.bound for one in members.values()),
            shared=any(len(owners[uid]) > 1 for uid in own),
        )
