"""The arrays under the snapshot: of each node what it can hold, and of its pods a layer for each number.

On every node the pods are in slots 0, 1, 2 … in order of importance, so "reprieve the most important first"
is a walk over the slots with all nodes side by side, and no plan sorts pods.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from makeway.core.k8s.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from makeway.core.policy.exemption import NO_PREEMPTOR, NOT_EXEMPT, Exemption
from makeway.core.policy.lost_work import UnsavedWork

Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
_D = TypeVar("_D", bound=np.generic)

VACANT = 2**40
"""Priority of an empty slot: above every pod's, so that no rule ever takes it for removable."""

MOST = 2**53
"""Amounts above this are cut to it (8 PiB), so that sums over a thousand pods stay within int64."""

PRIORITY, START, BUDGETS, SIGNATURE, EXEMPT_BELOW, EXEMPT_UNTIL, GROUP = range(7)
UNSAVED_SINCE, LONGEST_UNSAVED, RULE_BITS = 7, 8, 9
"""Layers of the pods; those of the resources follow."""

NOT_RECLAIMED: Final = 2**62
"""The bit of RULE_BITS above those of all rules: no queue takes the pod's room back, as far as is known."""

RESOURCES: Final = 10
"""The first layer that is a resource's."""

VACANT_CELL: Final = 0
"""The cell that empty slots read."""

_REMEMBERED_VECTORS = 4096
"""Different sets of requests whose vectors are remembered."""

_LARGEST_REMEMBERED = 64
"""Resources of such a set: a pod names as many as its author likes, and one kept here outlasts its pod."""

_LAYERS_AHEAD = 6
"""Layers for which room is made beyond those in use: a resource more is no copy of the whole, which holds the
event loop for 15 to 70 ms with 150,000 pods. What is never touched costs no memory."""

_LEAST_SLOTS = 8
"""The fewest slots of a node with pods."""

_CELLS = 256
"""Cells for which room is made at first."""

BASE_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)


class PodCell(NamedTuple):
    """What the columns hold of a pod: a number for each layer, in their order, and what it requests."""

    priority: int
    start: int
    budgets: int
    signature: int
    exemption: Exemption
    group: int
    work: UnsavedWork
    rule_bits: int

    @property
    def requests(self) -> Mapping[str, int]:
        """What it requests."""
        return self.work.requests

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return those of the layers before the resources'."""
        more = self.group, self.work.since, self.work.longest, self.rule_bits
        return self.priority, self.start, self.budgets, self.signature, *self.exemption, *more


class Columns:
    """Mutable arrays of nodes and their pods. Amounts are milli-CPU, bytes, units.

    * `resources`: name to layer; `add_layers` adds one. What no plan has asked for has none: a node may have
      a thousand different ones, and a pod name them.
    * `allocatable`, `requested`: int64[resources, nodes].
    * `count`: int64[nodes], slots in use. `exempt_count`: int64[nodes], pods that have an exemption.
    * `cells`: int64[layers, cells], the numbers of pods; one in VACANT_CELL is an empty slot's. `first`:
      int64[nodes], the cell of a node's slot 0; those of its other slots follow.

    `NodeSlots` has what the layers mean, and reads them for some nodes side by side.

    A node has as many cells as its own pods need, an eighth or some eight more, whatever the fullest node
    has; it moves to more of them when they are full, and to fewer when a quarter is in use. All are moved
    together when there is a quarter between them that no node has, in place of making room, and when half
    of them are none's. Putting a pod in, or taking one out, costs O(slots of its node) beside that.
    """

    def __init__(self, nodes: int = 8) -> None:
        self.resources = {name: layer for layer, name in enumerate(BASE_RESOURCES)}
        layers = len(self.resources)
        self.allocatable: Ints = np.zeros((layers, nodes), np.int64)
        self.requested: Ints = np.zeros((layers, nodes), np.int64)
        self.exempt_count: Ints = np.zeros(nodes, np.int64)
        self.count: Ints = np.zeros(nodes, np.int64)
        self.first: Ints = np.zeros(nodes, np.int64)
        self._room: Ints = np.zeros(nodes, np.int64)
        self._all: Ints = _cells(RESOURCES + layers + _LAYERS_AHEAD, _CELLS)
        self.cells: Ints = self._all[: RESOURCES + layers]
        self._end = VACANT_CELL + 1
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        self._held = 0
        self._vectors: dict[int, tuple[Mapping[str, int], Ints]] = {}

    @property
    def nodes(self) -> int:
        """How many nodes there is room for."""
        return int(self.count.shape[0])

    @property
    def size(self) -> int:
        """How many bytes the cells have that were ever in use since all were moved; others are no memory."""
        return self._end * len(self.cells) * self.cells.itemsize

    def add_layers(self, names: Iterable[str]) -> list[str]:
        """Add an empty layer for each resource that has none; return the names of those."""
        new = [name for name in names if name not in self.resources]
        if new:
            for name in new:
                self.resources[name] = len(self.resources)
            self.allocatable = extended(self.allocatable, len(new), axis=0)
            self.requested = extended(self.requested, len(new), axis=0)
            layers = RESOURCES + len(self.resources)
            if layers > len(self._all):
                before, self._all = self._all, _cells(layers + _LAYERS_AHEAD, self._all.shape[1])
                self._all[: len(before), : self._end] = before[:, : self._end]
            self.cells = self._all[:layers]
        return new

    def set_allocatable(self, node: int, amounts: Mapping[str, int]) -> None:
        """Put down what a node can hold of what has a layer; a resource not named is 0. O(layers)."""
        self.allocatable[:, node] = [min(amounts.get(name, 0), MOST) for name in self.resources]

    def insert(self, node: int, slot: int, pod: PodCell) -> None:
        """Put a pod into a slot; the pods from there on move up by one."""
        used = self.count.item(node)
        if used == self._room.item(node):
            self._settle(node, _rounded(used + 1))
        first = self.first.item(node)
        if slot < used:
            self.cells[:, first + slot + 1 : first + used + 1] = self.cells[:, first + slot : first + used]
        amounts = self.vector(pod.requests)
        cell = self.cells[:, first + slot]
        cell[:RESOURCES] = pod.numbers
        cell[RESOURCES:] = amounts
        self.exempt_count[node] += pod.exemption != NOT_EXEMPT
        self.requested[:, node] += amounts
        self.count[node] = used + 1

    def replace(self, node: int, slot: int, pod: PodCell) -> Flags:
        """Put a new version of the pod into its slot; what orders it is as before.

        Return bool[layers], which numbers are others.
        """
        cell = self.cells[:, self.first.item(node) + slot]
        numbers = np.concatenate([np.array(pod.numbers, np.int64), self.vector(pod.requests)])
        more = numbers - cell
        self.requested[:, node] += more[RESOURCES:]
        self.exempt_count[node] += (pod.exemption != NOT_EXEMPT) - (cell.item(EXEMPT_BELOW) != NO_PREEMPTOR)
        cell[:] = numbers
        return np.asarray(more != 0)

    def remove(self, node: int, slot: int) -> None:
        """Take the pod out of a slot; the pods behind it move down by one."""
        left, first = self.count.item(node) - 1, self.first.item(node)
        self.requested[:, node] -= self.cells[RESOURCES:, first + slot]
        self.exempt_count[node] -= int(self.cells[EXEMPT_BELOW, first + slot]) != NO_PREEMPTOR
        if slot < left:
            self.cells[:, first + slot : first + left] = self.cells[:, first + slot + 1 : first + left + 1]
        self.count[node] = left
        if left <= self._room.item(node) // 4:
            self._settle(node, _rounded(2 * left))

    def clear(self, node: int) -> None:
        """Take out all pods of a node, and what it can hold. O(layers)."""
        self.allocatable[:, node] = self.requested[:, node] = 0
        self.count[node] = self.exempt_count[node] = 0
        self._settle(node, 0)

    def amounts(self, requests: Mapping[str, int]) -> Ints:
        """Return requests as int64[resources]; those without a layer are left out."""
        vector = np.zeros(len(self.resources), np.int64)
        for name, amount in requests.items():
            if name in self.resources:
                vector[self.resources[name]] = min(amount, MOST)
        return vector

    def vector(self, requests: Mapping[str, int]) -> Ints:
        """Return requests as `amounts` does. Remembered: most pods share theirs."""
        known = self._vectors.get(id(requests))
        if known is not None and known[0] is requests and known[1].size == len(self.resources):
            return known[1]
        vector = self.amounts(requests)
        if len(requests) > _LARGEST_REMEMBERED:
            return vector
        if len(self._vectors) >= _REMEMBERED_VECTORS:
            self._vectors.clear()
        self._vectors[id(requests)] = requests, vector
        return vector

    def signatures(self, nodes: Ints) -> tuple[Ints, Ints, Ints]:
        """Return of all pods of some nodes the signature, the place in `nodes` and the slot, node by node."""
        places, slots, cells = self._in_use(nodes)
        return self.cells[SIGNATURE].take(cells), places, slots

    def summed(self, values: Ints, nodes: Ints) -> Ints:
        """Return int64[len(nodes)], the sum over the pods of each of a value by signature. O(their pods)."""
        _, _, cells = self._in_use(nodes)
        sums = np.concatenate([[0], np.cumsum(values.take(self.cells[SIGNATURE].take(cells)))])
        ends = np.cumsum(self.count[nodes])
        return np.asarray(sums[ends] - sums[ends - self.count[nodes]])

    def grow_nodes(self) -> None:
        """Make room for twice as many nodes."""
        more = self.nodes
        self.allocatable, self.requested = extended(self.allocatable, more), extended(self.requested, more)
        self.exempt_count, self.count = extended(self.exempt_count, more), extended(self.count, more)
        self.first, self._room = extended(self.first, more), extended(self._room, more)

    # -------------------------------------------------------------------------------- inner work

    def _settle(self, node: int, room: int) -> None:
        """Move the pods of a node to another number of cells."""
        before, held, used = self.first.item(node), self._room.item(node), self.count.item(node)
        if room == held:
            return
        if not self._free[room] and room > self._all.shape[1] - self._end:
            self._make_cells(room)
            before = self.first.item(node)
        if room == 0:
            first = VACANT_CELL
        elif self._free[room]:
            first = self._free[room].pop()
        else:
            first, self._end = self._end, self._end + room
        self.cells[:, first : first + used] = self.cells[:, before : before + used]
        if held:
            self._free[held].append(before)
        self.first[node], self._room[node] = first, room
        self._held += room - held
        if self._end > _CELLS and 2 * self._held < self._end:
            self._move_together(self._held)

    def _make_cells(self, more: int) -> None:
        """Have cells at the end for so many more."""
        if 4 * (self._held + more) > 3 * self._all.shape[1]:
            before = self._all
            self._all = _cells(len(before), before.shape[1] * 3 // 2 + more)
            self._all[:, : self._end] = before[:, : self._end]
            self.cells = self._all[: len(self.cells)]
        else:
            self._move_together(self._all.shape[1] - _CELLS)

    def _move_together(self, cells: int) -> None:
        """Give every node its cells anew, with none between them, in as many cells. O(pods)."""
        _, slots, old = self._in_use(np.arange(self.nodes))
        self.first = np.where(self._room > 0, VACANT_CELL + 1 + np.cumsum(self._room) - self._room, 0)
        new = np.repeat(self.first, self.count) + slots
        before, self._all = self.cells, _cells(len(self._all), cells + cells // 8 + _CELLS)
        self.cells = self._all[: len(before)]
        for layer, numbers in enumerate(before):
            self.cells[layer, new] = numbers.take(old)
        self._end = VACANT_CELL + 1 + self._held
        self._free.clear()

    def _in_use(self, nodes: Ints) -> tuple[Ints, Ints, Ints]:
        """Return place in `nodes`, slot and cell of all their pods, node by node."""
        count = self.count[nodes]
        places = np.repeat(np.arange(nodes.size), count)
        slots = np.arange(places.size) - np.repeat(np.cumsum(count) - count, count)
        return places, slots, np.repeat(self.first[nodes], count) + slots


def _cells(layers: int, cells: int) -> Ints:
    """Return cells that no node has."""
    made = np.zeros((layers, cells), np.int64)
    made[PRIORITY, VACANT_CELL] = VACANT
    made[EXEMPT_BELOW, VACANT_CELL] = NO_PREEMPTOR
    return made


def _rounded(slots: int) -> int:
    """Return for how many slots there is room with so many in use: some more, in few different sizes."""
    if slots <= 0:
        return 0
    step = max(_LEAST_SLOTS, 1 << max(0, slots.bit_length() - 3))
    return -(-slots // step) * step


def extended(array: NDArray[_D], more: int, filler: int = 0, *, axis: int = -1) -> NDArray[_D]:
    """Return an array with so many more places along an axis, which hold the filler."""
    shape = list(array.shape)
    shape[axis] = more
    return np.concatenate([array, np.full(shape, filler, array.dtype)], axis=axis)
