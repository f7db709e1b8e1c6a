"""Bounds of what members that are left to place will cost, by how many of each class there are.

The cheapest sums over nodes of what can be done on each, were nothing to tie the nodes together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np

from makeway.planner.plan.gang.options import Costs
from makeway.planner.snapshot.columns import Ints

MOST_GRID: Final = 4096
"""Combinations of members left to place up to which one grid has all classes."""

NEVER: Final = np.complex128(complex(np.inf, 0))

Bound = tuple[Costs, ...]
"""The least costs by what is left to place, of each grid."""


@dataclass(frozen=True, slots=True)
class _Grid:
    """Classes in groups. `of`: int64[C, G], 1 for the group of each class. `left`: int64[G], to place."""

    of: Ints
    left: Ints

    def bound(self, after: Costs, members: Ints, paid: Costs) -> tuple[Costs, int]:
        """Return the least costs with one node more, and how many elements were looked at.

        `after`: those of the nodes after it. `members`: int64[K, C], what can be placed there; `paid`:
        complex[K].
        """
        row, sizes = after.copy(), members @ self.of
        order = np.lexsort((paid.imag, paid.real, *sizes.T))
        sizes, costs = sizes[order], paid[order]
        first = np.r_[True, (sizes[1:] != sizes[:-1]).any(axis=1)]
        for size, cost in zip(sizes[first].tolist(), costs[first].tolist(), strict=True):
            if any(size):
                to = tuple(slice(many, None) for many in size)
                of = tuple(slice(0, most - many) for many, most in zip(size, row.shape, strict=True))
                row[to] = np.minimum(row[to], after[of] + cost)
        return row, row.size * int(first.sum())


class Grids:
    """One grid of all classes where it is not too large; else, for each class, one of it and all others.

    `left`: int64[C], members that can be placed; `missing`: how many have to be.
    """

    def __init__(self, left: Ints, missing: int) -> None:
        each = np.eye(left.size, dtype=np.int64)
        whole = np.prod(left + 1.0) <= MOST_GRID
        groups = [each] if whole else [np.column_stack([one, 1 - one]) for one in each]
        self._grids = [_Grid(of, left @ of) for of in groups]
        self._spare = int(left.sum()) - missing

    def bounds(self, members: Sequence[Ints], costs: Sequence[Costs]) -> tuple[list[Bound], int]:
        """Return a bound for the nodes from each on, and how many elements were looked at.

        `members`: of each node int64[K, C], what can be placed there; `costs`: complex[K].
        """
        found, elements = [tuple(map(self._end, self._grids))], 0
        for there, paid in zip(reversed(members), reversed(costs), strict=True):
            rows = []
            for grid, after in zip(self._grids, found[-1], strict=True):
                row, looked_at = grid.bound(after, there, paid)
                rows.append(row)
                elements += looked_at
            found.append(tuple(rows))
        return found[::-1], elements

    def rest(self, bound: Bound, placed: Ints) -> Costs:
        """Return complex[n], the least that is still to be paid. `placed`: int64[n, C], members so far."""
        found = [
            costs[tuple((grid.left - placed @ grid.of).T)]
            for grid, costs in zip(self._grids, bound, strict=True)
        ]
        return np.asarray(reduce(np.maximum, found))

    def _end(self, grid: _Grid) -> Costs:
        """Return what is to be paid after the last node: nothing where all are placed that have to be."""
        end = np.full(tuple((grid.left + 1).tolist()), NEVER)
        end[np.indices(end.shape).sum(axis=0) == self._spare] = 0
        return end
