"""The cheapest plan over some nodes, all else as it is: a knapsack over nodes, and what ties them together.

Of each node it is known what can be done there (`options`). Without ties a plan's price is the sum over its
nodes, and the cheapest sum for each number of members is found node by node: min-plus convolution. That is a
bound where budgets, gangs or wide rules tie nodes together, by which then the most promising beginnings are
kept, node by node. It is decided of one unit after the other whether it goes, under a bound in which those
that are left to decide on go for nothing.

Work is counted in elements of arrays, so the same plan comes of it on any machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count as numbers
from typing import Final

import numpy as np

from makeway.planner.plan.gang.beam import Ahead, Beam, Beginnings, Bound, Grids
from makeway.planner.plan.gang.draft import Draft, Placing, gone, holds, price_of
from makeway.planner.plan.gang.effects import Effects, leasts_of
from makeway.planner.plan.gang.model import CALLS, Model, Work
from makeway.planner.plan.gang.options import Options, options_of
from makeway.planner.plan.gang.pricing import NEVER, Costs
from makeway.planner.plan.price import Key, Price
from makeway.planner.snapshot.columns import MOST, Ints

NARROW: Final = 64
"""Beginnings that are kept at each node at first."""

WIDE: Final = 2048
"""Beginnings that are kept at the most where that was not certain to be enough, and work is left."""

MOST_LEVELS: Final = 12
"""Priorities up to which a search is made where a victim's priority does not count before their number."""

MOST_UNITS: Final = 12
"""Units that are decided on; all others stay."""

MOST_TURNS: Final = 512
"""Sets of units that are looked at, and decisions on them."""

MOST_ENDS: Final = 24
"""Ends of one search that are held against all rules."""


Rank = tuple[Key, tuple[int, ...]]
"""What orders drafts: the key of their price, and then the names of their nodes."""


def rank_of(model: Model, draft: Draft) -> Rank:
    """Return what orders drafts: their price, and then the names of their nodes."""
    names = sorted(int(model.rank[node]) for (node, _), count in draft.members.items() for _ in range(count))
    return price_of(model, draft).key(model.objective), tuple(names)


@dataclass(slots=True)
class _Work:
    """The best draft so far, and how much may be looked at."""

    best: Draft | None
    price: Price | None
    budget: Work


def improve(
    ways: Sequence[Model],
    draft: Draft | None,
    base: Draft,
    nodes: Ints,
    *,
    low: int,
    budget: Work,
) -> Generator[None, None, Draft | None]:
    """Return a draft that is no worse, with other members and victims on some nodes; None without any.

    `ways`: one question in several forms, of which one is to be kept. `draft`: holds already; None to look
    for a first one. `base`: what stays of it whatever is found. `low`: no plan has all its victims below this
    priority. Pauses now and then.
    """
    model = ways[0]
    work = _Work(draft, None if draft is None else price_of(model, draft), budget)
    here = model.removable[:, nodes]
    levels = [one for one in (-MOST, *np.unique(model.priority[:, nodes][here]).tolist()) if one >= low]
    levels = levels or [MOST]
    objective, before = model.objective, model.before_highest

    def at(level: int) -> Generator[None, None, None]:
        for way in ways:
            yield from _at(way, work, base, nodes, level)

    def is_least() -> bool:
        return work.price is not None and not any(work.price.key(objective)[: len(before)])

    if "highestPriority" not in objective or "highestVictims" in before:
        for level in reversed(levels[-MOST_LEVELS:]):
            yield from at(level)
        return work.best
    yield from at(levels[0])
    tried = {levels[0]}
    if not is_least():
        yield from at(levels[-1])
        tried.add(levels[-1])
    first, last = 1, len(levels) - 1
    while work.price is not None and work.price.highest > levels[0] and first < last:
        middle = (first + last) // 2
        yield from at(levels[middle])
        tried.add(levels[middle])
        if work.price.highest <= levels[middle]:
            last = middle
        else:
            first = middle + 1
    if work.price is not None and work.price.highest in set(levels) - tried:
        yield from at(work.price.highest)
    return work.best


def _at(model: Model, work: _Work, base: Draft, nodes: Ints, level: int) -> Generator[None, None, None]:
    """Look for a better draft than the best, without victims above a level."""
    for least in leasts_of(model, nodes):
        if work.budget.left <= 0:
            return
        effects = Effects(model, level, nodes, base=base, least=least)
        yield
        search = _Search(effects, base, work)
        yield from search.run()


@dataclass(frozen=True, slots=True)
class _Sets:
    """Sets of units, of which `go` go in all, and any of `open` may, in which order they are decided on.

    `options`, `bounds`: of all nodes, as if the open ones had gone for nothing. `base`, `start`, `cost`: of
    those that go.
    """

    go: tuple[int, ...]
    open: tuple[int, ...]
    options: list[Options]
    bounds: list[Bound]
    base: Draft = field(default_factory=Draft)
    start: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    cost: np.complex128 = NEVER


class _Search:
    """One search at one level."""

    def __init__(self, effects: Effects, base: Draft, work: _Work) -> None:
        self.effects, self.base, self.work = effects, base, work
        self.model = model = effects.model
        left = np.array(model.counts, np.int64)
        for (_, cls), count in base.members.items():
            left[cls] -= count
        self.left, self.missing = left, model.must - base.placed
        self.units = [unit for unit in effects.units if unit not in base.units]
        self.nodes = self._ordered(effects.nodes)
        self.known: dict[tuple[int, tuple[int, ...]], Options] = {}
        self.units_at = [set(np.unique(model.unit[:, node]).tolist()) for node in self.nodes.tolist()]
        self.grids = Grids(left, self.missing)
        self.beam = Beam(effects, self.grids, left, self.missing, work.budget)

    def _ordered(self, nodes: Ints) -> Ints:
        """Return nodes so that those of one domain of a wide rule come together."""
        model = self.model
        keys = [model.rank[nodes]]
        keys += [rule.domains[nodes] for rule in model.rooms if not rule.alone]
        keys += [rule.domains[nodes] for rule in model.spreads]
        keys += [domains[nodes] for rule in model.affinities for domains in rule.domains]
        return np.asarray(nodes[np.lexsort(keys)])

    @property
    def ceiling(self) -> np.complex128:
        """The cost below which a plan at the level of the effects is better than the best."""
        effects, price = self.effects, self.work.price
        if price is None:
            return NEVER
        terms = price.terms()
        if "highestPriority" not in self.model.objective or price.highest == effects.level:
            return np.complex128(effects.pricing.price(terms))
        before = [one for one in self.model.before_highest if one in effects.weights]
        cost = effects.pricing.price({term: terms[term] for term in before})
        if price.highest < effects.level:
            return np.complex128(cost)
        return np.complex128(cost + effects.weights[before[-1]]) if before else NEVER

    def run(self) -> Generator[None, None, None]:
        """Decide of one unit after the other whether it goes, the sets with the least bounds first."""
        units = self._units()
        heap: list[tuple[float, float, int, _Sets]] = []
        turns = numbers()

        def push(sets: _Sets) -> None:
            least = sets.cost + self.grids.rest(sets.bounds[0], np.zeros((1, self.left.size), np.int64))[0]
            if least < self.ceiling:
                heappush(heap, (least.real, least.imag, next(turns), sets))

        push((yield from self._sets((), units)))
        while heap and self.work.budget.left > 0 and next(turns) < MOST_TURNS:
            real, imag, _, sets = heappop(heap)
            if not np.complex128(complex(real, imag)) < self.ceiling:
                return
            if not sets.open:
                yield from self._descend(sets)
                continue
            unit, rest = sets.open[0], sets.open[1:]
            push(self._paid(replace(sets, go=(*sets.go, unit), open=rest)))
            push((yield from self._sets(sets.go, rest)))

    def _units(self) -> tuple[int, ...]:
        """Return the units that are decided on, those with most pods here first; of many the best draft's."""
        sizes = Counter(self.model.unit[:, self.nodes].ravel().tolist())
        first = set() if self.work.best is None else self.work.best.units
        units = sorted(self.units, key=lambda unit: (unit not in first, -sizes[unit], unit))[:MOST_UNITS]
        return tuple(sorted(units, key=lambda unit: (-sizes[unit], unit)))

    def _sets(self, go: tuple[int, ...], open_: tuple[int, ...]) -> Generator[None, None, _Sets]:
        """Return what is known of all sets of some units that go, and any of others."""
        free = Draft(self.base.members, self.base.singles, self.base.units | {*go, *open_})
        options = yield from self._options(free, tuple(sorted((*go, *open_))))
        bounds = self._bounds(options, [one.costs for one in options])
        yield
        return self._paid(_Sets(go, open_, options, bounds))

    def _paid(self, sets: _Sets) -> _Sets:
        """Return them at the price of the units that go."""
        base = Draft(self.base.members, self.base.singles, self.base.units | set(sets.go))
        start = self.effects.start(base)
        cost = self.effects.base_cost(base) + self.beam.beyond(start[None])[0]
        return replace(sets, base=base, start=start, cost=np.complex128(cost))

    def _options(self, base: Draft, units: tuple[int, ...]) -> Generator[None, None, list[Options]]:
        model = self.model
        ruled = any(rule.alone for rule in model.rooms)
        placing: Placing | None = None
        found = []
        for place, node in enumerate(self.nodes.tolist()):
            key = node, tuple(unit for unit in units if unit in self.units_at[place])
            if key not in self.known:
                if placing is None:
                    placing = Placing(model)
                    if ruled:
                        placing.remove(gone(model, base))
                going = np.isin(model.unit[:, node], list(base.units)) & (model.unit[:, node] > 0)
                for slot, at in base.singles:
                    going[slot] |= at == node
                one = options_of(self.effects, node, going, placing, left=self.left, missing=self.missing)
                self.work.budget.spend(one.elements)
                self.known[key] = one
                yield
            found.append(self.known[key])
        return found

    def _bounds(self, options: list[Options], costs_of: list[Costs]) -> list[Bound]:
        found, elements = self.grids.bounds([one.members for one in options], costs_of)
        self.work.budget.spend(CALLS * len(options) + elements)
        return found

    def _descend(self, sets: _Sets) -> Generator[None, None, None]:
        """Keep the most promising beginnings, node by node; again more of them, as far as work is left."""
        options = sets.options
        more, less = self._rests(options)
        added = {
            place: self._bounds(options, [one.effects[:, place].astype(np.complex128) for one in options])
            for place in self._certain()
        }
        ahead = [
            Ahead(bound, more[at], less[at], {place: of_nodes[at] for place, of_nodes in added.items()})
            for at, bound in enumerate(sets.bounds)
        ]
        before = self.work.budget.left
        if (yield from self._keep(sets, ahead, NARROW)):
            width = NARROW * self.work.budget.left // max(before - self.work.budget.left, 1)
            if width > NARROW:
                yield from self._keep(sets, ahead, min(width, WIDE))

    def _keep(self, sets: _Sets, ahead: list[Ahead], width: int) -> Generator[None, None, bool]:
        """Take the best end that holds; return whether beginnings were left out for the width."""
        state = np.concatenate([np.zeros(self.left.size, np.int64), sets.start])[None]
        paid = self.beam.beyond(state[:, self.left.size :]) + self.effects.base_cost(sets.base)
        layers, cut = [Beginnings(state, np.asarray(paid, np.complex128))], False
        for one, then in zip(sets.options, ahead[1:], strict=True):
            layer, was_cut = yield from self.beam.on(layers[-1], one, then, ceiling=self.ceiling, width=width)
            cut |= was_cut
            layers.append(layer)
            yield
            if not layer.costs.size:
                return cut
        yield from self._conclude(sets.base, layers, sets.options)
        return cut

    def _certain(self) -> list[int]:
        """Return the columns whose caps count for every plan: no state may need to pass one."""
        of, model, found = self.effects, self.model, []
        for place, column in enumerate(of.columns):
            if column.kind == "hard":
                found.append(place)
            elif column.kind == "wide":
                rule = of.rooms[column.number]
                others = model.counts[: rule.cls] + model.counts[rule.cls + 1 :]
                if sum(others) < model.must and bool((rule.domains[self.nodes] == column.domain).all()):
                    found.append(place)
        return found

    def _rests(self, options: list[Options]) -> tuple[list[Ints], list[Ints]]:
        more = [np.zeros(len(self.effects.columns), np.int64)]
        less = [more[0]]
        for one in reversed(options):
            more.insert(0, more[0] + one.effects.max(axis=0))
            less.insert(0, less[0] - one.effects.min(axis=0))
        return more, less

    def _conclude(
        self, base: Draft, layers: list[Beginnings], options: list[Options]
    ) -> Generator[None, None, None]:
        """Take the best of the ends that holds and is better than the best."""
        last = layers[-1]
        ends = np.lexsort((last.costs.imag, last.costs.real))[:MOST_ENDS]
        for end in ends.tolist():
            if not last.costs[end] < self.ceiling:
                return
            draft, place = base.copy(), end
            for layer, one in zip(reversed(layers[1:]), reversed(options), strict=True):
                did = int(layer.did[place])
                draft.singles.update(one.victims(did))
                for cls, count in enumerate(one.members[did].tolist()):
                    if count:
                        draft.members[one.node, cls] = count
                place = int(layer.came[place])
            price = price_of(self.model, draft)
            best = self.work.price
            objective = self.model.objective
            if (best is None or price.key(objective) < best.key(objective)) and holds(self.model, draft):
                self.work.best, self.work.price = draft, price
                return
            yield
