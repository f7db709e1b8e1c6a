"""Which of the pods that others evict belong to which plan made in mode `observe`, and to which without one.

The API does not say so; it shows nominations, of a pod or of a group's members, and marks on pods that are
evicted. `marks` says which mark belongs to which plan. A mark that no plan which waits would have made is of
a preemption for which no plan was asked, once a nomination of higher priority shows beside it; either comes
first. A pod is a group of one, whose victims are on its own node.

Pure state: it hears of what the watch sees, and the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from makeway.core.k8s.objects import Pod
from makeway.planner.observe.marks import ANYWHERE, Evicted, Expected, OpenMark, PlanMarks, WaitingPlan

QUIET: Final = timedelta(seconds=3)
"""After the last sign of a preemption nothing more is expected of it. Its deletes go in parallel."""

WINDOW: Final = timedelta(seconds=10)
"""How long after a plan kube-scheduler may show its first sign. It acts in the same scheduling cycle."""

UNCLAIMED: Final = timedelta(seconds=1)
"""So long a mark waits for a pod that is nominated newly; then it may be of one that was nominated before."""

SETTLED: Final = timedelta(seconds=1)
"""So long after its first mark a preemption waits for nominations of members that have none yet."""

MOST_WAITING: Final = 10_000
"""Plans for pods that wait for their counterpart."""

MOST_GROUPS: Final = 32
"""The same of plans for groups."""

MOST_MEMBERS: Final = 10_000
"""Nominated pods that are followed; for one more the eldest is forgotten."""


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """A plan and what was done about it. `nodes`: where others placed its pods; empty where they did nothing.

    `bound`: one of them found a place. `shared`: another plan that waits may be behind one of the marks.
    """

    expected: Expected
    nodes: tuple[str, ...]
    evicted: tuple[Evicted, ...]
    nominated_at: datetime | None = None
    bound: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class UnaskedPreemption:
    """A preemption that no scheduler asked about. `members`: as they were when nominated, each with its node.

    `at`, `revision`: when its first mark was seen, and the snapshot's revision then.
    """

    key: str
    members: tuple[tuple[Pod, str], ...]
    at: datetime
    revision: int
    of_group: bool = False

    @property
    def pod(self) -> Pod:
        """The preemptor, or a member of it."""
        return self.members[0][0]


@dataclass(slots=True)
class _Member:
    """A pod of a preemptor. `at`: when its nomination was seen; None where it was bound before.

    `withdrawn`: it has no nomination any more, or is gone; it is kept for the plan that waits.
    """

    pod: Pod
    node: str
    at: datetime | None
    bound_at: datetime | None = None
    withdrawn: bool = False

    @property
    def waits(self) -> bool:
        """Whether it is nominated to its node now."""
        return self.bound_at is None and not self.withdrawn


class Pairing:
    """The plans that wait, the pods of preemptors, and the marks that belong to none yet.

    `anywhere`: victims may be on any node, as of groups; else on the node of the nomination, where
    kube-scheduler may preempt for the pod again later. `most`: plans that wait; for one more the eldest is
    given up, without a pair. `served`: whether one of makeway's own orders is for a preemptor.

    A pod and a plan cost O(marks and plans of a place), a mark O(plans there); `due` and `unasked` O(all).
    """

    def __init__(
        self,
        *,
        anywhere: bool = False,
        most: int = MOST_WAITING,
        served: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._anywhere = anywhere
        self._most = most
        self._served = served
        self._open: dict[str, WaitingPlan] = {}
        self._members: dict[str, dict[str, _Member]] = {}
        self._key_of: dict[str, str] = {}
        self._on_node: dict[str, set[str]] = {}
        self._marks: dict[str, PlanMarks] = {}
        self._changed: set[str] = set()
        self._told: dict[str, datetime] = {}

    def __len__(self) -> int:
        """How many plans wait for a sign. O(plans)."""
        return sum(waiting.over is None for waiting in self._open.values())

    def waiting(self, key: str, since: datetime) -> Expected | None:
        """Return a preemptor's plan that waits, where it was made by then."""
        waiting = self._open.get(key)
        return waiting.expected if waiting is not None and waiting.expected.at <= since else None

    def nominated(self) -> Iterator[tuple[Pod, str]]:
        """Return the nominated pods, each with its node."""
        for members in self._members.values():
            yield from ((one.pod, one.node) for one in members.values() if one.waits)

    def expect(self, expected: Expected, *, asked: bool = True) -> list[ComparedPair]:
        """Wait for the counterpart of a plan; returns the pair of the preemptor's last plan, which that ends.

        A preemptor is in one scheduling cycle at a time, so whatever that plan's cycle did has been done.
        `asked`: by a scheduler, which acts then; else it has acted, and a plan that waits is late: given up.
        """
        key, pairs = expected.key, []
        if key in self._open and asked:
            pairs = self._close([key], self._owned(self._places([key])))
        elif key in self._open or len(self._open) >= self._most:
            self._end([key if key in self._open else next(iter(self._open))])
        before = {uid: one.node for uid, one in self._members.get(key, {}).items()} if asked else {}
        self._open[key] = waiting = WaitingPlan(expected, before)
        for place in self._places([key]):
            self._at(place).expect(waiting)
        return pairs

    def put(self, key: str, pod: Pod, now: datetime) -> None:
        """Take in a pod of a preemptor: nominated, bound, or neither."""
        uid, node, bound = pod.metadata.uid, pod.status.nominated_node_name or "", pod.spec.node_name or ""
        known, waiting = self._members.get(key, {}).get(uid), self._open.get(key)
        if bound:
            if known is None and waiting is not None:
                known = self._place(key, _Member(pod, bound, None))
            if known is not None and known.bound_at is None:
                known.bound_at = now
            self._over(waiting, now)
        elif known is not None and node == known.node and known.bound_at is None:
            known.withdrawn = False
        elif node:
            self._place(key, _Member(pod, node, now))
        elif known is not None:
            self._withdraw(key, uid)

    def drop(self, uid: str, now: datetime) -> None:
        """Take in that a pod is gone: nothing more will be done for it."""
        key = self._key_of.get(uid, uid)
        self._over(self._open.get(key), now)
        self._withdraw(key, uid)

    def retain(self, uids: set[str], now: datetime) -> None:
        """Take in that all pods but these are gone."""
        known = self._key_of.keys() if self._anywhere else self._key_of.keys() | self._open.keys()
        for uid in known - uids:
            self.drop(uid, now)

    def evicted(self, mark: Evicted) -> None:
        """Take in that a pod was marked."""
        place = self._place_of(mark.pod.node)
        self._at(place).add(mark)
        self._changed.add(place)

    def withdrawn(self, uid: str, node: str) -> None:
        """Take in that a pod on a node lives on and is marked no more: it was evicted by no one."""
        if (marks := self._marks.get(self._place_of(node))) is not None:
            marks.drop([uid])

    def due(self, now: datetime) -> list[ComparedPair]:
        """Return the pairs of which nothing more is expected, and forget marks that belong to no plan."""
        owned = self._owned(self._marks)
        ended = []
        for key, waiting in self._open.items():
            signs = [one.mark.at for one in owned.get(key, ())]
            if (at := _nominated_at(waiting, self._members.get(key, {}))) is not None:
                signs.append(at)
            last = max((*signs, waiting.expected.at))
            if waiting.over is not None or now - last >= (QUIET if signs else WINDOW):
                ended.append(key)
        pairs = self._close(ended, owned)
        oldest = now - WINDOW - QUIET
        for place, marks in list(self._marks.items()):
            marks.forget(lambda mark: mark.at < oldest)
            if not len(marks):
                del self._marks[place]
        for key, members in list(self._members.items()):
            if key not in self._open:
                for uid, one in list(members.items()):
                    if one.bound_at is not None and one.bound_at < oldest:
                        self._remove(uid)
        return pairs

    def unasked(
        self,
        now: datetime,
        about: Callable[[str], tuple[int, int] | None] | None = None,
        *,
        anew: bool = False,
    ) -> list[UnaskedPreemption]:
        """Return the preemptions that marks tell of and no plan made before them waits for, each once.

        `about`: a group's priority and how many of its members have no node, None where it is not known.
        `anew`: only where a nomination or a mark has come since the last look.
        """
        places, self._changed = sorted(self._changed if anew else self._marks), set()
        found = []
        for place in places:
            here = self._marks.get(place) or PlanMarks(place)
            marks, orphans = here.unclaimed(), here.unclaimed(by_any=True)
            members = (self._on_node.get(node, ()) for node in sorted({mark.pod.node for mark in marks}))
            for key in dict.fromkeys(self._key_of[uid] for uids in members for uid in sorted(uids)):
                waiting = self._open.get(key)
                # A plan that waits is made anew only for marks that came before it, and that are of no other.
                before = (
                    marks if waiting is None else [one for one in orphans if one.at < waiting.expected.at]
                )
                if before and self._served(key):
                    self._told[key] = now
                elif (seen := self._preemption(key, before, now, about)) is not None:
                    self._told[key] = now
                    found.append(seen)
        return found

    def _preemption(
        self,
        key: str,
        marks: Sequence[Evicted],
        now: datetime,
        about: Callable[[str], tuple[int, int] | None] | None,
    ) -> UnaskedPreemption | None:
        """Return what marks in one place, the eldest first, tell of a preemptor."""
        members = self._members[key].values()
        known = about(key) if about is not None else (next(iter(members)).pod.spec.priority or 0, 0)
        if known is None:
            return None
        priority, waiting = known
        schedulers = {one.pod.spec.scheduler_name or "" for one in members}
        told, nodes = self._told.get(key), {one.node for one in members}
        able = [
            mark
            for mark in marks
            if mark.gone.priority < priority
            and mark.scheduler in schedulers
            and (told is None or mark.at > told + WINDOW)
        ]
        if not any(mark.pod.node in nodes for mark in able):
            return None
        for first in able if not self._anywhere else able[:1]:
            fresh = [one for one in members if self._fits(one, first, now)]
            missing = waiting > sum(one.bound_at is None for one in fresh)
            if fresh and not (missing and now - first.at < SETTLED):
                found = tuple((one.pod, one.node) for one in fresh)
                return UnaskedPreemption(key, found, first.at, first.revision, self._anywhere)
        return None

    def _fits(self, one: _Member, mark: Evicted, now: datetime) -> bool:
        """Report whether a mark may be for the nomination of a pod, by the times of both."""
        if one.at is None or one.withdrawn or (one.bound_at is not None and mark.at > one.bound_at):
            return False
        again = not self._anywhere and one.at < mark.at and now - mark.at >= UNCLAIMED
        return abs(one.at - mark.at) <= WINDOW or again

    def _place_of(self, node: str) -> str:
        return ANYWHERE if self._anywhere else node

    def _places(self, keys: Iterable[str]) -> set[str]:
        """Return where the marks for preemptors are."""
        if self._anywhere:
            return {ANYWHERE}
        return {one.node for key in keys for one in self._members.get(key, {}).values()}

    def _at(self, place: str) -> PlanMarks:
        return self._marks.setdefault(place, PlanMarks(place))

    def _place(self, key: str, member: _Member) -> _Member:
        """Note where a pod is nominated to, or bound."""
        uid = member.pod.metadata.uid
        if uid in self._key_of:
            self._remove(uid)
        elif len(self._key_of) >= MOST_MEMBERS:
            self._remove(next(iter(self._key_of)))
        self._key_of[uid] = key
        self._members.setdefault(key, {})[uid] = member
        self._on_node.setdefault(member.node, set()).add(uid)
        place = self._place_of(member.node)
        self._changed.add(place)
        if not self._anywhere and key in self._open:
            self._at(place).expect(self._open[key])
        return member

    def _remove(self, uid: str) -> None:
        key = self._key_of.pop(uid)
        members = self._members[key]
        node = members.pop(uid).node
        if not members:
            del self._members[key]
            self._told.pop(key, None)
        here = self._on_node[node]
        here.discard(uid)
        if not here:
            del self._on_node[node]
        if not self._anywhere and node in self._marks:
            self._marks[node].end([key])

    def _withdraw(self, key: str, uid: str) -> None:
        """Forget a pod, or keep it as long as a plan for it waits."""
        if uid in self._key_of:
            if key in self._open:
                self._members[key][uid].withdrawn = True
            else:
                self._remove(uid)

    def _over(self, waiting: WaitingPlan | None, now: datetime) -> None:
        """Note that a pod is bound, or gone; of a group the others are waited for."""
        if waiting is not None and waiting.over is None and not self._anywhere:
            waiting.over = now

    def _owned(self, places: Iterable[str]) -> Mapping[str, Sequence[OpenMark]]:
        """Return the marks in some places that belong to each preemptor. O(marks + members).

        Where they are of a unit's pods, those of its other pods as well: these run on other nodes.
        """
        nodes: defaultdict[str, set[str]] = defaultdict(set)
        for key in self._open if self._anywhere else ():
            for one in self._members.get(key, {}).values():
                nodes[one.node].add(key)
        owned: dict[str, list[OpenMark]] = {}
        for place in places:
            if place in self._marks:
                owned |= self._marks[place].owned(nodes)
        return owned if self._anywhere else _with_units(owned, self._open, self._marks.values())

    def _close(self, keys: Collection[str], owned: Mapping[str, Sequence[OpenMark]]) -> list[ComparedPair]:
        """Return the pairs of preemptors, and wait for them no longer; their marks go with them."""
        pairs = [self._pair(self._open[key], owned.get(key, ())) for key in keys]
        for pair in pairs:
            for mark in pair.evicted:
                self.withdrawn(mark.gone.uid, mark.pod.node)
        self._end(keys)
        return pairs

    def _end(self, keys: Collection[str]) -> None:
        ended = frozenset(keys)
        for place in self._places(ended) if ended else ():
            if place in self._marks:
                self._marks[place].end(ended)
        for key in keys:
            del self._open[key]
            for uid, one in list(self._members.get(key, {}).items()):
                if one.withdrawn:
                    self._remove(uid)

    def _pair(self, waiting: WaitingPlan, owned: Sequence[OpenMark]) -> ComparedPair:
        key = waiting.expected.key
        members = self._members.get(key, {}).values()
        at = _nominated_at(waiting, self._members.get(key, {}))
        marks = sorted((one.mark for one in owned), key=lambda mark: mark.gone.uid)
        if members:
            self._told[key] = max((mark.at for mark in marks), default=waiting.expected.at)
        return ComparedPair(
            expected=waiting.expected,
            nodes=tuple(sorted({one.node for one in members})) if marks or at is not None else (),
            evicted=tuple(marks),
            nominated_at=at,
            bound=any(one.bound_at is not None for one in members),
            shared=any(one.shared for one in owned),
        )


def _nominated_at(waiting: WaitingPlan, members: Mapping[str, _Member]) -> datetime | None:
    """Return when the last of a plan's nominations came; None where none has."""
    new = (
        one.at for uid, one in members.items() if one.at is not None and waiting.begun.get(uid) != one.node
    )
    return max(new, default=None)


def _with_units(
    owned: dict[str, list[OpenMark]], waiting: Mapping[str, WaitingPlan], marks: Iterable[PlanMarks]
) -> dict[str, list[OpenMark]]:
    """Add the marks elsewhere of units. O(marks of all places), where there is one of a unit."""
    owners = {one.mark.unit: key for key, found in owned.items() for one in found if one.mark.unit}
    for one in (one for here in marks for one in here.of_units()) if owners else ():
        key = owners.get(one.mark.unit)
        if key is not None and waiting[key].may_be_behind(one.mark):
            owned[key].append(one)
    return owned
