"""Nodes by their labels: topology domains as numbers, and which nodes a pod could run on by itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from makeway.core.nodes import RequiredNodes, keeps_out
from makeway.core.objects import Taint, Toleration
from makeway.planner.columns import Flags, Ints

NO_DOMAIN = -1
"""Domain of a node that lacks the label, or is not known."""

_REMEMBERED = 256
"""How many labels' domains are remembered, and how many selections of nodes."""

_WORN = 4
"""Domains are numbered anew once there have been so many times more than rows (nodes that came and went)."""


@dataclass(slots=True)
class _Known:
    """What was worked out for every row, and at which change of the nodes."""

    values: Ints
    stamp: int


class Topology:
    """Labels and taints of the nodes, by row of the snapshot. Mutated only by the snapshot that owns it.

    What is asked of all rows is worked out once, and again only for nodes that have changed since.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._labels: list[Mapping[str, str] | None] = []
        self._taints: list[tuple[Taint, ...]] = []
        self._stamp = 0
        self._changed: Ints = np.zeros(8, np.int64)
        self._values: dict[str, dict[str, int]] = {}
        self._domains: OrderedDict[str, _Known] = OrderedDict()
        self._eligible: OrderedDict[object, _Known] = OrderedDict()

    def put(self, row: int, name: str, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
        """Put down a row's node; say whether it has changed."""
        while row >= len(self._names):
            self._names.append("")
            self._labels.append(None)
            self._taints.append(())
        if self._names[row] == name and self._labels[row] == labels and self._taints[row] == taints:
            return False
        self._names[row], self._labels[row], self._taints[row] = name, labels, taints
        self._touch(row)
        return True

    def drop(self, row: int) -> None:
        """Forget a row's node."""
        if row < len(self._names) and self._labels[row] is not None:
            self._labels[row] = None
            self._touch(row)

    def domains(self, key: str, rows: int) -> Ints:
        """Give int64[rows], the number of each node's domain under a label, or NO_DOMAIN.

        O(nodes that changed since it was last asked).
        """
        known = self._domains.get(key)
        if known is None or len(self._values[key]) > _WORN * rows:
            known = self._domains[key] = _Known(np.full(0, NO_DOMAIN, np.int64), -1)
            self._values[key] = {}
            while len(self._domains) > _REMEMBERED:
                del self._values[self._domains.popitem(last=False)[0]]
        self._domains.move_to_end(key)
        values = self._values[key]
        for row in self._renew(known, rows, NO_DOMAIN):
            labels = self._labels[row]
            value = None if labels is None else labels.get(key)
            known.values[row] = NO_DOMAIN if value is None else values.setdefault(value, len(values))
        return known.values[:rows]

    def count(self, key: str) -> int:
        """Give how many numbers of domains there are under a label."""
        return len(self._values.get(key, ()))

    def eligible(self, nodes: RequiredNodes, tolerations: tuple[Toleration, ...] | None, rows: int) -> Flags:
        """Give bool[rows]: known nodes that a pod's own requirements allow.

        `tolerations` None: taints are not looked at. O(nodes that changed since it was last asked).
        """
        key = (nodes, tolerations)
        known = self._eligible.get(key)
        if known is None:
            known = self._eligible[key] = _Known(np.zeros(0, np.int64), -1)
            while len(self._eligible) > _REMEMBERED:
                self._eligible.popitem(last=False)
        else:
            self._eligible.move_to_end(key)
        for row in self._renew(known, rows, 0):
            labels = self._labels[row]
            known.values[row] = (
                labels is not None
                and nodes.match(self._names[row], labels)
                and (tolerations is None or not keeps_out(self._taints[row], tolerations))
            )
        return known.values[:rows] > 0

    def _renew(self, known: _Known, rows: int, filler: int) -> list[int]:
        """Lengthen what is known to `rows`, never fewer than nodes; give those to work out again."""
        if known.values.size < rows:
            more = np.full(rows - known.values.size, filler, np.int64)
            known.values = np.concatenate([known.values, more])
        stale = np.flatnonzero(self._changed[: len(self._names)] > known.stamp)
        known.stamp = self._stamp
        return stale.tolist()

    def _touch(self, row: int) -> None:
        if row >= self._changed.size:
            more = np.zeros(max(self._changed.size, row + 1 - self._changed.size), np.int64)
            self._changed = np.concatenate([self._changed, more])
        self._stamp += 1
        self._changed[row] = self._stamp
