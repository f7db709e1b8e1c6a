"""Which row each node has, its pods in the order of its columns, and the pods whose node is not there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

import numpy as np

from makeway.core.k8s.importance import Importance
from makeway.planner.snapshot.columns import Flags, Ints, extended
from makeway.planner.snapshot.records import PodRecord

_NO_PODS: Mapping[str, PodRecord] = MappingProxyType({})


class NodeRows:
    """Rows of nodes that are there. Changed only by the snapshot that owns it.

    `by_name`: row by name of a node; `names`: name by row. `slots`, `order`: of each row the pods as its
    columns have them, in a list that another one replaces where they change, and what orders them. `present`:
    bool[rows], a node has the row. `changed`: int64[rows], the revision that last touched the node.
    """

    def __init__(self, rows: int) -> None:
        self.by_name: dict[str, int] = {}
        self.names: list[str] = []
        self.slots: list[list[PodRecord]] = []
        self.order: list[list[Importance]] = []
        self.present: Flags = np.zeros(rows, np.bool_)
        self.changed: Ints = np.zeros(rows, np.int64)
        self._free: list[int] = []
        self._sorted: tuple[str, ...] | None = None
        self._rank: Ints = np.zeros(0, np.int64)

    def add(self, name: str) -> int:
        """Give a node a row, one that is free or the next."""
        if self._free:
            row = self._free.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
            self.slots.append([])
            self.order.append([])
            if row == self.present.size:
                more = max(8, row)
                self.present, self.changed = extended(self.present, more), extended(self.changed, more)
        self.by_name[name] = row
        self.present[row] = True
        self._sorted = None
        return row

    def discard(self, name: str) -> None:
        """Free the row of a node that is gone."""
        row = self.by_name.pop(name)
        self.present[row] = False
        self.names[row] = ""
        self.slots[row], self.order[row] = [], []
        self._free.append(row)
        self._sorted = None

    def named(self, names: Iterable[str]) -> Ints:
        """Return the rows of those of the named nodes that are there, each once, in no special order."""
        return np.array([self.by_name[name] for name in set(names) if name in self.by_name], np.int64)

    def in_order(self) -> tuple[str, ...]:
        """Return the names of all nodes, in order. O(1) while no node comes or goes."""
        if self._sorted is None:
            self._sorted = tuple(sorted(self.by_name))
            self._rank = np.zeros(self.present.size, np.int64)
            self._rank[[self.by_name[name] for name in self._sorted]] = np.arange(len(self._sorted))
        return self._sorted

    def rank(self) -> Ints:
        """Return int64[rows], each node's place in the order of names."""
        self.in_order()
        return self._rank


class PodsWithoutNode:
    """Bound pods whose node is not there, as records alone, by the name that they are bound to.

    Any user may create them, as many as quotas allow: none has a row or a slot. `claiming`: those that use
    claims, which count for whoever wants the same claim.
    """

    def __init__(self) -> None:
        self.claiming: dict[str, PodRecord] = {}
        self._of: dict[str, dict[str, PodRecord]] = {}

    def of(self, node: str) -> Collection[PodRecord]:
        """Return the pods that are bound to a node of this name."""
        return self._of.get(node, _NO_PODS).values()

    def put(self, pod: PodRecord) -> None:
        """Keep a pod, or its new version."""
        self._of.setdefault(pod.node, {})[pod.uid] = pod
        if pod.signature.claims:
            self.claiming[pod.uid] = pod
        else:
            self.claiming.pop(pod.uid, None)

    def discard(self, pod: PodRecord) -> None:
        """Forget a pod."""
        there = self._of[pod.node]
        del there[pod.uid]
        if not there:
            del self._of[pod.node]
        self.claiming.pop(pod.uid, None)

    def take(self, node: str) -> list[PodRecord]:
        """Return the pods that are bound to a node, which is there from now on, and forget them."""
        pods = [*self._of.pop(node, _NO_PODS).values()]
        for pod in pods:
            self.claiming.pop(pod.uid, None)
        return pods
