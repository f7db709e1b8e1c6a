"""The arrays under the snapshot: a column per node, a row per slot, a layer per resource.

On every node the pods stand in slots 0, 1, 2 … in order of importance, so "reprieve the most
important first" is a walk over the slots with all nodes side by side, and no plan sorts pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from makeway.core.k8s.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from makeway.core.policy.exemption import NO_PREEMPTOR, NOT_EXEMPT, Exemption

Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
_D = TypeVar("_D", bound=np.generic)

VACANT = 2**40
"""Priority of an empty slot: above every pod's, so that no rule ever takes it for removable."""

MOST = 2**53
"""Amounts above this are cut to it (8 PiB), so that sums over a thousand pods stay within int64."""

_REMEMBERED_VECTORS = 4096
"""Different sets of requests whose vectors are remembered."""

_VACANCY = {0: VACANT, 4: NO_PREEMPTOR}
"""What empty slots hold in the layers of the array of pods where it is not 0: `priority`, `exempt_below`."""

_SLOTS_AHEAD = 128
"""Slots for which the array of pods is made at first, beyond Kubernetes' 110 pods a node. Memory of
such arrays comes in pages of 2 MiB, which the kernel clears: what is in use should lie together."""

_SLOTS_AT_ONCE = 8
"""Slots by which those shown become more: with 8,192 nodes 5 MiB that the kernel clears, some 5 ms."""

_LAYERS_AHEAD = 6
"""Layers for which the array of pods is made beyond those in use: a resource more is no copy of the whole,
which holds the event loop for 15 to 70 ms with 150,000 pods. Each takes 8 bytes a slot."""

_RESOURCES = 7
"""The first layer of the array of pods that is a resource's."""

BASE_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)


class Columns:
    """Mutable arrays of nodes and their pods. Amounts are milli-CPU, bytes, units.

    * `resources`: name to layer; `add_layers` adds one. What no plan has asked for has none: a node may have
      a thousand different ones, and a pod name them.
    * `allocatable`, `requested`: int64[resources, nodes].
    * `requests`: int64[resources, slots, nodes]; 0 in empty slots.
    * `priority`: int64[slots, nodes]; VACANT in empty slots.
    * `start`: int64[slots, nodes], microseconds since 1970 or NOT_STARTED.
    * `budgets`: int64[slots, nodes], the set of disruption budgets that cover the pod; 0 for none.
    * `exempt_below`, `exempt_until`: int64[slots, nodes], the pod's exemption: preemptors of lower priority
      may not remove it up to that microsecond. `exempt_count`: int64[nodes], pods that have one.
    * `signature`: int64[slots, nodes], what others' constraints see of the pod; 0 in empty slots.
    * `group`: int64[slots, nodes], the number of the pod's PodGroup; 0 for none.
    * `count`: int64[nodes], slots in use; they are the first ones.

    All that has slots lies in one array, slot by slot and a layer each, so that pods move up and down in one
    copy, and slots that no node has used are memory that is never touched.
    Room grows by doubling, the slots shown a few at a time. Putting a pod in, or taking one out, costs
    O(slots of its node).
    """

    priority: Ints
    start: Ints
    budgets: Ints
    signature: Ints
    exempt_below: Ints
    exempt_until: Ints
    group: Ints
    requests: Ints

    def __init__(self, nodes: int = 8, slots: int = 8) -> None:
        self.resources = {name: layer for layer, name in enumerate(BASE_RESOURCES)}
        layers = len(self.resources)
        self.allocatable: Ints = np.zeros((layers, nodes), np.int64)
        self.requested: Ints = np.zeros((layers, nodes), np.int64)
        self._room: Ints = np.zeros((0, 0, 0), np.int64)
        self._pods = self._room  # without the layers that are not in use
        self._shown = 0
        self._grow(layers, slots, nodes)
        self.exempt_count: Ints = np.zeros(nodes, np.int64)
        self.count: Ints = np.zeros(nodes, np.int64)
        self._vectors: dict[int, tuple[Mapping[str, int], Ints]] = {}

    @property
    def nodes(self) -> int:
        """How many nodes there is room for."""
        return int(self.count.shape[0])

    @property
    def slots(self) -> int:
        """How many slots a node has room for."""
        return int(self.priority.shape[0])

    def add_layers(self, names: Iterable[str]) -> list[str]:
        """Add an empty layer for each resource that has none; return the names of those."""
        new = [name for name in names if name not in self.resources]
        if new:
            for name in new:
                self.resources[name] = len(self.resources)
            self.allocatable = extended(self.allocatable, len(new), axis=0)
            self.requested = extended(self.requested, len(new), axis=0)
            self._grow(len(self.resources), self.slots, self.nodes)
        return new

    def set_allocatable(self, node: int, amounts: Mapping[str, int]) -> None:
        """Put down what a node can hold of what has a layer; a resource not named is 0. O(layers)."""
        self.allocatable[:, node] = [min(amounts.get(name, 0), MOST) for name in self.resources]

    def insert(
        self,
        node: int,
        slot: int,
        *,
        priority: int,
        start: int,
        budgets: int,
        signature: int,
        requests: Mapping[str, int],
        exemption: Exemption = NOT_EXEMPT,
        group: int = 0,
    ) -> None:
        """Put a pod into a slot; the pods from there on move up by one."""
        amounts = self.vector(requests)
        used = self.count.item(node)
        if used == self._shown:
            self._grow_slots()
        if slot < used:
            self._pods[slot + 1 : used + 1, :, node] = self._pods[slot:used, :, node]
        self.priority[slot, node] = priority
        self.start[slot, node] = start
        self.budgets[slot, node] = budgets
        self.signature[slot, node] = signature
        self.group[slot, node] = group
        self.exempt_below[slot, node], self.exempt_until[slot, node] = exemption
        if exemption != NOT_EXEMPT:
            self.exempt_count[node] += 1
        self.requests[:, slot, node] = amounts
        self.requested[:, node] += amounts
        self.count[node] = used + 1

    def replace(
        self,
        node: int,
        slot: int,
        *,
        budgets: int,
        signature: int,
        requests: Mapping[str, int],
        exemption: Exemption,
        group: int,
    ) -> None:
        """Put a new version of the pod into its slot; what orders it is as before."""
        self.recount(node, slot, requests)
        self.budgets[slot, node] = budgets
        self.signature[slot, node] = signature
        self.group[slot, node] = group
        self.set_exemption(node, slot, exemption)

    def recount(self, node: int, slot: int, requests: Mapping[str, int]) -> bool:
        """Put down anew what the pod in a slot requests; report whether that is new."""
        amounts = self.vector(requests)
        more = amounts - self.requests[:, slot, node]
        if not more.any():
            return False
        self.requested[:, node] += more
        self.requests[:, slot, node] = amounts
        return True

    def remove(self, node: int, slot: int) -> None:
        """Take the pod out of a slot; the pods behind it move down by one."""
        last = self.count.item(node) - 1
        self.requested[:, node] -= self.requests[:, slot, node]
        if self.exempt_below[slot, node] != NO_PREEMPTOR:
            self.exempt_count[node] -= 1
        if slot < last:
            self._pods[slot:last, :, node] = self._pods[slot + 1 : last + 1, :, node]
        self._empty(last, node)
        self.count[node] = last

    def clear(self, node: int) -> None:
        """Take out all pods of a node, and what it can hold. O(slots)."""
        used = self.count.item(node)
        self._empty(np.arange(used), node)
        self.allocatable[:, node] = self.requested[:, node] = 0
        self.count[node] = self.exempt_count[node] = 0

    def vacate(self, nodes: Ints, slots: Ints) -> Ints:
        """Empty some slots where they are; return int64[resources, n], what their pods took.

        The pods behind them do not move up: for columns that are looked at once. O(slots emptied).
        """
        taken = self.requests[:, slots, nodes]
        for layer, amounts in enumerate(taken):
            np.subtract.at(self.requested[layer], nodes, amounts)
        np.subtract.at(self.exempt_count, nodes, self.exempt_below[slots, nodes] != NO_PREEMPTOR)
        self._empty(slots, nodes)
        return taken

    def _empty(self, slots: int | Ints, nodes: int | Ints) -> None:
        self._pods[slots, :, nodes] = 0
        for layer, vacant in _VACANCY.items():
            self._pods[slots, layer, nodes] = vacant

    def set_exemption(self, node: int, slot: int, exemption: Exemption) -> bool:
        """Put down which preemptors may not remove the pod in a slot; report whether that is new. O(1)."""
        if (self.exempt_below[slot, node], self.exempt_until[slot, node]) == exemption:
            return False
        self.exempt_count[node] += (exemption != NOT_EXEMPT) - int(
            self.exempt_below[slot, node] != NO_PREEMPTOR
        )
        self.exempt_below[slot, node], self.exempt_until[slot, node] = exemption
        return True

    def pick(self, nodes: Ints, more: int = 0) -> Columns:
        """Return a copy that holds only these nodes, in this order, to be changed at will.

        `more`: how many pods a node will get at the most. O(nodes · slots).
        """
        copy = Columns(0, 0)
        copy.resources = dict(self.resources)
        copy._vectors = self._vectors
        copy.count = self.count[nodes]
        used = min(int(copy.count.max(initial=0)) + more, self.slots)
        copy.allocatable = self.allocatable[:, nodes]
        copy.requested = self.requested[:, nodes]
        copy.exempt_count = self.exempt_count[nodes]
        copy._pods = copy._room = self._pods[:used, :, nodes]
        copy._shown = used
        copy._name_layers()
        return copy

    def reorder(self, order: Ints) -> None:
        """Put the first pods of every node into another order: of each slot, which slot its pod was in.

        `order`: int64[slots, nodes]. Not for columns that pods are put into. O(slots · nodes).
        """
        slots = order.shape[0]
        self._pods[:slots] = np.take_along_axis(self._pods[:slots], order[:, None, :], axis=0)

    def amounts(self, requests: Mapping[str, int]) -> Ints:
        """Return requests as int64[resources]; those without a layer are left out."""
        vector = np.zeros(len(self.resources), np.int64)
        for name, amount in requests.items():
            if name in self.resources:
                vector[self.resources[name]] = min(amount, MOST)
        return vector

    def grow_nodes(self) -> None:
        """Make room for twice as many nodes."""
        more = max(8, self.nodes)
        self.allocatable = extended(self.allocatable, more)
        self.requested = extended(self.requested, more)
        self._grow(len(self.resources), self.slots, self.nodes + more)
        self.exempt_count = extended(self.exempt_count, more)
        self.count = extended(self.count, more)

    def vector(self, requests: Mapping[str, int]) -> Ints:
        """Return requests as `amounts` does. Remembered: most pods share theirs."""
        known = self._vectors.get(id(requests))
        if known is not None and known[0] is requests and known[1].size == len(self.resources):
            return known[1]
        vector = self.amounts(requests)
        if len(self._vectors) >= _REMEMBERED_VECTORS:
            self._vectors.clear()
        self._vectors[id(requests)] = requests, vector
        return vector

    def _grow_slots(self) -> None:
        self._grow(len(self.resources), self.slots + _SLOTS_AT_ONCE, self.nodes)

    def _grow(self, resources: int, slots: int, nodes: int) -> None:
        """Make room. It has more slots than are shown: what is never touched costs no memory."""
        before, shown = self._pods, self._shown
        rows, layers, width = self._room.shape
        used = _RESOURCES + resources
        if slots > rows:
            rows = max(slots, 2 * rows, _SLOTS_AHEAD)
        if used > layers:
            layers = used + _LAYERS_AHEAD
        if (rows, layers, nodes) != self._room.shape:
            self._room = np.zeros((rows, layers, nodes), np.int64)
            self._room[:shown, : before.shape[1], :width] = before[:shown]
        self._pods = self._room[:, :used]
        for layer, vacant in _VACANCY.items():
            self._pods[shown:slots, layer] = vacant
            self._pods[:slots, layer, width:] = vacant
        self._shown = slots
        self._name_layers()

    def _name_layers(self) -> None:
        """Name the layers of the array of pods; they are views of it."""
        pods = self._pods[: self._shown].swapaxes(0, 1)
        self.priority, self.start, self.budgets = pods[0], pods[1], pods[2]
        self.signature, self.exempt_below, self.exempt_until = pods[3], pods[4], pods[5]
        self.group = pods[6]
        self.requests = pods[_RESOURCES:]


def extended(array: NDArray[_D], more: int, filler: int = 0, *, axis: int = -1) -> NDArray[_D]:
    """Return an array with so many more places along an axis, which hold the filler."""
    shape = list(array.shape)
    shape[axis] = more
    return np.concatenate([array, np.full(shape, filler, array.dtype)], axis=axis)
