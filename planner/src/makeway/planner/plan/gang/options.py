"""What can be done on one node: so many members of each class there, and pods that go for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from makeway.planner.plan.gang.draft import Placing, Slot
from makeway.planner.plan.gang.effects import Effects
from makeway.planner.plan.gang.model import CALLS
from makeway.planner.plan.gang.pricing import Costs
from makeway.planner.snapshot.columns import Flags, Ints

OVERHEAD: Final = 15
"""Times CALLS that the options of one node cost besides their elements."""

MOST_SETS: Final = 2048
"""Sets of a node's pods up to which all are looked at; of more, those along a few orders of the pods."""

MOST_COUNTS: Final = 256
"""Combinations of members that are looked at on one node."""

MOST_OPTIONS: Final = 256
"""Options of one node of which each is held against each other."""


@dataclass(frozen=True, slots=True)
class Options:
    """K options of one node. `members`: int64[K, C]; `effects`: int64[K, A]; `costs`: complex[K].

    `chosen`: int64[K, kinds], how many pods of each kind go; `pods`: slots kind by kind, of each those first
    that go first, and `begins`: where each kind does. The first option is to do nothing there. `elements`:
    how much was looked at.
    """

    node: int
    members: Ints
    effects: Ints
    costs: Costs
    chosen: Ints
    pods: Ints
    begins: Ints
    elements: int

    def victims(self, option: int) -> list[Slot]:
        """Return the pods that go."""
        many = self.chosen[option]
        first = np.repeat(self.begins[:-1] - np.cumsum(many) + many, many)
        return [(slot, self.node) for slot in self.pods[first + np.arange(first.size)].tolist()]


def options_of(
    effects: Effects, node: int, gone: Flags, placing: Placing, *, left: Ints, missing: int
) -> Options:
    """Return what is worth doing on a node, with some pods gone already.

    `gone`: bool[D], of its pods. `left`: int64[C], members to place of each class; `missing`: of all.
    O(sets · combinations of members · resources), both within bounds.
    """
    model = effects.model
    alone = [
        (number, rule) for number, rule in enumerate(model.rooms) if rule.alone and rule.domains[node] >= 0
    ]
    slots = np.flatnonzero(effects.may_go[:, node] & ~gone)
    asked = np.flatnonzero((model.need[model.allowed[:, node]] > 0).any(axis=0))
    frees = np.concatenate(
        [model.uses[asked[:, None], slots, node], *(rule.use[slots, node][None] for _, rule in alone)]
    ).T
    room = model.room[asked, node] + model.uses[asked[:, None], np.flatnonzero(gone), node].sum(axis=1)
    members = _counts(
        effects, node, asked, left=left, missing=missing, most=room + frees[:, : asked.size].sum(axis=0)
    )
    lacks = np.concatenate(
        [
            members @ model.need[:, asked] - room,
            *(
                np.where(
                    members[:, rule.cls] > 0,
                    rule.need
                    + members @ rule.take
                    - rule.take[rule.cls]
                    - placing.rooms[number][rule.domains[node]],
                    0,
                )[:, None]
                for number, rule in alone
            ),
        ],
        axis=1,
    )
    # Of a resource that these members do not ask for there may be too little.
    lacks[:, : asked.size][(members @ model.need[:, asked]) == 0] = 0
    lacks = np.maximum(lacks, 0)
    adds, costs = effects.of_pods(node, slots), effects.pricing.pods(slots, node)
    helps = (frees > 0).any(axis=1) | (adds[:, effects.wide | effects.even] < 0).any(axis=1)
    slots, frees, adds, costs = slots[helps], frees[helps], adds[helps], costs[helps]
    kinds, begins, first = _kinds(effects, node, slots, frees=frees, adds=adds, costs=costs)
    frees, adds, costs = frees[first], adds[first], costs[first]
    wide = np.asarray((adds[:, effects.wide | effects.even] < 0).any(axis=1))
    pairs, sets, elements = _sets(frees, costs, np.diff(begins), lacks, wide)
    total = sets @ adds + effects.of_members(node, members)[pairs]
    paid = sets @ costs if sets.size else np.zeros(pairs.size, np.complex128)
    kept = _undominated(effects, pairs, total, paid)
    pairs, sets, total, paid = pairs[kept], sets[kept], total[kept], paid[kept]
    return Options(
        node=node,
        members=np.concatenate([np.zeros((1, left.size), np.int64), members[pairs]]),
        effects=np.concatenate([np.zeros((1, total.shape[1]), np.int64), total]),
        costs=np.concatenate([[0j], paid]),
        chosen=np.concatenate([np.zeros((1, first.size), np.int64), sets]),
        pods=kinds,
        begins=begins,
        elements=elements + OVERHEAD * CALLS + 4 * (total.size + sets.size),
    )


def _counts(effects: Effects, node: int, asked: Ints, *, left: Ints, missing: int, most: Ints) -> Ints:
    """Return int64[M, C], the members that could be on a node with all gone, the fewest first."""
    model = effects.model
    found = np.zeros((1, left.size), np.int64)
    for cls in range(left.size):
        limit = min(int(left[cls]), missing) if model.allowed[cls, node] else 0
        need = model.need[cls, asked]
        if limit and (need > 0).any():
            limit = min(limit, max(0, int((most[need > 0] // need[need > 0]).min())))
        more = np.repeat(found, limit + 1, axis=0)
        more[:, cls] = np.tile(np.arange(limit + 1), found.shape[0])
        fits = (more.sum(axis=1) <= missing) & ((more @ model.need[:, asked]) <= np.maximum(most, 0)).all(
            axis=1
        )
        found = more[fits]
        found = found[np.argsort(found.sum(axis=1), kind="stable")][: MOST_COUNTS * 4]
    return np.asarray(found[found.sum(axis=1) > 0][:MOST_COUNTS])


def _kinds(
    effects: Effects, node: int, slots: Ints, *, frees: Ints, adds: Ints, costs: Costs
) -> tuple[Ints, Ints, Ints]:
    """Return pods that are alike in all that counts together: int64[pods], slots, kind by kind.

    And int64[kinds + 1], where each kind begins and the last one ends, and int64[kinds], the place of one of
    each in `slots` as they are given.
    """
    rows = np.column_stack([frees, adds])
    rows = np.column_stack([costs.real, costs.imag, rows[:, (rows != 0).any(axis=0)]])
    keys = (-slots, -effects.model.start[slots, node])
    order = np.lexsort((*keys, *rows.T[::-1]))
    new = np.ones(slots.size, np.bool_)
    new[1:] = (rows[order[1:]] != rows[order[:-1]]).any(axis=1)
    begins = np.flatnonzero(new)
    return slots[order], np.append(begins, slots.size), order[begins]


def _sets(frees: Ints, costs: Costs, sizes: Ints, lacks: Ints, wide: Flags) -> tuple[Ints, Ints, int]:
    """Return pairs of members and pods that make room for them, and how many elements that took.

    `frees`: int64[kinds, R]; `sizes`: int64[kinds]; `lacks`: int64[M, R]; `wide`: bool[kinds], what frees
    room in wider domains, too, of which more may go than these nodes need. int64[P], places of members;
    int64[P, kinds], pods of each kind.
    """
    most = lacks.max(axis=0, initial=0)
    limit = np.where(frees > 0, -(-most[None, :] // np.maximum(frees, 1)), 0).max(axis=1, initial=0)
    limit = np.where(wide, sizes, np.minimum(sizes, limit))
    if float(np.prod(limit + 1.0)) <= MOST_SETS:
        sets = np.zeros((1, sizes.size), np.int64)
        for kind, many in enumerate(limit.tolist()):
            sets = np.repeat(sets, many + 1, axis=0)
            sets[:, kind] = np.tile(np.arange(many + 1), sets.shape[0] // (many + 1))
        feasible = ((sets @ frees)[None] >= lacks[:, None]).all(axis=2)
        pairs, places = np.nonzero(feasible)
        return pairs, sets[places], int(feasible.size * frees.shape[1])
    free = frees.max(axis=1)
    orders = (
        np.lexsort((-free, costs.imag, costs.real)),
        np.lexsort((costs.imag, costs.real, -free)),
        np.lexsort((free, costs.imag, costs.real)),
        np.lexsort((costs.imag / np.maximum(free, 1), costs.real / np.maximum(free, 1))),
    )
    pairs_of, sets_of = [], []
    for order in orders:
        sets = _prefixes(order, sizes)
        enough: Flags = np.asarray(np.logical_and.reduce((sets @ frees)[None] >= lacks[:, None], axis=2))
        reached = np.flatnonzero(enough.any(axis=1))
        pairs_of.append(reached)
        sets_of.append(_spared(sets[enough[reached].argmax(axis=1)], frees, costs, lacks[reached]))
    pairs, sets = np.concatenate(pairs_of), np.concatenate(sets_of)
    return pairs, sets, 4 * int(sizes.sum() + 1) * lacks.size


def _prefixes(order: Ints, sizes: Ints) -> Ints:
    """Return int64[pods + 1, kinds]: the first so many pods, kinds in an order."""
    pods = np.repeat(order, sizes[order])
    found = np.zeros((pods.size + 1, sizes.size), np.int64)
    found[np.arange(1, pods.size + 1), pods] = 1
    return np.asarray(found.cumsum(axis=0))


def _spared(sets: Ints, frees: Ints, costs: Costs, lacks: Ints) -> Ints:
    """Return sets without pods that need not go, the dearest spared first."""
    sets, beyond = sets.copy(), sets @ frees - lacks
    for kind in np.lexsort((-costs.imag, -costs.real)).tolist():
        helps = np.flatnonzero(frees[kind : kind + 1].ravel() > 0)
        spare = sets[:, kind]
        if helps.size:
            spare = np.minimum(spare, (beyond[:, helps] // frees[kind, helps]).min(axis=1))
        sets[:, kind] -= spare
        beyond -= spare[:, None] * frees[kind]
    return sets


def _undominated(effects: Effects, pairs: Ints, adds: Ints, costs: Costs) -> Ints:
    """Return the places of options, for the same members none worse than another, cheapest first."""
    if not pairs.size:
        return pairs
    kept = cheapest_of_alike(np.column_stack([pairs, adds]), costs)
    kept = kept[np.lexsort((costs.imag[kept], costs.real[kept], pairs[kept]))]
    if not adds.shape[1] or kept.size == np.unique(pairs[kept]).size:
        return np.asarray(kept)
    found = []
    even = effects.even
    for one in np.unique(pairs[kept]).tolist():
        these = kept[pairs[kept] == one][:MOST_OPTIONS]
        these_adds = adds[these]
        less = (these_adds[:, None] <= these_adds[None]).all(axis=2)
        if even.any():
            less &= (these_adds[:, None, even] == these_adds[None][:, :, even]).all(axis=2)
        earlier = np.tri(these.size, k=-1, dtype=np.bool_).T
        found.append(these[~(less & earlier).any(axis=0)])
    return np.concatenate(found)


def cheapest_of_alike(rows: Ints, costs: Costs) -> Ints:
    """Return the places of the cheapest of each sort of equal rows, of which there is one at least."""
    mixed = rows @ MIXERS[: rows.shape[1]]
    order = np.lexsort((costs.imag, costs.real, mixed))
    return np.asarray(order[np.r_[True, mixed[order][1:] != mixed[order][:-1]]])


MIXERS: Final = np.random.default_rng(20261).integers(1, 2**62, 4096, dtype=np.int64) | 1
"""By which columns are multiplied to give one number to rows that are alike. Always the same ones."""
