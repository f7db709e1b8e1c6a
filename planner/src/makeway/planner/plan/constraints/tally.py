"""How much every pod counts towards a constraint, and the sum on every node.

Both are kept from plan to plan: a new signature is weighed once, and only nodes that changed are summed
again. What is new to a tally is worked out in chunks: where a plan has used up its allowance, it pauses.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from makeway.core.recent import Recent
from makeway.planner.snapshot.columns import Ints
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.signatures.table import SignatureTable
from makeway.planner.snapshot.state import Snapshot

Weigh = Callable[[Ints], Ints]
"""Returns what pods with some signatures count: int64[numbers of signatures] to int64 of that shape."""

CHUNK_STEPS: Final = 1_000_000
"""Steps between two pauses, of some 10 ns each: a signature against a requirement, a pod in a sum."""

_REMEMBERED = 256
"""How many tallies are remembered: constraints of different preemptors, the least used forgotten first."""

_REMEMBERED_ENTRIES = 2**22
"""Signatures and nodes that all tallies together may keep, of 16 bytes each, however many signatures there
are."""

_FEWEST = 40
"""So many tallies are remembered in any case: more than one question has."""


class StaleSignaturesError(RuntimeError):
    """Weights are used after signatures were numbered anew: an error of the planner, never of its input."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What pods count, by the number of their signature as it was at one serial of the table of signatures.

    A number may be another signature's once a pod has come or gone, or more label keys are told apart. So
    whoever asks names pods, or numbers that it has read just now, and keeps what they count, never numbers.
    """

    amounts: Ints
    signatures: SignatureTable
    serial: int

    def of(self, numbers: Ints) -> Ints:
        """Return what pods count, in the shape of the numbers of their signatures.

        Raises:
            StaleSignaturesError: numbers were assigned since.
        """
        if self.serial != self.signatures.serial:
            raise StaleSignaturesError(f"weights of serial {self.serial} at {self.signatures.serial}")
        return np.asarray(self.amounts[numbers])

    def as_known(self, numbers: Ints) -> Ints:
        """Return the same after a pause, too: nothing for pods whose signatures came meanwhile."""
        if self.serial == self.signatures.serial:
            return np.asarray(self.amounts[numbers])
        known = self.signatures.assigned[numbers] <= self.serial
        return np.where(known, self.amounts[np.where(known, numbers, 0)], 0)

    def total(self, snapshot: Snapshot, pods: Iterable[PodRecord]) -> int:
        """Return what some pods count together. Raises as `of`, and KeyError where a pod is not known."""
        if self.serial != self.signatures.serial:
            raise StaleSignaturesError(f"weights of serial {self.serial} at {self.signatures.serial}")
        return sum(int(self.amounts[snapshot.signature(pod.uid)]) for pod in pods)


class AllowanceUsedUp(Exception):  # noqa: N818 - it names a state
    """The allowance is used up; what has been worked out is kept, and the next attempt goes on from there."""


class Tally:
    """What pods count, by signature, and what they come to, by node.

    `use`: what removing the pod frees; `counted`: what it counts where it is, which may differ (a spread
    without a selector counts no pod, but their removal frees all the same, as upstream has it). `held`:
    int64[nodes], the sum of what is counted there now. `cost`: steps that weighing one signature takes.
    `use` and `counted` are as of the last update.
    """

    def __init__(self, key: Hashable, weigh: Weigh, counted: Weigh | None = None, cost: int = 1) -> None:
        self.key = key
        self._use: Ints = np.zeros(1, np.int64)
        self.held: Ints = np.zeros(0, np.int64)
        self._counted: Ints = self._use
        self._weigh = weigh
        self._count = counted
        self._cost = cost
        self._new: Ints = np.zeros(0, np.int64)
        self._serial = 0
        self._revision = -1

    def update(self, snapshot: Snapshot, allowance: Allowance) -> None:
        """Bring both up to the snapshot. O(new signatures + pods of the nodes that changed).

        Raises:
            AllowanceUsedUp: the allowance did not suffice.
        """
        signatures, columns = snapshot.signatures, snapshot.columns
        if self._serial != signatures.serial:
            self._use = _longer(self._use, signatures.size)
            self._counted = self._use if self._count is None else _longer(self._counted, signatures.size)
            fresh = signatures.since(self._serial)
            self._new = np.union1d(self._new, fresh) if self._new.size else fresh
            self._serial = signatures.serial
        while self._new.size:
            some = allowance.some(self._new.size, self._cost)
            part = self._new[:some]
            self._use[part] = self._weigh(part)
            if self._count is not None:
                self._counted[part] = self._count(part)
            self._new = self._new[some:]
        if self._revision != snapshot.revision:
            self.held = _longer(self.held, columns.nodes)
            rows = np.flatnonzero(snapshot.changed > self._revision)
            if rows.size:
                allowance.whole(rows.size + int(columns.count[rows].sum()))
                self.held[rows] = columns.summed(self._counted, rows)
            self._revision = snapshot.revision

        self.use = Weights(self._use, signatures, signatures.serial)
        self.counted = Weights(self._counted, signatures, signatures.serial)


class Allowance:
    """How much may be worked out before the next pause. None: all of it."""

    def __init__(self, steps: int | None = None) -> None:
        self._most = self._left = steps

    def some(self, number: int, cost: int) -> int:
        """Use up steps for as many of a number of things as there is allowance for, of so many steps each."""
        if self._left is None:
            return number
        some = min(number, self._left // cost)
        if some <= 0 and self._left == self._most:
            some = 1
        if some <= 0:
            raise AllowanceUsedUp
        self._left -= some * cost
        return some

    def whole(self, steps: int) -> None:
        """Use up steps for what cannot be divided: more than the allowance only if it is the first."""
        if self._left is None:
            return
        if steps > self._left and self._left != self._most:
            raise AllowanceUsedUp
        self._left -= steps


class Tallies:
    """Tallies by what they count. `allowance`: for what is worked out anew."""

    def __init__(self) -> None:
        self.allowance = Allowance()
        self._kept: OrderedDict[Hashable, Tally] = OrderedDict()
        self._remembered = Recent[Hashable, tuple[int, Any]](_REMEMBERED)

    def within(self, allowance: Allowance) -> Tallies:
        """Return the same tallies as one attempt at a plan uses them, as far as its allowance goes."""
        bounded = copy(self)
        bounded.allowance = allowance
        return bounded

    def remembered(self, key: Hashable, stamp: int, find: Callable[[], Any]) -> Any:
        """Return what was found for a key, found anew where the stamp is another."""
        known = self._remembered.get(key)
        if known is None or known[0] != stamp:
            known = stamp, find()
        self._remembered[key] = known
        return known[1]

    def get(
        self, snapshot: Snapshot, key: Hashable, weigh: Weigh, counted: Weigh | None = None, cost: int = 1
    ) -> Tally:
        """Return the tally of a constraint, up to date. `key` says all that the weights depend on.

        Raises:
            AllowanceUsedUp: the allowance did not suffice.
        """
        tally = self._kept.get(key)
        if tally is None:
            tally = self._kept[key] = Tally(key, weigh, counted, cost)
            entries = max(1, snapshot.signatures.size + snapshot.columns.nodes)
            most = min(_REMEMBERED, max(_FEWEST, _REMEMBERED_ENTRIES // entries))
            while len(self._kept) > most:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        tally.update(snapshot, self.allowance)
        return tally


def _longer(array: Ints, size: int) -> Ints:
    if array.size >= size:
        return array
    return np.concatenate([array, np.zeros(max(size - array.size, array.size), np.int64)])
