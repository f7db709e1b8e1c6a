"""Which of the pods that DefaultPreemption evicts belong to which plan made in mode `observe`.

The API does not say so; it shows the preemptor's nomination, and marks (DisruptionTarget) on pods that go. A
mark belongs to a preemptor that is nominated to that node, that is of higher priority and of the scheduler
that the mark names, and that was planned for before. Where several are, it belongs to the first whose own
plan would take that pod on that node, else to the last planned for; and all of them are said to be `shared`.
Each mark belongs to one at most, so sums over all pairs are right however they were told apart.

Pure state: it is told what the watch sees, and the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from makeway.core.comparison import BudgetKey, RemovedPod
from makeway.planner.snapshot.records import PodRecord

QUIET: timedelta = timedelta(seconds=3)
"""After the last sign of a preemption nothing more is expected of it. Its deletes go in parallel."""

WINDOW: timedelta = timedelta(seconds=10)
"""How long after a plan DefaultPreemption may show its first sign. It acts in the same scheduling cycle."""

MOST_MARKS = 1000
"""Marks on one node that belong to no pair yet; more than a node has pods, and they are kept for seconds."""

MOST_WAITING = 10_000
"""Plans that wait for their counterpart; for one more the eldest is given up, without a pair."""


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

    `candidates`: UIDs of the victims of each node that it would do, best first. `allowed`: what each budget
    allowed when it was made. `nominated`: where the pod was nominated to before.
    """

    decision_id: str
    uid: str
    priority: int
    scheduler: str
    at: datetime
    candidates: Mapping[str, frozenset[str]] = field(default_factory=dict)
    allowed: Mapping[BudgetKey, int] = field(default_factory=dict)
    nominated: str = ""


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """A plan and what was done about its pod: `node` is empty where nothing was.

    `bound`: the pod found a place. `shared`: another plan's pod was nominated to the same node meanwhile.
    """

    expected: Expected
    node: str
    evicted: tuple[Evicted, ...]
    nominated_at: datetime | None = None
    bound: bool = False
    shared: bool = False


@dataclass(slots=True)
class _Open:
    """A plan that waits. `node`: where its pod is nominated to, by this cycle or an earlier one.

    `over`: when its pod was bound, or gone; later marks are not for it.
    """

    expected: Expected
    node: str
    last: datetime
    nominated_at: datetime | None = None
    shared: bool = False
    over: datetime | None = None
    bound: bool = False


class Pairing:
    """The plans that wait, and the marks that belong to none yet.

    A call costs O(plans and marks of one node), `due` O(all of them).
    """

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._on_node: dict[str, dict[str, _Open]] = {}
        self._evicted: dict[str, dict[str, Evicted]] = {}

    def __len__(self) -> int:
        """How many plans wait for a sign. O(plans)."""
        return sum(waiting.over is None for waiting in self._open.values())

    @property
    def idle(self) -> bool:
        """Whether there is nothing that `due` would look at."""
        return not self._open and not self._evicted

    def nodes(self) -> list[str]:
        """Return the nodes with marks that belong to no pair yet."""
        return list(self._evicted)

    def unclaimed(self, node: str) -> list[Evicted]:
        """Return the marks on a node that no plan that waits would have made, the eldest first."""
        marks = self._evicted.get(node, {}).values()
        return sorted(
            (mark for mark in marks if not self._claimed(mark)),
            key=lambda mark: (mark.at, mark.gone.uid),
        )

    def _claimed(self, mark: Evicted) -> bool:
        owner = self._owner(mark)
        return owner is not None and mark.gone.uid in owner.expected.candidates.get(mark.pod.node, ())

    def expect(self, expected: Expected) -> list[ComparedPair]:
        """Wait for the counterpart of a plan; returns the pair of the pod's last plan, which that ends.

        A pod is in one scheduling cycle at a time, so whatever that plan's cycle did has been done.
        """
        pairs = []
        before = self._open.get(expected.uid)
        if before is not None:
            self.nominated(expected.uid, expected.nominated, expected.at)
            pairs.append(self._close(before))
        elif len(self._open) >= MOST_WAITING:
            self._remove(next(iter(self._open.values())))
        waiting = _Open(expected, "", expected.at)
        self._open[expected.uid] = waiting
        self._put(waiting, expected.nominated)
        return pairs

    def waits_for(self, uid: str) -> bool:
        """Report whether a pod's plan waits."""
        return uid in self._open

    def nominated(self, uid: str, node: str, now: datetime) -> None:
        """Take in that a pod is nominated to a node; that it no longer is (empty) says nothing."""
        waiting = self._open.get(uid)
        if waiting is None or waiting.over is not None or not node or node == waiting.node:
            return
        self._put(waiting, node)
        waiting.nominated_at = waiting.last = now
        here = [one for one in self._on_node[node].values() if one.over is None]
        if len(here) > 1:
            for one in here:
                one.shared = True

    def evicted(self, evicted: Evicted) -> None:
        """Take in that a pod was marked."""
        node = evicted.pod.node
        here = self._evicted.setdefault(node, {})
        if len(here) < MOST_MARKS:
            here.setdefault(evicted.gone.uid, evicted)
        for waiting in self._on_node.get(node, {}).values():
            waiting.last = evicted.at

    def withdrawn(self, uid: str, node: str) -> None:
        """Take in that a pod on a node lives on and is marked no more: it was evicted by no one."""
        here = self._evicted.get(node, {})
        here.pop(uid, None)
        if not here:
            self._evicted.pop(node, None)

    def ended(self, uid: str, node: str, now: datetime) -> None:
        """Take in that a pod is bound to a node, or gone (empty): nothing more will be done for it."""
        waiting = self._open.get(uid)
        if waiting is None or waiting.over is not None:
            return
        if node and not waiting.node:
            # Bound before the watch showed a nomination: binding clears it.
            self._put(waiting, node)
        waiting.over, waiting.bound = now, bool(node)

    def due(self, now: datetime) -> list[ComparedPair]:
        """Return the pairs of which nothing more is expected, and forget marks that belong to no plan."""
        acted = {
            owner.expected.uid
            for marks in self._evicted.values()
            for mark in marks.values()
            if (owner := self._owner(mark)) is not None
        }
        ended = [
            waiting
            for uid, waiting in self._open.items()
            if waiting.over is not None
            or now - waiting.last >= (QUIET if waiting.nominated_at or uid in acted else WINDOW)
        ]
        pairs = [self._close(waiting) for waiting in ended]
        oldest = now - WINDOW - QUIET
        for node, marks in list(self._evicted.items()):
            fresh = {uid: mark for uid, mark in marks.items() if mark.at >= oldest}
            if fresh:
                self._evicted[node] = fresh
            else:
                del self._evicted[node]
        return pairs

    # -------------------------------------------------------------------------------- inner work

    def _put(self, waiting: _Open, node: str) -> None:
        """Note where a pod is nominated to."""
        self._take_out(waiting)
        waiting.node = node
        if node:
            self._on_node.setdefault(node, {})[waiting.expected.uid] = waiting

    def _take_out(self, waiting: _Open) -> None:
        here = self._on_node.get(waiting.node)
        if here is not None:
            here.pop(waiting.expected.uid, None)
            if not here:
                del self._on_node[waiting.node]

    def _remove(self, waiting: _Open) -> None:
        self._take_out(waiting)
        del self._open[waiting.expected.uid]

    def _owner(self, mark: Evicted) -> _Open | None:
        """Return whose victim a marked pod is; None where no plan that waits can be behind it."""
        able = [
            one
            for one in self._on_node.get(mark.pod.node, {}).values()
            if one.expected.at <= mark.at
            and (one.over is None or mark.at <= one.over)
            and one.expected.priority > mark.gone.priority
            and one.expected.scheduler == mark.scheduler
        ]
        able.sort(key=lambda one: (one.expected.at, one.expected.decision_id))
        for one in able:
            if mark.gone.uid in one.expected.candidates.get(mark.pod.node, ()):
                return one
        return able[-1] if able else None

    def _close(self, waiting: _Open) -> ComparedPair:
        marks = self._evicted.get(waiting.node, {})
        own = [mark for _, mark in sorted(marks.items()) if self._owner(mark) is waiting]
        for mark in own:
            del marks[mark.gone.uid]
        self._remove(waiting)
        return ComparedPair(
            expected=waiting.expected,
            node=waiting.node if own or waiting.nominated_at else "",
            evicted=tuple(own),
            nominated_at=waiting.nominated_at,
            bound=waiting.bound,
            shared=waiting.shared,
        )
