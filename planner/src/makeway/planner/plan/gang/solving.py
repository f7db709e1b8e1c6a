"""The best places for a group's members in one model, and who has to go for them, with some who go already.

The border of the solver: whoever knows why some pods have to go beside those that members' nodes need (units,
pods that a rule counts elsewhere) hands them in as a base, and takes the cheapest of what comes of each.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

import numpy as np

from makeway.core.policy.document import GroupTerm
from makeway.planner.plan.gang.domains import cannot_beat
from makeway.planner.plan.gang.draft import Draft, holds, places_of, price_of, slots_of, trimmed
from makeway.planner.plan.gang.levels import fewest_victims, fillings, most_alone
from makeway.planner.plan.gang.model import Model
from makeway.planner.plan.gang.one_each import highest_comes_first, one_each
from makeway.planner.plan.gang.search import improve, rank_of
from makeway.planner.plan.gang.ways import ways_of
from makeway.planner.plan.gang.work import Work
from makeway.planner.plan.price import SHIFT, Price
from makeway.planner.snapshot.columns import MOST, Ints

SEARCHED: Final = 48
"""Nodes with room up to which a search looks at all of them."""

SEARCHED_PART: Final = 12
"""Nodes of a larger plan that a search looks at: those where it costs most, and as many that come next."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What came of a question without a search.

    `best`: the best draft, the model that it is of, and nodes that come next; None where there is none, and
    then `missing` members. `searched`: the models to search, none where that would find nothing better.
    `nodes`: those with room. `low`: no plan has all its victims below this priority.
    """

    model: Model
    base: Draft
    best: tuple[Draft, Model, tuple[int, ...]] | None
    missing: int
    searched: tuple[Model, ...] = ()
    nodes: tuple[int, ...] = ()
    low: int = MOST

    @property
    def draft(self) -> Draft | None:
        """The best draft."""
        return None if self.best is None else self.best[0]


@dataclass(frozen=True, slots=True)
class Solved:
    """`draft`: the best that was found, None where none was, and then `missing` members at the least."""

    draft: Draft | None
    missing: int = 0


def solve(
    model: Model, base: Draft, objective: tuple[GroupTerm, ...], work: Work
) -> Generator[None, None, Solved]:
    """Return the cheapest draft that was found in which the victims of a base go.

    `base`: pods and units that go whatever else does, without members. `work`: how much is searched; a first
    draft is made whatever is left of it. Pauses now and then. O(slots · nodes · members of a node) to begin
    with.
    """
    return (yield from bettering((yield from beginning(model, base, objective, work)), objective, work))


def beginning(
    model: Model, base: Draft, objective: tuple[GroupTerm, ...], work: Work
) -> Generator[None, None, Beginning]:
    """Return the cheapest first draft. As `solve`."""
    each = most_alone(model)
    nodes = tuple(np.flatnonzero(each.any(axis=0)).tolist())
    if not base.singles and not base.units and (cheapest := one_each(model, nodes, objective)) is not None:
        return Beginning(model, base, (cheapest, model, ()), 0)
    yield
    best: tuple[Draft, Model, tuple[int, ...]] | None = None
    missing, low = model.must, MOST
    ways = ways_of(model)
    searched: list[Model] = []
    for way in ways:
        if best is not None and cannot_beat(way.level, model, best[0], objective):
            continue
        first = yield from fillings(way.model, base, objective, work)
        low = min(low, first.low)
        if not first.out_of_question:
            searched.append(way.model)
        for filled in first.filled:
            missing = min(missing, 0 if filled.bounded else filled.missing)
            if filled.missing:
                continue
            draft = trimmed(way.model, filled.draft, base)
            yield
            if holds(way.model, draft) and (
                best is None or rank_of(model, draft, objective) < rank_of(model, best[0], objective)
            ):
                best = draft, way.model, filled.next_best
            yield
    if best is not None and searched:
        yield
        none_more = best[0].singles == base.singles and best[0].units == base.units
        if none_more or is_least(model, each, price_of(model, best[0]), objective):
            searched = []
        yield
    return Beginning(model, base, best, missing if best is None else 0, tuple(searched), nodes, low)


def bettering(
    first: Beginning, objective: tuple[GroupTerm, ...], work: Work
) -> Generator[None, None, Solved]:
    """Return what a search makes of a first draft, or finds without one."""
    model, base, best, nodes, searched = first.model, first.base, first.best, first.nodes, first.searched
    if not searched or work.left <= 0:
        return Solved(first.draft, first.missing)
    if len(nodes) <= SEARCHED or best is None:
        chosen, fixed = np.array(nodes[: SEARCHED * 2], np.int64), base
    else:
        draft, kept, next_best = best
        searched, chosen = (kept,), np.array(_part(model, draft, next_best), np.int64)
        fixed = _without(model, draft, base, chosen)
    found = yield from improve(searched, first.draft, fixed, chosen, objective, low=first.low, budget=work)
    return Solved(found, first.missing if found is None else 0)


def is_least(model: Model, each: Ints, price: Price, objective: tuple[GroupTerm, ...]) -> bool:
    """Report whether it is certain that no draft of a model costs less than a price by any term.

    None does than one with as few victims as any, all of the least priority. `each`: as of `most_alone`.
    """
    if (
        price.violations
        or price.broken
        or price.lost_work
        or not highest_comes_first(objective)
        or not model.removable.any()
    ):
        return False
    least = int(np.where(model.removable, model.priority, MOST).min())
    alike = price.highest == least and price.victims == price.highest_victims
    return alike and price.victims <= fewest_victims(model, each)


def _part(model: Model, draft: Draft, next_best: tuple[int, ...]) -> list[int]:
    used = {node for (node, _), count in draft.members.items() if count}
    more = [node for node in next_best if node not in used][:SEARCHED_PART]
    return sorted({*_dearest(model, draft)[:SEARCHED_PART], *more})


def _without(model: Model, draft: Draft, base: Draft, nodes: Ints) -> Draft:
    """Return a draft without what is on some nodes, and without units that make room on these alone."""
    there = set(nodes.tolist())
    kept = {node for (node, _), count in draft.members.items() if count and node not in there}
    units = {
        unit
        for unit in draft.units
        if unit in base.units or any(node in kept for _, node in slots_of(model, (unit,)))
    }
    return Draft(
        {key: count for key, count in draft.members.items() if key[0] not in there},
        {slot for slot in draft.singles if slot[1] not in there} | base.singles,
        units,
    )


def _dearest(model: Model, draft: Draft) -> list[int]:
    """Return the nodes of a draft on which pods go, those first where most goes for a member.

    Pods of the highest priority count most.
    """
    slots, nodes = places_of(draft.singles)
    priorities = model.priority[slots, nodes]
    cost, highest, members = (np.zeros(model.nodes, np.int64) for _ in range(3))
    np.add.at(cost, nodes, priorities + SHIFT)
    np.add.at(highest, nodes, priorities == priorities.max(initial=-MOST))
    for (node, _), count in draft.members.items():
        members[node] += count
    each = np.maximum(members, 1)
    order = np.lexsort((model.rank, -cost / each, -highest / each))
    return [node for node in order.tolist() if cost[node] and members[node]]
