"""What plans found out about every node for one class of preemptors, kept from plan to plan.

Preemptors that ask for the same, at the same priority, are of one class. The first plan of a class looks at
every node; the next one looks again only at nodes for which something has changed: their pods, or what the
request adds to them. What is kept of a node is whether it can be helped and the numbers that rank it; the
few best are then looked at in full.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from weakref import ReferenceType, ref

import numpy as np

from makeway.core.policy.exemption import FOREVER
from makeway.planner.plan.batch import NodeBatch
from makeway.planner.plan.constraints.layers import Layers
from makeway.planner.plan.constraints.tally import Tallies
from makeway.planner.plan.evaluate import Evaluation
from makeway.planner.plan.lost_work import LostWorkOf
from makeway.planner.plan.ranking import score, top
from makeway.planner.plan.refusal.statistics import RefusalStats
from makeway.planner.plan.terminating import AwaitedRooms, InFlightPods
from makeway.planner.snapshot.columns import Flags, Ints, extended
from makeway.planner.snapshot.state import Snapshot

CHUNK_NODES = 4096
"""Nodes that are looked at without a pause: about 10 ms with 30 pods each."""

_NEVER = -1
_LOST_WORK = 2
"""The key that time alone changes: kept without what its rate has added since 1970."""
_REMEMBERED_ROWS = 2**20
"""Rows that all classes together may keep, about 80 bytes each and 50 more where preemptors of the class are
refused; the class least used is forgotten first."""


@dataclass(frozen=True, slots=True)
class ScoreInputs:
    """What the scores of nodes depend on besides their own columns.

    `layers`: of the preemptor's constraints. `in_flight_pods`: the request's pods, by row. `allowed`: int64,
    what plans depend on of budgets. `now_micros`: the time.
    """

    layers: Layers
    in_flight_pods: Mapping[int, InFlightPods]
    allowed: Ints
    now_micros: int


class NodeScoreCache:
    """The scores of all rows of a snapshot for one class.

    `helps`: bool[rows], removing pods makes room, or terminating ones are about to. `open`: bool[rows], nodes
    to look at in full each time: the columns need no pod gone though some may go, or pods that orders remove
    may have to be waited for.
    `refusal_stats`: for refusing the class, once one of it was refused.
    """

    def __init__(self) -> None:
        self.helps: Flags = np.zeros(0, np.bool_)
        self.open: Flags = np.zeros(0, np.bool_)
        self.refusal_stats: RefusalStats | None = None
        self._keys: Ints = np.zeros((6, 0), np.int64)
        self._rate: Ints = np.zeros(0, np.int64)
        self._seen: Ints = np.zeros(0, np.int64)
        self._until: Ints = np.zeros(0, np.int64)
        self._covered: Flags = np.zeros(0, np.bool_)
        self._before: ScoreInputs | None = None

    def stale(self, snapshot: Snapshot, now: ScoreInputs, rows: Ints) -> Ints:
        """Return those of some rows that have to be looked at again. O(all rows · layers + pods put over)."""
        self._grow(snapshot.columns.nodes)
        before = self._before
        if before is None or now.now_micros < before.now_micros:
            self._seen[:] = _NEVER
        else:
            self._seen[now.layers.differ(before.layers, self._seen.size)] = _NEVER
            self._seen[self._until < now.now_micros] = _NEVER
            if not np.array_equal(before.allowed, now.allowed):
                self._seen[self._covered] = _NEVER
            self._seen[_in_flight_changed(before.in_flight_pods, now.in_flight_pods)] = _NEVER
        self._before = now
        return rows[snapshot.changed[rows] > self._seen[rows]]

    def put(self, snapshot: Snapshot, batch: NodeBatch, found: Evaluation, now_micros: int) -> None:
        """Keep what was found on the nodes of a batch. O(slots · nodes)."""
        columns, rows = batch.columns, batch.rows
        ordered, helps = batch.awaits_orders, helped_places(batch, found)
        self.helps[rows] = helps
        self.open[rows] = (found.helps | found.waits) & ordered
        if found.fits.any():
            self.open[rows] |= found.fits & (found.removable.any(axis=0) | batch.awaits)
        helped, scores = np.flatnonzero(helps), None
        if helped.size:
            victims, violating = found.victims, found.violating
            if helped.size < helps.size:
                victims, violating = victims.take(helped, axis=1), violating.take(helped, axis=1)
            scores = score(
                columns,
                helped,
                victims,
                violating,
                remote=found.remote(helped),
                lost_work=found.lost_work,
            )
            at = rows[helped]
            for known, key in zip(self._keys, scores.keys(), strict=True):
                known[at] = key
        self._seen[rows] = snapshot.revision
        if self.refusal_stats is not None:
            self.refusal_stats.forget(snapshot, rows)
        self._covered[rows] = len(snapshot.budgets) > 0 and columns.budgets.any(axis=0)
        self._until[rows] = columns.exempt_ends(now_micros)
        if found.groups is not None:
            self._covered[rows] |= found.groups.covered
            self._until[rows] = np.minimum(self._until[rows], found.groups.until)
        if scores is not None and scores.losses is not None:
            losses, at = scores.losses, rows[helped]
            self._keys[_LOST_WORK, at], self._rate[at] = losses.base, losses.rate
            self._until[at] = np.minimum(self._until[at], losses.until)

    def forget(self, rows: Ints) -> None:
        """Have some rows looked at again."""
        self._seen[rows] = _NEVER

    def best(self, snapshot: Snapshot, rows: Ints, most: int, lost_work: LostWorkOf | None) -> Ints:
        """Return rows to look at in full: of some the open ones, and the best of those that are helped.

        At most so many best ones, and where lost work counts the one that would be best without it; in no
        special order. O(rows).
        """
        opened = self.open[rows]
        helped = rows[self.helps[rows] & ~opened]
        keys = [*self._keys, snapshot.name_rank()]
        base = keys.pop(_LOST_WORK)
        if lost_work is None:
            return np.concatenate([rows[opened], top(keys, helped, most)])
        plain = top(keys, helped, 1)
        keys.insert(_LOST_WORK, base + self._rate * lost_work.second)
        return np.concatenate([rows[opened], np.union1d(plain, top(keys, helped, most))])

    def _grow(self, rows: int) -> None:
        more = rows - self._seen.size
        if more <= 0:
            return
        self.helps, self.open = extended(self.helps, more), extended(self.open, more)
        self._covered, self._keys = extended(self._covered, more), extended(self._keys, more)
        self._rate = extended(self._rate, more)
        self._seen = extended(self._seen, more, _NEVER)
        self._until = extended(self._until, more, FOREVER)


def helped_places(batch: NodeBatch, found: Evaluation) -> Flags:
    """Return bool[M]: nodes whose place their victims alone decide, of which there may be none."""
    return found.helps | (found.waits & ~batch.awaits_orders)


def _in_flight_changed(before: Mapping[int, InFlightPods], now: Mapping[int, InFlightPods]) -> list[int]:
    """Return the rows on which other pods are in flight than before.

    Of an assumed pod also what keeps it from being evicted may have changed, which marks no row.
    """
    changed = [
        row
        for row, in_flight in now.items()
        if (there := before.get(row)) is not in_flight and (in_flight.assumed or there != in_flight)
    ]
    return [*changed, *(before.keys() - now.keys())]


class NodeScoreCaches:
    """Score caches by class."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, NodeScoreCache] = OrderedDict()

    def scores_of(self, key: Hashable, rows: int) -> NodeScoreCache:
        """Return the scores of a class; those of an unknown one are empty."""
        scores = self._kept.pop(key, None) or NodeScoreCache()
        self._kept[key] = scores
        while len(self._kept) > max(1, _REMEMBERED_ROWS // max(rows, 1)):
            self._kept.popitem(last=False)
        return scores


class PlanCache:
    """What plans on one snapshot have worked out, kept for the next plan on it.

    It changes no answer: a plan with an empty cache says the same, later. Owned by a caller that plans more
    than once on a snapshot, and handed to each plan. `scores`: of nodes, by class of preemptors. `tallies`:
    of pods, by constraint. `awaited`: the room that terminating pods make.
    """

    def __init__(self) -> None:
        self.scores = NodeScoreCaches()
        self.tallies = Tallies()
        self.awaited = AwaitedRooms()
        self._snapshot: ReferenceType[Snapshot] | None = None

    def bind(self, snapshot: Snapshot) -> None:
        """Take the snapshot of the first plan for that of all.

        Raises:
            ValueError: what is kept was worked out on another snapshot.
        """
        if self._snapshot is None:
            self._snapshot = ref(snapshot)
        elif self._snapshot() is not snapshot:
            raise ValueError("this cache was filled by plans on another snapshot")
