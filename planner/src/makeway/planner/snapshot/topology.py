"""Nodes by their labels: topology domains as numbers, and which nodes a pod could run on by itself."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from makeway.core.k8s.nodes import (
    NAME_FIELD,
    UNSCHEDULABLE,
    NodeTerm,
    RequiredNodes,
    keeps_out,
    tolerates,
    whole_number,
)
from makeway.core.k8s.objects import Taint, Toleration
from makeway.core.recent import Recent
from makeway.planner.snapshot.columns import Flags, Ints, extended
from makeway.planner.snapshot.records import NodeRecord
from makeway.planner.snapshot.signatures.interning import NONE, InternTable
from makeway.planner.snapshot.volumes import GENERAL, ZONE_LABELS, Zone

NO_ROW = -1
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
    """Labels and taints of the nodes, by row of the node table that owns it.

    What is asked of all rows is worked out once, and again only for nodes that have changed since.
    `names`, `rows`, `records`: those of the table, which changes them. `present`: bool[rows], a node has the
    row.
    """

    def __init__(
        self, names: Sequence[str], rows: Mapping[str, int], records: Mapping[str, NodeRecord], size: int
    ) -> None:
        """`size`: for how many rows there is room."""
        self._names = names
        self._rows = rows
        self._records = records
        self.present: Flags = np.zeros(size, np.bool_)
        self._taints: InternTable[tuple[Taint, ...]] = InternTable()
        self._tainted: Ints = np.zeros(size, np.int64)
        self._cordons: Flags = np.zeros(size, np.bool_)
        self._stamp = 0
        self._changed: Ints = np.zeros(size, np.int64)
        self._values: dict[str, dict[str, int]] = {}
        self._ordered = Recent[str, tuple[dict[str, int], int, list[int], Ints]](_REMEMBERED)
        self._domains: OrderedDict[str, _Known] = OrderedDict()
        self._eligible = Recent[object, _Known](_REMEMBERED)

    @property
    def tainted(self) -> bool:
        """Whether a node has taints."""
        return len(self._taints) > 0

    @property
    def cordoned(self) -> bool:
        """Whether a node is cordoned."""
        return bool(self._cordons.any())

    def put(self, row: int, node: NodeRecord | None) -> None:
        """Note that another node has a row, or its node is another one now; None: no node has it."""
        self._stamp += 1
        self._changed[row] = self._stamp
        if taints := self._tainted.item(row):
            self._taints.release(taints)
        self.present[row] = node is not None
        self._tainted[row] = self._taints.acquire(node.taints)[0] if node and node.taints else NONE
        self._cordons[row] = node is not None and node.unschedulable

    def grow(self, more: int) -> None:
        """Make room for so many more rows."""
        self.present, self._changed = extended(self.present, more), extended(self._changed, more)
        self._tainted, self._cordons = extended(self._tainted, more), extended(self._cordons, more)

    def domains(self, key: str, rows: int) -> Ints:
        """Return int64[rows], the number of each node's domain under a label, or NO_DOMAIN.

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
            node = self._records.get(self._names[row])
            value = None if node is None else node.labels.get(key)
            known.values[row] = NO_DOMAIN if value is None else values.setdefault(value, len(values))
        return known.values[:rows]

    def count(self, key: str) -> int:
        """Return how many numbers of domains there are under a label."""
        return len(self._values.get(key, ()))

    def eligible(self, nodes: RequiredNodes, tolerations: tuple[Toleration, ...] | None, rows: int) -> Flags:
        """Return bool[rows]: known nodes that a pod's own requirements allow.

        `tolerations` None: taints are not looked at. O(nodes that changed since it was last asked).
        """
        key = (nodes, tolerations)
        known = self._eligible.get(key)
        if known is None:
            known = _Known(np.zeros(0, np.int64), -1)
        self._eligible[key] = known
        stale = np.array(self._renew(known, rows, 0), np.int64)
        if stale.size:
            known.values[stale] = self._allowed(nodes, tolerations, stale)
        return known.values[:rows] > 0

    def open(self, tolerations: tuple[Toleration, ...], rows: int) -> Flags:
        """Return bool[rows]: nodes that are not cordoned; all where a pod tolerates that."""
        open_ = np.ones(rows, np.bool_)
        if not any(tolerates(one, UNSCHEDULABLE) for one in tolerations):
            cordons = self._cordons[:rows]
            open_[: cordons.size] = ~cordons
        return open_

    def in_zones(self, zones: Iterable[Zone], rows: int) -> Flags:
        """Return bool[rows]: nodes whose zone and region labels have one of the values of each.

        A node without any such label will do; so will, for a beta label, one that has the general one alone.
        """
        labelled, fits = np.zeros(rows, np.bool_), np.ones(rows, np.bool_)
        for key in ZONE_LABELS:
            labelled |= self.domains(key, rows) != NO_DOMAIN
        for key, values in zones:
            found = self._one_of(key, values, rows)
            general = GENERAL.get(key)
            if general is not None:
                found |= (self.domains(key, rows) == NO_DOMAIN) & self._one_of(general, values, rows)
            fits &= found
        return ~labelled | fits

    def _one_of(self, key: str, values: Iterable[str], rows: int) -> Flags:
        domains, numbers = self.domains(key, rows), self._values[key]
        return np.isin(domains, [numbers[value] for value in values if value in numbers])

    def _allowed(self, nodes: RequiredNodes, tolerations: tuple[Toleration, ...] | None, rows: Ints) -> Flags:
        """Return bool[rows], whether a pod's own requirements allow them. O(rows) a condition."""
        allowed: Flags = self.present[rows]
        for key, value in nodes.labels:
            allowed &= self._meets(key, "In", (value,), rows)
        if nodes.terms is not None:
            any_term = np.zeros(rows.size, np.bool_)
            for term in nodes.terms:
                any_term |= self._matches(term, rows)
            allowed &= any_term
        if tolerations is not None:
            tainted = self._tainted[rows]
            for number in np.unique(tainted).tolist():
                if keeps_out(self._taints.value(number) or (), tolerations):
                    allowed &= tainted != number
        return allowed

    def _matches(self, term: NodeTerm, rows: Ints) -> Flags:
        """Return bool[rows], which nodes a term means; one without any condition means none."""
        matches = np.full(rows.size, bool(term.expressions or term.fields))
        for key, operator, values in term.expressions:
            matches &= self._meets(key, operator, values, rows)
        for key, operator, values in term.fields:
            if operator not in ("In", "NotIn") or len(values) != 1:
                return np.zeros(rows.size, np.bool_)  # the API server accepts no others
            named = self._rows.get(values[0], NO_ROW) if key == NAME_FIELD else NO_ROW
            matches &= (rows == named) == (operator == "In")
        return matches

    def _meets(self, key: str, operator: str, values: tuple[str, ...], rows: Ints) -> Flags:
        """Return bool[rows], which nodes' labels meet a condition."""
        held = self.domains(key, len(self._names))[rows]
        numbers = self._values[key]
        if operator in ("Exists", "DoesNotExist"):
            return np.asarray((held != NO_DOMAIN) == (operator == "Exists"))
        table = np.zeros(len(numbers) + 1, np.bool_)  # the last for a node without the label
        if operator in ("In", "NotIn"):
            table[[numbers[value] for value in values if value in numbers]] = True
            return np.asarray(table[held] == (operator == "In"))
        bound = whole_number(values[0]) if operator in ("Gt", "Lt") and len(values) == 1 else None
        if bound is not None:
            ordered, places = self._in_order(key)
            more = operator == "Gt"
            meet = slice(bisect_right(ordered, bound), None) if more else slice(bisect_left(ordered, bound))
            table[places[meet]] = True
        return table[held]

    def _in_order(self, key: str) -> tuple[list[int], Ints]:
        """Return the values of a label that are whole numbers, in order, and their domains' numbers.

        O(values · log) where one is new, else O(1): a pod may compare a label with many bounds.
        """
        numbers = self._values[key]
        known = self._ordered.get(key)
        if known is None or known[0] is not numbers or known[1] != len(numbers):
            whole = ((whole_number(value), number) for value, number in numbers.items())
            found = sorted((value, number) for value, number in whole if value is not None)
            places = np.array([number for _, number in found], np.int64)
            known = self._ordered[key] = numbers, len(numbers), [value for value, _ in found], places
        return known[2], known[3]

    def _renew(self, known: _Known, rows: int, filler: int) -> list[int]:
        """Lengthen what is known to `rows`, never fewer than nodes; return those to work out again."""
        if known.values.size < rows:
            more = np.full(rows - known.values.size, filler, np.int64)
            known.values = np.concatenate([known.values, more])
        stale = np.flatnonzero(self._changed[: len(self._names)] > known.stamp)
        known.stamp = self._stamp
        return stale.tolist()
