"""Nodes and the pods on them: which row each node has, and its pods in the order of its columns.

Changed only by the snapshot that owns it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from makeway.core.index import Index
from makeway.core.k8s.importance import Importance
from makeway.planner.snapshot.columns import MOST, Columns, Ints, PodCell, extended
from makeway.planner.snapshot.records import NodeRecord, PodRecord
from makeway.planner.snapshot.topology import Topology

_NOTHING: Mapping[str, int] = {}


class NodeTable:
    """Nodes by name, with a row of the `columns` for each that is there.

    `rows`: row by name of a node; `names`: name by row. `slots`, `order`: of each row the pods as its columns
    have them, in a list that another one replaces where they change, and what orders them. `changed`:
    int64[rows], the `revision` that last touched the node. `resources`: how many nodes have some of each,
    also without a layer. `without_node`: the bound pods of nodes that are not there.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.columns = Columns()
        self.records: dict[str, NodeRecord] = {}
        self.rows: dict[str, int] = {}
        self.names: list[str] = []
        self.slots: list[list[PodRecord]] = []
        self.order: list[list[Importance]] = []
        self.changed: Ints = np.zeros(self.columns.nodes, np.int64)
        self.resources = Counter[str]()
        self.topology = Topology(self.names, self.rows, self.records, self.columns.nodes)
        self.without_node = PodsWithoutNode()
        self._free: list[int] = []
        self._sorted: tuple[str, ...] | None = None
        self._rank: Ints = np.zeros(0, np.int64)

    def named(self, names: Iterable[str]) -> Ints:
        """Return the rows of those of the named nodes that are there, each once, in no special order."""
        return np.array([self.rows[name] for name in set(names) if name in self.rows], np.int64)

    def in_order(self) -> tuple[str, ...]:
        """Return the names of all nodes, in order. O(1) while no node comes or goes."""
        if self._sorted is None:
            self._sorted = tuple(sorted(self.rows))
            self._rank = np.zeros(self.columns.nodes, np.int64)
            self._rank[[self.rows[name] for name in self._sorted]] = np.arange(len(self._sorted))
        return self._sorted

    def rank(self) -> Ints:
        """Return int64[rows], each node's place in the order of names."""
        self.in_order()
        return self._rank

    def pods_of(self, node: str) -> Collection[PodRecord]:
        """Return the pods that are bound to a node, also where it is not there."""
        row = self.rows.get(node)
        return self.without_node.of(node) if row is None else self.slots[row]

    def place_of(self, pod: PodRecord) -> tuple[int, int] | None:
        """Return the row and slot of a pod; None where it has none."""
        row = self.rows.get(pod.node)
        return None if row is None else (row, bisect_left(self.order[row], pod.importance))

    def touch(self, rows: Iterable[int]) -> None:
        """Mark nodes as changed after this revision: plans may have looked at them at it."""
        self.changed[list(rows)] = self.revision + 1

    def put(self, node: NodeRecord) -> int | None:
        """Add a node or change it; return its row where it has come."""
        before = self.records.get(node.name)
        if before == node:
            return None
        row = self._take_row(node.name) if before is None else self.rows[node.name]
        self.records[node.name] = node
        self.topology.put(row, node)
        self._offered(_NOTHING if before is None else before.allocatable, -1)
        self._offered(node.allocatable, 1)
        self.columns.set_allocatable(row, node.allocatable)
        self.revision += 1
        self.changed[row] = self.revision
        return row if before is None else None

    def drop(self, name: str) -> None:
        """Forget a node that is there; its pods are kept without it. O(its pods)."""
        row = self.rows.pop(name)
        for pod in self.slots[row]:
            self.without_node.put(pod)
        self.topology.put(row, None)
        self._offered(self.records.pop(name).allocatable, -1)
        self.columns.clear(row)
        self.revision += 1
        self.changed[row] = self.revision
        self.names[row] = ""
        self.slots[row], self.order[row] = [], []
        self._free.append(row)
        self._sorted = None

    def insert(self, row: int, pod: PodRecord, cell: PodCell) -> None:
        """Put a pod on a node."""
        order, importance = self.order[row], pod.importance
        slot = bisect_left(order, importance)
        order.insert(slot, importance)
        self._renewed(row).insert(slot, pod)
        self.columns.insert(row, slot, cell)
        self.changed[row] = self.revision

    def replace(self, row: int, pod: PodRecord, cell: PodCell, *, marks: bool) -> None:
        """Put a pod's new version into the slot of the one before, whose place it takes; mark the node."""
        slot = bisect_left(self.order[row], pod.importance)
        self._renewed(row)[slot] = pod
        self.columns.replace(row, slot, cell)
        if marks:
            self.changed[row] = self.revision

    def remove(self, row: int, pod: PodRecord) -> None:
        """Take a pod off a node."""
        slot = bisect_left(self.order[row], pod.importance)
        del self.order[row][slot]
        del self._renewed(row)[slot]
        self.columns.remove(row, slot)
        self.changed[row] = self.revision + 1

    def add_layers(self, names: Iterable[str]) -> list[str]:
        """Add a layer, with what nodes have, for each resource that has none; return which. O(nodes) each."""
        new = self.columns.add_layers(names)
        for name in new:
            layer = self.columns.allocatable[self.columns.resources[name]]
            for node in self.records.values():
                layer[self.rows[node.name]] = min(node.allocatable.get(name, 0), MOST)
        return new

    def _offered(self, amounts: Mapping[str, int], more: int) -> None:
        """Count what one node more, or less (-1), offers. O(resources)."""
        for name, amount in amounts.items():
            if amount > 0:
                self.resources[name] += more
                if not self.resources[name]:
                    del self.resources[name]

    def _renewed(self, row: int) -> list[PodRecord]:
        """Return a new list of a row's pods in the place of the one that plans may have."""
        self.slots[row] = self.slots[row].copy()
        return self.slots[row]

    def _take_row(self, name: str) -> int:
        """Give a node a row, one that is free or the next."""
        if self._free:
            row = self._free.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
            self.slots.append([])
            self.order.append([])
            if row == self.columns.nodes:
                self.changed = extended(self.changed, row)
                self.topology.grow(row)
                self.columns.grow_nodes()
        self.rows[name] = row
        self._sorted = None
        return row


class PodsWithoutNode:
    """Bound pods whose node is not there, as records alone, by the name that they are bound to.

    Any user may create them, as many as quotas allow: none has a row or a slot. `claiming`: those that use
    claims, which count for whoever wants the same claim.
    """

    def __init__(self) -> None:
        self.claiming: dict[str, PodRecord] = {}
        self._of = Index[str, str, PodRecord]()

    def of(self, node: str) -> Collection[PodRecord]:
        """Return the pods that are bound to a node of this name."""
        return self._of.of(node).values()

    def put(self, pod: PodRecord) -> None:
        """Keep a pod, or its new version."""
        self._of.put(pod.node, pod.uid, pod)
        if pod.signature.claims:
            self.claiming[pod.uid] = pod
        else:
            self.claiming.pop(pod.uid, None)

    def discard(self, pod: PodRecord) -> None:
        """Forget a pod."""
        self._of.discard(pod.node, pod.uid)
        self.claiming.pop(pod.uid, None)

    def take(self, node: str) -> list[PodRecord]:
        """Return the pods that are bound to a node, which is there from now on, and forget them."""
        pods = [*self._of.pop(node, {}).values()]
        for pod in pods:
            self.claiming.pop(pod.uid, None)
        return pods
