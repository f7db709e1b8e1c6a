"""The cheapest plan over a few nodes, all else as it is: branch and bound, within a number of steps.

A first plan takes the cheapest steps one after the other, which is not always cheapest in all: a unit may
make room on three nodes, a budget may be spent better elsewhere, a step may take more than is still missing.
With few nodes all of the plan is looked at; with many the nodes where it costs most, and some that come next.

Victims are pods of nodes that get members, and units that have pods there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np

from makeway.core.policy.document import GroupTerm
from makeway.planner.plan.gang.draft import Draft, Placing, Slot, holds, price_of, slots_of
from makeway.planner.plan.gang.model import Model
from makeway.planner.plan.gang.price import NO_PRIORITY, Key, Price
from makeway.planner.snapshot.columns import Ints

MOST_STEPS: Final = 20_000
"""Steps of one search: some 100 ms."""

STEPS_A_CHUNK: Final = 25
"""Steps between two pauses: some 10 ms."""

MOST_SETS: Final = 48
"""Sets of victims that are looked at for the same members on one node."""

MOST_SET_STEPS: Final = 500
"""Steps in which these are looked for."""

MOST_COUNTS: Final = 64
"""Combinations of members that are looked at on one node."""

MOST_UNITS: Final = 4
"""Units of which all combinations are tried; of more, each by itself."""


@dataclass(frozen=True, slots=True)
class _Option:
    """Members on one node, by class, and the pods that go there. `cost`: their shifted priorities.

    `highest`: the highest of their priorities, `highest_victims`: how many of them have it.
    """

    members: tuple[int, ...]
    slots: tuple[Slot, ...]
    cost: int
    highest: int
    highest_victims: int

    @property
    def total(self) -> int:
        return sum(self.members)


Chosen = tuple[tuple[int, _Option], ...]
"""What is done on which nodes."""

_Branch = tuple[int, int, list[int], Chosen]
"""Place of the next node, members that are missing, those left of each class, and what is chosen."""


@dataclass(slots=True)
class _Best:
    """The best draft so far."""

    key: tuple[Key, tuple[int, ...]] | None
    draft: Draft | None


def rank_of(model: Model, draft: Draft, objective: tuple[GroupTerm, ...]) -> tuple[Key, tuple[int, ...]]:
    """Return what orders drafts: their price, and then the names of their nodes."""
    names = sorted(int(model.rank[node]) for (node, _), count in draft.members.items() for _ in range(count))
    return price_of(model, draft).key(objective), tuple(names)


def improve(
    model: Model,
    draft: Draft | None,
    nodes: tuple[int, ...],
    objective: tuple[GroupTerm, ...],
    *,
    most_steps: int = MOST_STEPS,
) -> Generator[None, None, Draft | None]:
    """Return a draft that is no worse, with other members and victims on some nodes; None without any.

    `draft`: holds already; None to look for a first one on these nodes alone.
    """
    best = _Best(None if draft is None else rank_of(model, draft, objective), draft)
    fixed = Draft() if draft is None else _without(model, draft, nodes)
    search = _Search(model, fixed, nodes, objective=objective, best=best, steps=most_steps)
    for units in _combinations(model, fixed, nodes):
        yield from search.with_units(units)
        if search.steps <= 0:
            break
    return best.draft


def improve_part(
    model: Model, draft: Draft, nodes: tuple[int, ...], objective: tuple[GroupTerm, ...], *, most_steps: int
) -> Generator[None, None, Draft]:
    """Return a draft that is no worse, after a search over some nodes as if there were no others.

    O(steps + victims). Not where rules tie nodes together.
    """
    if model.spreads or model.affinities or any(not rule.alone for rule in model.rooms):
        return draft
    fixed = _without(model, draft, nodes)
    counts = list(model.counts)
    for (_, cls), count in fixed.members.items():
        counts[cls] -= count
    debits, spare = dict(model.debits), dict(model.spare)
    if model.has_budgets or spare:
        for slot in fixed.singles:
            for key in model.snapshot.budgets.charged(int(model.budgets[slot])):
                debits[key] = debits.get(key, 0) + 1
            gang = int(model.gang[slot])
            if gang in spare:
                spare[gang] -= 1
    part = replace(
        model.within(np.array(nodes)),
        counts=tuple(counts),
        must=model.must - fixed.placed,
        debits=debits,
        spare={gang: left for gang, left in spare.items() if left >= 0},
    )
    yield
    inner = yield from improve(part, None, tuple(range(len(nodes))), objective, most_steps=most_steps)
    if inner is None:
        return draft
    merged = fixed.copy()
    merged.units |= inner.units
    merged.singles |= {(slot, nodes[node]) for slot, node in inner.singles}
    merged.members |= {(nodes[node], cls): count for (node, cls), count in inner.members.items()}
    better = rank_of(model, merged, objective) < rank_of(model, draft, objective)
    return merged if better and holds(model, merged) else draft


def _without(model: Model, draft: Draft, nodes: tuple[int, ...]) -> Draft:
    """Return a draft without what is on some nodes, and without units that have pods there."""
    there = set(nodes)
    touched = {int(unit) for unit in np.unique(model.unit[:, list(nodes)])}
    return Draft(
        {key: count for key, count in draft.members.items() if key[0] not in there},
        {slot for slot in draft.singles if slot[1] not in there},
        draft.units - touched,
    )


def _combinations(model: Model, fixed: Draft, nodes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield which units go besides those of the fixed part, none first."""
    there = model.unit[:, list(nodes)][model.removable[:, list(nodes)]]
    units = [int(unit) for unit in np.unique(there) if unit and unit not in fixed.units]
    yield ()
    for size in range(1, (len(units) if len(units) <= MOST_UNITS else 1) + 1):
        yield from combinations(units, size)


class _Search:
    """One search; `steps` are left of it."""

    def __init__(
        self,
        model: Model,
        fixed: Draft,
        nodes: tuple[int, ...],
        *,
        objective: tuple[GroupTerm, ...],
        best: _Best,
        steps: int,
    ) -> None:
        self.model = model
        self.steps = steps
        self._fixed = fixed
        self._nodes = nodes
        self._objective = objective
        self._counts_highest = "highestPriority" in objective[: _place(objective, "highestVictims")]
        self._best = best
        self._left = list(model.counts)
        for (_, cls), count in fixed.members.items():
            self._left[cls] -= count
        self._missing = model.must - fixed.placed

    def with_units(self, units: tuple[int, ...]) -> Generator[None, None, None]:
        """Look at all plans in which these units go, and no others on these nodes."""
        base = self._fixed.copy()
        base.units |= set(units)
        price = price_of(self.model, base)
        if self._is_worse(price):
            return
        options = []
        for node in self._nodes:
            options.append(self._options(node, base.units))
            yield
        # The nodes with the cheapest steps first: a good plan early cuts off more.
        order = sorted(
            range(len(options)), key=lambda at: min((o.cost / o.total for o in options[at]), default=0)
        )
        self._by_node = [options[at] for at in order]
        self._places = [self._nodes[at] for at in order]
        self._least = self._bounds()
        self._base, self._base_price = base, price
        yield from self._descend()

    def _bounds(self) -> list[list[int | None]]:
        """Return the least cost of 0, 1 … members on the nodes from each on; None where impossible."""
        last: list[int | None] = [0] + [None] * max(self._missing, 0)
        bounds = [last]
        for options in reversed(self._by_node):
            cheapest: dict[int, int] = {}
            for one in options:
                cheapest[one.total] = min(one.cost, cheapest.get(one.total, one.cost))
            row = list(bounds[0])
            for wanted in range(len(row)):
                for total, cost in cheapest.items():
                    rest = bounds[0][wanted - total] if total <= wanted else None
                    if rest is not None and (row[wanted] is None or rest + cost < row[wanted]):  # type: ignore[operator]
                        row[wanted] = rest + cost
            bounds.insert(0, row)
        return bounds

    def _descend(self) -> Generator[None, None, None]:
        """Look at what can be done on one node after the other, depth first; pause now and then."""
        stack: list[_Branch] = [(0, self._missing, self._left, ())]
        while stack and self.steps > 0:
            at, missing, left, chosen = stack.pop()
            self.steps -= 1
            if not self.steps % STEPS_A_CHUNK:
                yield
            if missing == 0:
                self._conclude(chosen)
                continue
            cost = self._base_price.priority_sum + sum(option.cost for _, option in chosen)
            highest = max((option.highest for _, option in chosen), default=NO_PRIORITY)
            highest = max(highest, self._base_price.highest)
            rest = self._least[at][missing] if at < len(self._by_node) else None
            if rest is None or self._is_worse(self._partial(chosen, cost + rest, highest)):
                continue
            stack.append((at + 1, missing, left, chosen))
            # The cheapest comes off the stack first.
            for option in reversed(self._by_node[at]):
                if option.total > missing or any(
                    asked > has for asked, has in zip(option.members, left, strict=True)
                ):
                    continue
                rest_of = [has - asked for asked, has in zip(option.members, left, strict=True)]
                stack.append((at + 1, missing - option.total, rest_of, (*chosen, (self._places[at], option))))

    def _partial(self, chosen: Chosen, cost: int, highest: int) -> Price:
        """Return a price that no plan with what is chosen so far is below."""
        model = self.model
        slots = [slot for _, option in chosen for slot in option.slots]
        if not slots:
            return replace(self._base_price, priority_sum=cost, highest=highest)
        if not self._has_more:
            base = self._base_price
            return replace(
                base,
                highest=highest,
                highest_victims=(base.highest_victims if base.highest == highest else 0)
                + sum(option.highest_victims for _, option in chosen if option.highest == highest),
                priority_sum=cost,
                victims=base.victims + len(slots),
            )
        draft = self._base.copy()
        draft.singles.update(slots)
        return replace(price_of(model, draft), priority_sum=cost, highest=highest)

    @property
    def _has_more(self) -> bool:
        """Report whether a plan's price is more than its victims' priorities."""
        return bool(self.model.spare) or bool(self.model.budgets.any())

    def _is_worse(self, price: Price) -> bool:
        """Report whether a price is above the best, whatever its victims' start.

        With more victims fewer may have the highest priority, since that is another one.
        """
        if not self._counts_highest:
            price = replace(price, highest_victims=0)
        return self._best.key is not None and price.key(self._objective)[:-1] > self._best.key[0][:-1]

    def _conclude(self, chosen: Chosen) -> None:
        draft = self._base.copy()
        for node, option in chosen:
            draft.singles.update(option.slots)
            for cls, count in enumerate(option.members):
                if count:
                    draft.members[node, cls] = count
        model = self.model
        key = rank_of(model, draft, self._objective)
        if self._best.key is not None and key >= self._best.key:
            return
        if holds(model, draft):
            self._best.key, self._best.draft = key, draft

    # ----------------------------------------------------------------------------------- options

    def _options(self, node: int, units: set[int]) -> list[_Option]:
        """Return what can be done on a node, with no pod more than needed, the cheapest a member first."""
        model = self.model
        placing = Placing(model)
        gone = list(slots_of(model, units))
        placing.remove(gone)
        here = [slot for slot, at in gone if at == node]
        room = model.room[:, node] + model.uses[:, here, node].sum(axis=1)
        alone = model.unit[:, node] == 0
        slots = np.flatnonzero(model.removable[:, node] & alone).tolist()
        slots.sort(key=lambda slot: (int(model.priority[slot, node]), -slot))
        found: list[_Option] = []
        for members in self._counts(node):
            lacks = self._lacks(node, members, room, placing)
            frees = [self._frees(slot, node) for slot in slots]
            for chosen in _covering(lacks, frees):
                these = tuple((slots[place], node) for place in chosen)
                cost = sum(model.cost(*slot) for slot in these)
                priorities = [int(model.priority[slot]) for slot in these]
                highest = max(priorities, default=NO_PRIORITY)
                found.append(_Option(members, these, cost, highest, priorities.count(highest)))
        found.sort(key=lambda one: (one.cost / one.total, -one.total))
        return found

    def _counts(self, node: int) -> Iterator[tuple[int, ...]]:
        """Yield which members could be on a node, as far as classes and numbers go; the fewest first."""
        allowed = self.model.allowed[:, node]
        most = [min(left, self._missing) if allowed[cls] else 0 for cls, left in enumerate(self._left)]
        ranks: list[tuple[int, ...]] = [()]
        for limit in most:
            ranks = [
                (*before, count)
                for before in ranks
                for count in range(min(limit, self._missing - sum(before)) + 1)
            ][: MOST_COUNTS * 16]
        wanted = sorted((one for one in ranks if sum(one)), key=lambda one: (sum(one), one))
        yield from wanted[:MOST_COUNTS]

    def _lacks(self, node: int, members: tuple[int, ...], room: Ints, placing: Placing) -> list[int]:
        """Return what is missing for some members on a node: of resources, and of rules of single nodes."""
        model = self.model
        asked = np.array(members) @ model.need
        lacks: list[int] = np.where(asked > 0, asked - room, 0).tolist()
        for number, rule in enumerate(model.rooms):
            if rule.alone:
                domain = int(rule.domains[node])
                lack = 0
                if domain >= 0 and members[rule.cls]:
                    taken = int(np.array(members) @ rule.take) - int(rule.take[rule.cls])
                    lack = rule.need + taken - int(placing.rooms[number][domain])
                lacks.append(lack)
        return [max(lack, 0) for lack in lacks]

    def _frees(self, slot: int, node: int) -> list[int]:
        """Return what a pod frees of the same."""
        model = self.model
        frees: list[int] = model.uses[:, slot, node].tolist()
        frees += [int(rule.use[slot, node]) for rule in model.rooms if rule.alone]
        return frees


def _place(objective: tuple[GroupTerm, ...], term: GroupTerm) -> int:
    """Return the place of a term, or the end where there is none."""
    return objective.index(term) if term in objective else len(objective)


def _covering(lacks: list[int], frees: list[list[int]]) -> Iterable[tuple[int, ...]]:
    """Return sets of pods that free what is missing, none of which could be spared, within bounds.

    `frees`: of each pod, least important first.
    """
    needed = [place for place, lack in enumerate(lacks) if lack > 0]
    if not needed:
        return [()]
    # What all pods from each on free together: a set that cannot reach is left early.
    totals: list[list[int]] = [[0] * len(needed)]
    for one in reversed(frees):
        totals.insert(0, [one[place] + rest for place, rest in zip(needed, totals[0], strict=True)])
    found: list[tuple[int, ...]] = []
    steps = MOST_SET_STEPS
    stack: list[tuple[int, tuple[int, ...], list[int]]] = [(0, (), [lacks[place] for place in needed])]
    while stack and steps > 0 and len(found) < MOST_SETS:
        at, chosen, left = stack.pop()
        steps -= 1
        if all(lack <= 0 for lack in left):
            if all(
                any(lack + frees[pod][place] > 0 for lack, place in zip(left, needed, strict=True))
                for pod in chosen
            ):
                found.append(chosen)
            continue
        if at == len(frees) or any(lack > free for lack, free in zip(left, totals[at], strict=True)):
            continue
        stack.append((at + 1, chosen, left))
        helps = [frees[at][place] for place in needed]
        if any(free > 0 and lack > 0 for free, lack in zip(helps, left, strict=True)):
            stack.append(
                (at + 1, (*chosen, at), [lack - free for lack, free in zip(left, helps, strict=True)])
            )
    return found
