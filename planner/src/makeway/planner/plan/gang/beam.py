"""The most promising beginnings of a plan, node by node.

A beginning is how many members of each class are placed, the values in the columns of `effects`, and its
cost. Those are kept for which the cost and a bound of what is left are least together.

The bounds are by how many members of each class are left to place: the cheapest sums over nodes of what can
be done on each, were nothing to tie the nodes together.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from typing import Final

import numpy as np

from makeway.planner.plan.gang.effects import PASSED, Effects
from makeway.planner.plan.gang.model import CALLS, Work
from makeway.planner.plan.gang.options import MIXERS, Options, cheapest_of_alike
from makeway.planner.plan.gang.pricing import NEVER, Costs
from makeway.planner.snapshot.columns import Flags, Ints

MOST_GRID: Final = 4096
"""Combinations of members left to place up to which one grid has all classes."""

Bound = tuple[Costs, ...]
"""The least costs by what is left to place, of each grid."""

COMPARED: Final = 8
"""Cheaper beginnings with the same members with which one is compared."""

PIECE: Final = 20_000
"""Beginnings that are looked at between two pauses, times their columns."""


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


def _none() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(slots=True)
class Beginnings:
    """Beginnings after one node. `states`: int64[n, C + A]; `came`, `did`: int64[n], from where and how.

    `rest`: complex[n], the bound of what is left.
    """

    states: Ints
    costs: Costs
    rest: Costs = field(default_factory=lambda: np.zeros(0, np.complex128))
    came: Ints = field(default_factory=_none)
    did: Ints = field(default_factory=_none)

    def take(self, places: Ints | Flags) -> Beginnings:
        """Return some of them."""
        return Beginnings(
            self.states[places], self.costs[places], self.rest[places], self.came[places], self.did[places]
        )


@dataclass(frozen=True, slots=True)
class Ahead:
    """What the nodes after one can still do.

    `bound`: the least costs. `more`, `less`: int64[A], what they can add to columns and take away; `added`:
    by column, what they add at the least where its cap counts for every plan.
    """

    bound: Bound
    more: Ints
    less: Ints
    added: Mapping[int, Bound]


class Beam:
    """Beginnings of one search. `left`: int64[C], members to place of each class; `missing`: of all."""

    def __init__(self, effects: Effects, grids: Grids, left: Ints, missing: int, work: Work) -> None:
        self._effects, self._grids, self._work = effects, grids, work
        self._left, self._missing = left, missing

    def on(
        self, layer: Beginnings, one: Options, ahead: Ahead, *, ceiling: np.complex128, width: int
    ) -> Generator[None, None, tuple[Beginnings, bool]]:
        """Return the best beginnings after one more node, and whether others were left out for the width.

        Pauses now and then.
        """
        found, cut = [], False
        rows = max(1, PIECE // one.costs.size)
        for first in range(0, max(1, layer.costs.size), rows):
            if first:
                yield
            came = np.arange(first, min(first + rows, layer.costs.size))
            part, was_cut = self._best(self._after(layer, came, one, ahead, ceiling), width * 2)
            cut |= was_cut
            found.append(part)
        whole = found[0]
        if len(found) > 1:
            yield
            names = [one.name for one in fields(Beginnings)]
            whole = Beginnings(*(np.concatenate([getattr(one, name) for one in found]) for name in names))
            whole, was_cut = self._best(whole, width * 2)
            cut |= was_cut
        whole = whole.take(self._undominated(whole.states, whole.costs))
        return whole.take(np.arange(min(width, whole.costs.size))), cut or whole.costs.size > width

    def _after(
        self, layer: Beginnings, came: Ints, one: Options, ahead: Ahead, ceiling: np.complex128
    ) -> Beginnings:
        """Return all that can come of some beginnings on a node and be cheaper than the ceiling."""
        classes = self._left.size
        adds = np.concatenate([one.members, one.effects], axis=1)
        did = np.tile(np.arange(one.costs.size), came.size)
        came = np.repeat(came, one.costs.size)
        members = layer.states[came, :classes] + one.members[did]
        fits = (members <= self._left).all(axis=1) & (members.sum(axis=1) <= self._missing)
        costs = layer.costs[came] + one.costs[did]
        rest = self._grids.rest(ahead.bound, np.where(fits[:, None], members, 0))
        fits &= costs + rest < ceiling
        self._work.spend(4 * CALLS + fits.size * 4 + int(fits.sum()) * (adds.shape[1] + 4))
        came, did = came[fits], did[fits]
        found = Beginnings(layer.states[came] + adds[did], costs[fits], rest[fits], came, did)
        if not self._effects.columns:
            return found
        enough = np.ones(came.size, np.bool_)
        for place, of_left in ahead.added.items():
            coming = self._grids.rest(of_left, found.states[:, :classes])
            enough &= found.states[:, classes + place] + coming.real <= self._effects.cap[place]
        found = found.take(enough)
        found.costs = found.costs + self.beyond(found.states[:, classes:])
        fine = self._settle(found.states[:, classes:], ahead.more, ahead.less)
        return found.take(fine & (found.costs + found.rest < ceiling))

    def _best(self, layer: Beginnings, most: int) -> tuple[Beginnings, bool]:
        """Return the cheapest of those that are alike, so many of them, and whether others were left out."""
        order = cheapest_of_alike(layer.states, layer.costs) if layer.costs.size else _none()
        whole = layer.costs[order] + layer.rest[order]
        best = order[np.lexsort((whole.imag, whole.real))]
        return layer.take(best[:most]), best.size > most

    def _undominated(self, states: Ints, costs: Costs) -> Flags:
        """Return bool[n]: no other of the few cheapest with the same members is as good in every column."""
        classes = self._left.size
        found = np.ones(costs.size, np.bool_)
        if states.shape[1] == classes:
            return found
        same = np.r_[np.ones(classes, np.bool_), self._effects.even]
        group = states[:, same] @ MIXERS[: int(same.sum())]
        order = np.lexsort((costs.imag, costs.real, group))
        states, group = states[order][:, ~same], group[order]
        for back in range(1, min(COMPARED + 1, order.size)):
            better = (group[back:] == group[:-back]) & (states[:-back] <= states[back:]).all(axis=1)
            found[order[back:][better]] = False
        self._work.spend(COMPARED * (CALLS // 8 + states.size))
        return found

    def beyond(self, effects: Ints) -> Costs:
        """Return complex[n], what is to be paid beyond the caps of columns, which are set back. In place."""
        of, weights = self._effects, self._effects.weights
        over = np.maximum(effects - of.cap, 0)
        cost = over[:, of.soft].sum(axis=1) * weights.get("budgets", 0j)
        cost = cost + (over[:, of.breaking] > 0).sum(axis=1) * weights.get("groups", 0j)
        effects[:, of.soft] = np.minimum(effects, of.cap)[:, of.soft]
        effects[:, of.breaking] = np.where(over > 0, PASSED, effects)[:, of.breaking]
        return np.asarray(np.where((over[:, of.hard] > 0).any(axis=1), NEVER, cost))

    def _settle(self, effects: Ints, more: Ints, less: Ints) -> Flags:
        """Put columns that can pass their caps no more to one value; report which states may go on. In place.

        `more`, `less`: int64[A], what other nodes can add and take away yet.
        """
        of = self._effects
        counted = of.soft | of.breaking | of.hard
        effects[:, counted] = np.where(effects + more <= of.cap, PASSED, effects)[:, counted]
        fine = np.ones(effects.shape[0], np.bool_)
        for place in np.flatnonzero(of.wide).tolist():
            used, there = effects[:, place], effects[:, place + 1]
            fine &= (there <= 0) | (used - less[place] <= of.cap[place])
            safe = used + more[place] <= of.cap[place]
            if more[place + 1] == 0:
                safe |= there <= 0
            effects[:, place] = np.where(safe | (used < PASSED // 2), PASSED, used)
            effects[:, place + 1] = np.where(safe, 0, there)
        for one in of.spreads:
            place = one.place
            if not (more[place : place + 2].any() or less[place].any()):
                passed = effects[:, place] < PASSED // 2
                total = effects[:, place] + one.total
                even = (total >= one.least) & ((effects[:, place + 1] == 0) | (total <= one.most))
                fine &= passed | even
                effects[:, place] = PASSED
                effects[:, place + 1] = 0
        return fine
