"""How much every pod counts towards a constraint, and the sum on every node.

Both are kept from plan to plan: a new kind is weighed once, and only nodes that changed are summed again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import numpy as np

from makeway.planner.columns import Ints
from makeway.planner.kinds import Kind

if TYPE_CHECKING:
    from makeway.planner.snapshot import Snapshot

Weigh = Callable[[Kind], int]

_REMEMBERED = 256
"""How many tallies are remembered: constraints of different preemptors, the least used forgotten first."""


class Tally:
    """What pods count, by kind, and what they come to, by node.

    `use`: int64[kinds], what freeing the pod gives back. `held`: int64[nodes], the sum of what is counted
    there now, which differs where `counted` does (spread does not count a pod that is terminating, but
    its removal gives back all the same, as upstream has it).
    """

    def __init__(self, key: Hashable, weigh: Weigh, counted: Weigh | None = None) -> None:
        self.key = key
        self.use: Ints = np.zeros(1, np.int64)
        self.held: Ints = np.zeros(0, np.int64)
        self._counted: Ints = self.use
        self._weigh = weigh
        self._count = counted
        self._serial = 0
        self._revision = -1

    def renew(self, snapshot: Snapshot) -> None:
        """Bring both up to the snapshot. O(new kinds + slots of the nodes that changed)."""
        kinds, columns = snapshot.kinds, snapshot.columns
        if self._serial != kinds.serial:
            self.use = _longer(self.use, kinds.size)
            self._counted = self.use if self._count is None else _longer(self._counted, kinds.size)
            for number, kind in kinds.since(self._serial):
                self.use[number] = 0 if kind is None else self._weigh(kind)
                if self._count is not None:
                    self._counted[number] = 0 if kind is None else self._count(kind)
            self._serial = kinds.serial
        if self._revision != snapshot.revision:
            self.held = _longer(self.held, columns.nodes)
            rows = np.flatnonzero(snapshot.changed > self._revision)
            if rows.size:
                slots = int(columns.count[rows].max())
                self.held[rows] = self._counted[columns.kind[:slots, rows]].sum(axis=0)
            self._revision = snapshot.revision

    def counts(self, number: int) -> int:
        """Give what a pod of this kind counts where it is."""
        return int(self._counted[number])


class Tallies:
    """Tallies by what they count."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Tally] = OrderedDict()
        self._remembered: OrderedDict[Hashable, tuple[int, tuple[str, ...]]] = OrderedDict()

    def remembered(self, key: Hashable, stamp: int, find: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
        """Give what was found for a key, found anew where the stamp is another."""
        known = self._remembered.get(key)
        if known is None or known[0] != stamp:
            known = self._remembered[key] = (stamp, find())
            while len(self._remembered) > _REMEMBERED:
                self._remembered.popitem(last=False)
        self._remembered.move_to_end(key)
        return known[1]

    def get(self, snapshot: Snapshot, key: Hashable, weigh: Weigh, counted: Weigh | None = None) -> Tally:
        """Give the tally of a constraint, up to date. `key` says all that the weights depend on."""
        tally = self._kept.get(key)
        if tally is None:
            tally = self._kept[key] = Tally(key, weigh, counted)
            while len(self._kept) > _REMEMBERED:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        tally.renew(snapshot)
        return tally


def _longer(array: Ints, size: int) -> Ints:
    if array.size >= size:
        return array
    return np.concatenate([array, np.zeros(max(size - array.size, array.size), np.int64)])
