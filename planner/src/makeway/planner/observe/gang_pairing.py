"""Which of the pods that kube-scheduler's own preemption evicts for pod groups belong to which group's plan.

`gang_marks` says which mark belongs to which group. Pure state: it is told what the watch sees, and the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from makeway.core.k8s.objects import Pod
from makeway.planner.observe.gang_marks import ExpectedGang, GangMarks, OpenMark
from makeway.planner.observe.pairing import QUIET, WINDOW, Evicted

MOST_MEMBERS: Final = 10_000
"""Members with a nomination that are followed, of all groups."""

MOST_WAITING: Final = 32
"""Plans for groups that wait for their counterpart; for one more the eldest is given up."""

SETTLED: Final = timedelta(seconds=1)
"""So long after its first mark a preemption waits for nominations of members that have none yet."""


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

    @property
    def pod(self) -> Pod:
        """A member."""
        return self.members[0][0]


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

    A member costs O(1), a mark O(plans that wait), a plan O(marks), `due` and `unasked` O(marks + members).
    """

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._members: dict[str, dict[str, _Member]] = {}
        self._group_of: dict[str, str] = {}
        self._marks = GangMarks()
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
            pairs = self._close([expected.group], self._owned())
        elif len(self._open) >= MOST_WAITING:
            self._end([next(iter(self._open))])
        before = frozenset(self._members.get(expected.group, {})) if asked else frozenset[str]()
        self._open[expected.group] = _Open(expected, before)
        self._marks.expect(expected)
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
        """Take in that a pod was marked for a group."""
        self._marks.add(mark)

    def withdrawn(self, uid: str) -> None:
        """Take in that a pod lives on and is marked no more: it was evicted by no one."""
        self._marks.forget(lambda mark: mark.gone.uid == uid)

    def due(self, now: datetime) -> list[ComparedGang]:
        """Return the pairs of which nothing more is expected, and forget marks that belong to no plan."""
        owned = self._owned()
        ended = []
        for group, waiting in self._open.items():
            last = max((one.mark.at for one in owned.get(group, ())), default=None)
            signs = [sign for sign in (self._nominated_at(waiting), last) if sign is not None]
            if now - max((*signs, waiting.expected.at)) >= (QUIET if signs else WINDOW):
                ended.append(group)
        pairs = self._close(ended, owned)
        oldest = now - WINDOW - QUIET
        self._marks.forget(lambda mark: mark.at < oldest)
        return pairs

    def unasked(
        self, now: datetime, priority_of: Callable[[str], int | None], waiting: Callable[[str], int]
    ) -> list[UnaskedGang]:
        """Return the preemptions for groups that marks tell of and no plan waits for, each once.

        `priority_of`: a group's, None where it is not known. `waiting`: how many of its members have no node.
        """
        marks = self._marks.unowned()
        on_node: defaultdict[str, list[Evicted]] = defaultdict(list)
        for mark in marks:
            on_node[mark.pod.node].append(mark)
        found: list[UnaskedGang] = []
        for group, members in self._members.items() if marks else ():
            nodes = {one.node for one in members.values()}
            if group in self._open or on_node.keys().isdisjoint(nodes):
                continue
            priority = priority_of(group)
            if priority is None:
                continue
            schedulers = {one.pod.spec.scheduler_name for one in members.values()}
            may_be = partial(_may_be_for, priority, schedulers, self._told.get(group))
            here = (mark for node in nodes for mark in on_node.get(node, ()))
            if not any(may_be(mark) for mark in here):
                continue
            first = next(mark for mark in marks if may_be(mark))
            fresh = [one for one in members.values() if abs(one.at - first.at) <= WINDOW]
            seen = sum(not one.bound for one in fresh)
            if not fresh or (seen < waiting(group) and now - first.at < SETTLED):
                continue
            self._told[group] = now
            members_then = tuple((one.pod, one.node) for one in fresh)
            found.append(UnaskedGang(group, members_then, first.at, first.revision))
        return found

    # -------------------------------------------------------------------------------- inner work

    def _nominated_at(self, waiting: _Open) -> datetime | None:
        members = self._members.get(waiting.expected.group, {})
        return max((one.at for uid, one in members.items() if uid not in waiting.begun), default=None)

    def _owned(self) -> Mapping[str, Sequence[OpenMark]]:
        """Return the marks that belong to each group that waits. O(marks + members)."""
        nodes: defaultdict[str, set[str]] = defaultdict(set)
        for group in self._open:
            for one in self._members.get(group, {}).values():
                nodes[one.node].add(group)
        return self._marks.owned(nodes)

    def _close(self, groups: Collection[str], owned: Mapping[str, Sequence[OpenMark]]) -> list[ComparedGang]:
        """Return the pairs of groups, and wait for them no longer; their marks go with them."""
        pairs = [self._pair(self._open[group], owned.get(group, ())) for group in groups]
        self._marks.drop(one.mark.gone.uid for group in groups for one in owned.get(group, ()))
        self._end(groups)
        return pairs

    def _end(self, groups: Collection[str]) -> None:
        self._marks.end(groups)
        for group in groups:
            del self._open[group]

    def _pair(self, waiting: _Open, owned: Sequence[OpenMark]) -> ComparedGang:
        group = waiting.expected.group
        members = self._members.get(group, {})
        if members:
            self._told[group] = max((one.mark.at for one in owned), default=waiting.expected.at)
        marks = sorted((one.mark for one in owned), key=lambda mark: mark.gone.uid)
        return ComparedGang(
            expected=waiting.expected,
            nodes=tuple(sorted({one.node for one in members.values()})),
            evicted=tuple(marks),
            nominated_at=self._nominated_at(waiting),
            bound=any(one.bound for one in members.values()),
            shared=any(one.shared for one in owned),
        )


def _may_be_for(
    priority: int, schedulers: Collection[str | None], told: datetime | None, mark: Evicted
) -> bool:
    """Report whether a mark may be for a group; `told`: when its last preemption was."""
    return (
        mark.gone.priority < priority
        and mark.scheduler in schedulers
        and (told is None or mark.at > told + WINDOW)
    )
