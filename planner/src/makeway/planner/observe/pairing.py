"""Which of the pods that others evict belong to which plan made in mode `observe`, and to which without one.

The API does not say so; it shows nominations, and marks on pods that are evicted. `marks` says which mark
belongs to which plan. A mark that no plan which waits would have made is of a preemption for which no plan
was asked, once a nomination of higher priority shows beside it; either comes first.

Pure state: it hears of what the watch sees, and the time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from makeway.core.k8s.objects import Pod
from makeway.planner.observe.marks import Evicted, Expected, OwnedMark, PlanMarks, WaitingPlan

QUIET: Final = timedelta(seconds=3)
"""After the last sign of a preemption nothing more is expected of it. Its deletes go in parallel."""

WINDOW: Final = timedelta(seconds=10)
"""How long after a plan kube-scheduler may show its first sign. It acts in the same scheduling cycle."""

UNCLAIMED: Final = timedelta(seconds=1)
"""So long a mark waits for a pod that is nominated newly; then it may be of one that was nominated before."""

MOST_WAITING: Final = 10_000
"""Plans that wait for their counterpart; for one more the eldest is given up, without a pair."""

MOST_NOMINEES: Final = 10_000
"""Nominated pods that are followed; for one more the eldest is forgotten."""


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """A plan and what was done about it. `node`: where others placed the pod; empty where they did nothing.

    `bound`: it found a place. `shared`: another plan that waits may be behind one of the marks.
    """

    expected: Expected
    node: str
    evicted: tuple[Evicted, ...]
    nominated_at: datetime | None = None
    bound: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class UnaskedPreemption:
    """A preemption that no scheduler asked about. `pod`: as it was when it was nominated to `node`.

    `at`, `revision`: when its first mark was seen, and the snapshot's revision then.
    """

    pod: Pod
    node: str
    at: datetime
    revision: int

    @property
    def uid(self) -> str:
        """UID of the preemptor."""
        return self.pod.metadata.uid


@dataclass(slots=True)
class _Nominee:
    """A preemptor. `at`: when its nomination was seen; None where it was bound before.

    `withdrawn`: it has no nomination any more, or is gone; it is kept for the plan that waits.
    """

    pod: Pod
    node: str
    at: datetime | None
    bound_at: datetime | None = None
    withdrawn: bool = False


class Pairing:
    """The plans that wait, the nominated pods, and the marks that belong to none yet, by node.

    `served`: whether one of makeway's own orders is for a preemptor.

    A pod costs O(marks · plans of its node), `due` and `unasked` that of all nodes; a plan and a mark O(1).
    """

    def __init__(self, *, served: Callable[[str], bool] = lambda _: False) -> None:
        self._served = served
        self._open: dict[str, WaitingPlan] = {}
        self._nominees: dict[str, _Nominee] = {}
        self._on_node: dict[str, set[str]] = {}
        self._marks: dict[str, PlanMarks] = {}
        self._changed: set[str] = set()
        self._told: dict[str, datetime] = {}

    def __len__(self) -> int:
        """How many plans wait for a sign. O(plans)."""
        return sum(waiting.over is None for waiting in self._open.values())

    def waits_for(self, uid: str, since: datetime) -> bool:
        """Report whether a preemptor's plan waits that was made by then."""
        return uid in self._open and self._open[uid].expected.at <= since

    def nominated(self) -> Iterator[tuple[Pod, str]]:
        """Return the nominated pods, each with its node."""
        return (
            (one.pod, one.node)
            for one in self._nominees.values()
            if one.bound_at is None and not one.withdrawn
        )

    def expect(self, expected: Expected, *, asked: bool = True) -> list[ComparedPair]:
        """Wait for the counterpart of a plan; returns the pair of the preemptor's last plan, which that ends.

        A preemptor is in one scheduling cycle at a time, so whatever that plan's cycle did has been done.
        `asked`: by a scheduler, which acts then; else it has acted, and a plan that waits is late: given up.
        """
        uid, pairs = expected.uid, []
        nominee = self._nominees.get(uid)
        if uid in self._open and asked:
            pairs = self._close([uid], self._owned([nominee.node] if nominee is not None else ()))
        elif uid in self._open or len(self._open) >= MOST_WAITING:
            self._end([uid if uid in self._open else next(iter(self._open))])
        nominee = self._nominees.get(uid)
        begun = nominee.node if nominee is not None and asked else ""
        self._open[uid] = waiting = WaitingPlan(expected, begun)
        if nominee is not None:
            self._at(nominee.node).expect(waiting)
        return pairs

    def put(self, pod: Pod, now: datetime) -> None:
        """Take in a pod: nominated, bound, or neither."""
        uid, node, bound = pod.metadata.uid, pod.status.nominated_node_name or "", pod.spec.node_name or ""
        known, waiting = self._nominees.get(uid), self._open.get(uid)
        if bound:
            if known is None and waiting is not None:
                known = self._place(_Nominee(pod, bound, None))
            if known is not None and known.bound_at is None:
                known.bound_at = now
            self._over(waiting, now)
        elif known is not None and node == known.node and known.bound_at is None:
            known.withdrawn = False
        elif node:
            self._place(_Nominee(pod, node, now))
        elif known is not None:
            self._withdraw(uid)

    def drop(self, uid: str, now: datetime) -> None:
        """Take in that a pod is gone: nothing more will be done for it."""
        self._over(self._open.get(uid), now)
        self._withdraw(uid)

    def retain(self, uids: set[str], now: datetime) -> None:
        """Take in that all pods but these are gone."""
        for uid in (self._nominees.keys() | self._open.keys()) - uids:
            self.drop(uid, now)

    def evicted(self, mark: Evicted) -> None:
        """Take in that a pod was marked."""
        self._at(mark.pod.node).add(mark)
        self._changed.add(mark.pod.node)

    def withdrawn(self, uid: str, node: str) -> None:
        """Take in that a pod on a node lives on and is marked no more: it was evicted by no one."""
        if (marks := self._marks.get(node)) is not None:
            marks.drop(uid)

    def due(self, now: datetime) -> list[ComparedPair]:
        """Return the pairs of which nothing more is expected, and forget marks that belong to no plan."""
        owned = self._owned(self._marks)
        ended = []
        for uid, waiting in self._open.items():
            signs = [one.mark.at for one in owned.get(uid, ())]
            if (at := self._nominated_at(waiting)) is not None:
                signs.append(at)
            last = max((*signs, waiting.expected.at))
            if waiting.over is not None or now - last >= (QUIET if signs else WINDOW):
                ended.append(uid)
        pairs = self._close(ended, owned)
        oldest = now - WINDOW - QUIET
        for node, marks in list(self._marks.items()):
            marks.forget(lambda mark: mark.at < oldest)
            if not len(marks):
                del self._marks[node]
        for uid, one in list(self._nominees.items()):
            if uid not in self._open and one.bound_at is not None and one.bound_at < oldest:
                self._remove(uid)
        return pairs

    def unasked(self, now: datetime, *, anew: bool = False) -> list[UnaskedPreemption]:
        """Return the preemptions that marks tell of and no plan made before them waits for, each once.

        `anew`: only where a nomination or a mark has come since the last look.
        """
        nodes, self._changed = sorted(self._changed if anew else self._marks), set()
        found = []
        for node in nodes:
            here = self._marks.get(node) or PlanMarks(node)
            marks, orphans = here.unclaimed(), here.unclaimed(by_any=True)
            for uid in sorted(self._on_node.get(node, ())) if marks else ():
                waiting = self._open.get(uid)
                # A plan that waits is made anew only for marks that came before it, and that are of no other.
                before = (
                    marks if waiting is None else [one for one in orphans if one.at < waiting.expected.at]
                )
                if before and self._served(uid):
                    self._told[uid] = now
                elif (seen := self._preemption(self._nominees[uid], before, now)) is not None:
                    self._told[uid] = now
                    found.append(seen)
        return found

    # -------------------------------------------------------------------------------- inner work

    def _preemption(self, one: _Nominee, marks: Sequence[Evicted], now: datetime) -> UnaskedPreemption | None:
        """Return what marks on its node, the eldest first, tell of a preemptor."""
        told, spec = self._told.get(one.pod.metadata.uid), one.pod.spec
        for mark in marks:
            able = mark.gone.priority < (spec.priority or 0) and mark.scheduler == (spec.scheduler_name or "")
            if able and (told is None or mark.at > told + WINDOW) and _fits(one, mark, now):
                return UnaskedPreemption(one.pod, one.node, mark.at, mark.revision)
        return None

    def _at(self, node: str) -> PlanMarks:
        return self._marks.setdefault(node, PlanMarks(node))

    def _place(self, one: _Nominee) -> _Nominee:
        """Note where a pod is nominated to, or bound."""
        uid = one.pod.metadata.uid
        if uid in self._nominees:
            self._remove(uid)
        elif len(self._nominees) >= MOST_NOMINEES:
            self._remove(next(iter(self._nominees)))
        self._nominees[uid] = one
        self._on_node.setdefault(one.node, set()).add(uid)
        self._changed.add(one.node)
        if uid in self._open:
            self._at(one.node).expect(self._open[uid])
        return one

    def _remove(self, uid: str) -> None:
        node = self._nominees.pop(uid).node
        self._told.pop(uid, None)
        here = self._on_node[node]
        here.discard(uid)
        if not here:
            del self._on_node[node]
        if node in self._marks:
            self._marks[node].end(uid)

    def _withdraw(self, uid: str) -> None:
        """Forget a pod, or keep it as long as a plan for it waits."""
        if uid in self._nominees:
            if uid in self._open:
                self._nominees[uid].withdrawn = True
            else:
                self._remove(uid)

    def _over(self, waiting: WaitingPlan | None, now: datetime) -> None:
        """Note that a pod is bound, or gone."""
        if waiting is not None and waiting.over is None:
            waiting.over = now

    def _nominated_at(self, waiting: WaitingPlan) -> datetime | None:
        one = self._nominees.get(waiting.expected.uid)
        return one.at if one is not None and one.node != waiting.begun else None

    def _owned(self, nodes: Iterable[str]) -> Mapping[str, Sequence[OwnedMark]]:
        """Return the marks on some nodes that belong to each preemptor. O(marks)."""
        owned: dict[str, list[OwnedMark]] = {}
        for node in nodes:
            if node in self._marks:
                owned |= self._marks[node].owned()
        return owned

    def _close(self, uids: Collection[str], owned: Mapping[str, Sequence[OwnedMark]]) -> list[ComparedPair]:
        """Return the pairs of preemptors, and wait for them no longer; their marks go with them."""
        pairs = [self._pair(self._open[uid], owned.get(uid, ())) for uid in uids]
        for pair in pairs:
            for mark in pair.evicted:
                self.withdrawn(mark.gone.uid, mark.pod.node)
        self._end(uids)
        return pairs

    def _end(self, uids: Collection[str]) -> None:
        for uid in uids:
            del self._open[uid]
            if (one := self._nominees.get(uid)) is None:
                continue
            if one.node in self._marks:
                self._marks[one.node].end(uid)
            if one.withdrawn:
                self._remove(uid)

    def _pair(self, waiting: WaitingPlan, owned: Sequence[OwnedMark]) -> ComparedPair:
        uid, at = waiting.expected.uid, self._nominated_at(waiting)
        one = self._nominees.get(uid)
        marks = sorted((one.mark for one in owned), key=lambda mark: mark.gone.uid)
        if one is not None:
            self._told[uid] = max((mark.at for mark in marks), default=waiting.expected.at)
        return ComparedPair(
            expected=waiting.expected,
            node=one.node if one is not None and (marks or at is not None) else "",
            evicted=tuple(marks),
            nominated_at=at,
            bound=one is not None and one.bound_at is not None,
            shared=any(mark.shared for mark in owned),
        )


def _fits(one: _Nominee, mark: Evicted, now: datetime) -> bool:
    """Report whether a mark may be for the nomination of a pod, by the times of both."""
    if one.at is None or one.withdrawn or (one.bound_at is not None and mark.at > one.bound_at):
        return False
    return abs(one.at - mark.at) <= WINDOW or (one.at < mark.at and now - mark.at >= UNCLAIMED)
