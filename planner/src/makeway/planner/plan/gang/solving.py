"""The best places for a group's members in one model, and who has to go for them, with some who go already.

The border of the solver: whoever knows why some pods have to go beside those that members' nodes need (units,
pods that a rule counts elsewhere) hands them in as a base, and takes the cheapest of what comes of each.

Required affinity of members may be kept in several ways: which pods stay for it, or which domain they begin
in. Each is the same question with fewer nodes for some classes, and with another rule where all pods that
they could be near go first.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from makeway.core.queues.victims import run_to_end
from makeway.planner.plan.gang.domains import cannot_beat
from makeway.planner.plan.gang.draft import Draft, holds, places_of, price_of, slots_of, trimmed
from makeway.planner.plan.gang.levels import fewest_victims, fillings, least_levels, most_alone
from makeway.planner.plan.gang.model import AffinityRule, Model, RoomRule, Work
from makeway.planner.plan.gang.search import improve, rank_of
from makeway.planner.plan.price import SHIFT, Price
from makeway.planner.snapshot.columns import MOST, Flags, Ints

SEARCHED: Final = 48
"""Nodes with room up to which a search looks at all of them."""

SEARCHED_PART: Final = 12
"""Nodes of a larger plan that a search looks at: those where it costs most, and as many that come next."""


MOST_WAYS: Final = 16
"""Ways that are tried: of more, those in which victims of the least priority would do."""

NEAR: Final = "required pod affinity"


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
    searched: tuple[Model, ...]
    nodes: tuple[int, ...]
    low: int

    @property
    def draft(self) -> Draft | None:
        """The best draft."""
        return None if self.best is None else self.best[0]


def beginning(model: Model, base: Draft, work: Work) -> Generator[None, None, Beginning]:
    """Return the cheapest first draft in which the victims of a base go, and what a search needs to know.

    `base`: pods and units that go whatever else does, without members. `work`: how much is searched; a first
    draft is made whatever is left of it. Pauses now and then. O(slots · nodes · members of a node).
    """
    each = most_alone(model)
    nodes = tuple(np.flatnonzero(each.any(axis=0)).tolist())
    yield
    best: tuple[Draft, Model, tuple[int, ...]] | None = None
    missing, low = model.must, MOST
    ways = ways_of(model)
    searched: list[Model] = []
    for way in ways:
        if best is not None and (way.late or cannot_beat(model, way.level, price_of(model, best[0]))):
            continue
        alone = each if way.model is model else most_alone(way.model)
        first, at_least = yield from fillings(way.model, base, alone, work)
        low = min(low, at_least)
        if at_least < MOST and not way.late:
            searched.append(way.model)
        for filled in first:
            missing = min(missing, 0 if filled.bounded else filled.missing)
            if filled.missing:
                continue
            draft = trimmed(way.model, filled.draft, base)
            yield
            if holds(way.model, draft) and (best is None or rank_of(model, draft) < rank_of(model, best[0])):
                best = draft, way.model, filled.next_best
            yield
    if best is not None and searched:
        yield
        none_more = best[0].singles == base.singles and best[0].units == base.units
        if none_more or is_least(model, each, price_of(model, best[0])):
            searched = []
        yield
    return Beginning(model, base, best, missing, tuple(searched), nodes, low)


def bettering(first: Beginning, work: Work) -> Generator[None, None, Draft | None]:
    """Return what a search makes of a first draft, or finds without one. Pauses now and then."""
    model, base, best, nodes, searched = first.model, first.base, first.best, first.nodes, first.searched
    if not searched or work.left <= 0:
        return first.draft
    if len(nodes) <= SEARCHED or best is None:
        chosen, fixed = np.array(nodes[: SEARCHED * 2], np.int64), base
    else:
        draft, kept, next_best = best
        searched, chosen = (kept,), np.array(_part(model, draft, next_best), np.int64)
        fixed = _without(model, draft, base, chosen)
    return (yield from improve(searched, first.draft, fixed, chosen, low=first.low, budget=work))


def is_least(model: Model, each: Ints, price: Price) -> bool:
    """Report whether it is certain that no draft of a model costs less than a price by any term.

    None does than one with as few victims as any, all of the least priority. `each`: as of `most_alone`.
    """
    if price.violations or price.broken or price.lost_work or not highest_comes_first(model):
        return False
    alike = model.removable & (model.priority == price.highest)
    lower = model.removable & (model.priority < price.highest)
    if price.victims > price.highest_victims or not alike.any() or lower.any():
        return False
    return price.victims <= fewest_victims(model, each)


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


@dataclass(frozen=True, slots=True)
class Way:
    """`level`: no plan of it has all its victims below this priority, by a bound.

    `late`: it is tried only where no plan came of those before.
    """

    model: Model
    level: int = -MOST
    late: bool = False


def ways_of(model: Model) -> list[Way]:
    """Return ways to keep required affinity, those of low levels first; the model itself where none is asked.

    O(slots · nodes · log priorities) for each set of classes that ask for the same.
    """
    ways = [Way(model)]
    for rules in _alike(model.affinities):
        ways = [one for way in ways for one in _ways(way, rules)] or ways
        ways = sorted(ways, key=lambda one: (one.late, one.level))[:MOST_WAYS]
    return ways


def _alike(rules: tuple[AffinityRule, ...]) -> Iterator[list[AffinityRule]]:
    """Yield rules of several classes together where they are about the same pods and domains."""
    left = list(rules)
    while left:
        first = left[0]
        alike = [
            one
            for one in left
            if np.array_equal(one.domains, first.domains) and np.array_equal(one.use, first.use)
        ]
        yield alike
        left = [one for one in left if not any(one is other for other in alike)]


def _ways(way: Way, rules: list[AffinityRule]) -> Iterator[Way]:
    model, rule = way.model, rules[0]
    inside = np.asarray((rule.domains >= 0).all(axis=0))
    there = [int(totals.sum()) for totals in rule.totals]
    if any(there):
        near = inside.copy()
        for totals, domains in zip(rule.totals, rule.domains, strict=True):
            near &= totals[domains] > 0
        yield replace(way, model=_only(model, rules, near))
        yield from (_with_one_left(one, rule) for one in _in_one_domain(way, rules, near))
        if not _may_begin_anew(model, rules, there):
            return
        counted = (rule.domains >= 0).any(axis=0)
        use = np.where(counted, rule.use, 0)
        domain, room = np.where(counted | inside, 0, -1), np.array([-int(use.sum())], np.int64)
        gone = [
            RoomRule(one.cls, NEAR, domain, room, np.zeros(1, np.int64), use, 0 * one.take, 0, alone=False)
            for one in rules
        ]
        kept = tuple(one for one in model.affinities if not any(one is other for other in rules))
        model = replace(model, affinities=kept, rooms=(*model.rooms, *gone))
    yield from _in_one_domain(replace(way, model=model), rules, inside)


def _in_one_domain(way: Way, rules: list[AffinityRule], nodes: Flags) -> Iterator[Way]:
    """Yield ways in which classes come to one domain, those of low levels first. `nodes`: they can use."""
    model, domains = way.model, np.full(way.model.nodes, -1, np.int64)
    values, domain_of = np.unique(rules[0].domains[:, nodes], axis=1, return_inverse=True)
    domains[nodes] = domain_of.ravel()
    levels = run_to_end(least_levels(model, [one.cls for one in rules], domains, values.shape[1]))
    for domain in np.argsort(levels, kind="stable").tolist()[:MOST_WAYS]:
        if levels[domain] < MOST:
            one = _only(model, rules, np.asarray(domains == domain))
            yield replace(way, model=one, level=max(way.level, int(levels[domain])))


def _with_one_left(way: Way, rule: AffinityRule) -> Way:
    """Return a way in which one pod stays that a class can be near: of the removable ones the last to go.

    For plans that need the room of nearly all such pods.
    """
    model = way.model
    slots, nodes = np.nonzero((rule.use > 0) & model.allowed[rule.cls])
    removable = model.removable.copy()
    if slots.size and removable[slots, nodes].all():
        last = np.lexsort((model.rank[nodes], slots, -model.priority[slots, nodes]))[0]
        removable[slots[last], nodes[last]] = False
    return replace(way, model=replace(model, removable=removable), late=True)


def _only(model: Model, rules: list[AffinityRule], nodes: Flags) -> Model:
    """Return a model in which classes can use some nodes alone."""
    allowed = model.allowed.copy()
    allowed[[one.cls for one in rules]] &= nodes
    return replace(model, allowed=allowed)


def _may_begin_anew(model: Model, rules: list[AffinityRule], there: list[int]) -> bool:
    """Report whether the first member can come where no pod is left that members could be near.

    All such pods are removable then, and no other class counts as one.
    """
    rule, classes = rules[0], [one.cls for one in rules]
    others = rule.take.sum() - rule.take[classes].sum()
    if others or not all(one.may_come.any() for one in rules):
        return False
    going = np.where(model.removable, rule.use, 0).sum(axis=0)
    return all(
        int(going[domains >= 0].sum()) == many for domains, many in zip(rule.domains, there, strict=True)
    )


def highest_comes_first(model: Model) -> bool:
    """Report whether the highest priority of a victim counts, and before how many have it."""
    return "highestPriority" in model.objective and "highestVictims" not in model.before_highest
