"""How every node stands for one class of preemptors, kept from plan to plan.

Preemptors that ask for the same, at the same priority, are of one class. The first plan of a class looks at
every node; the next one looks again only at nodes for which something has changed. What is kept of a node
is whether it can be helped and the numbers that rank it; the few best are then looked at in full.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from makeway.core.barrier import FOR_EVER
from makeway.planner.columns import Flags, Ints
from makeway.planner.ranking import score, top

if TYPE_CHECKING:
    from makeway.planner.layers import Layers
    from makeway.planner.snapshot import Snapshot
    from makeway.planner.victims import Evaluation

AT_ONCE = 4096
"""Nodes that are looked at in one go: about 10 ms with 30 pods each."""

TOGETHER = 512
"""So many nodes that have changed are looked at together with the best ones: about 1 ms with 30 pods each."""

_NEVER = -1
_REMEMBERED_ROWS = 2**20
"""Rows that all classes together may keep, about 80 bytes each; the class least used is forgotten first."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the standing of nodes depends on besides their own columns.

    `layers`: of the preemptor's constraints. `allowed`: int64[budgets], what each budget still allows.
    `now_micros`: the time.
    """

    layers: Layers
    allowed: Ints
    now_micros: int


class Standing:
    """The standing of all rows of a snapshot for one class.

    `helps`: bool[rows], removing pods makes room. `open`: bool[rows], the columns need nobody gone though
    some may go.
    """

    def __init__(self) -> None:
        self.helps: Flags = np.zeros(0, np.bool_)
        self.open: Flags = np.zeros(0, np.bool_)
        self._keys: Ints = np.zeros((5, 0), np.int64)
        self._seen: Ints = np.zeros(0, np.int64)
        self._until: Ints = np.zeros(0, np.int64)
        self._covered: Flags = np.zeros(0, np.bool_)
        self._before: Circumstances | None = None

    def stale(self, snapshot: Snapshot, now: Circumstances, rows: Ints) -> Ints:
        """Give those of some rows that have to be looked at again. O(all rows · layers)."""
        self._grow(snapshot.columns.nodes)
        before = self._before
        if before is None or now.now_micros < before.now_micros:
            self._seen[:] = _NEVER
        else:
            self._seen[now.layers.differ(before.layers, self._seen.size)] = _NEVER
            self._seen[self._until < now.now_micros] = _NEVER
            if not np.array_equal(before.allowed, now.allowed):
                self._seen[self._covered] = _NEVER
        self._before = now
        return rows[snapshot.changed[rows] > self._seen[rows]]

    def put(self, snapshot: Snapshot, rows: Ints, found: Evaluation, first: int, now_micros: int) -> None:
        """Keep what was found on some rows as the snapshot has them, at the places from `first` on.

        O(slots · rows).
        """
        if not rows.size:
            return
        columns = snapshot.columns
        # Other nodes of the block may be deeper, by pods that the request has placed there.
        slots = min(found.removable.shape[0], columns.slots)
        these = slice(first, first + rows.size)
        helps, removable = found.helps[these], found.removable[:slots, these]
        self.helps[rows] = helps
        self.open[rows] = found.fits[these] & removable.any(axis=0)
        if helps.any():
            helped = rows[helps]
            victims = found.victims[:slots, these][:, helps]
            violating = found.violating[:slots, these][:, helps]
            self._keys[:, helped] = score(columns, helped, victims, violating).keys()
        self._seen[rows] = snapshot.revision
        self._covered[rows] = columns.budgets[:slots, rows].any(axis=0)
        self._until[rows] = FOR_EVER
        barred = rows[columns.barred[rows] > 0]
        if barred.size:
            until = columns.immune_until[:slots, barred]
            self._until[barred] = np.where(until >= now_micros, until, FOR_EVER).min(axis=0, initial=FOR_EVER)

    def best(self, snapshot: Snapshot, rows: Ints, most: int) -> Ints:
        """Give the best of some rows that are helped, at most so many, in no special order. O(rows)."""
        return top((*self._keys, snapshot.name_rank()), rows[self.helps[rows]], most)

    def _grow(self, rows: int) -> None:
        more = rows - self._seen.size
        if more <= 0:
            return
        self.helps = np.concatenate([self.helps, np.zeros(more, np.bool_)])
        self.open = np.concatenate([self.open, np.zeros(more, np.bool_)])
        self._covered = np.concatenate([self._covered, np.zeros(more, np.bool_)])
        self._keys = np.concatenate([self._keys, np.zeros((5, more), np.int64)], axis=1)
        self._seen = np.concatenate([self._seen, np.full(more, _NEVER, np.int64)])
        self._until = np.concatenate([self._until, np.full(more, FOR_EVER, np.int64)])


class Standings:
    """Standings by class."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Standing] = OrderedDict()

    def of(self, key: Hashable, rows: int) -> Standing:
        """Give the standing of a class; an unknown one has looked at no node."""
        standing = self._kept.pop(key, None) or Standing()
        self._kept[key] = standing
        while len(self._kept) > max(1, _REMEMBERED_ROWS // max(rows, 1)):
            self._kept.popitem(last=False)
        return standing
