"""Ways to keep the required affinity of members: which pods stay for it, or which domain they begin in.

Each is the same question with fewer nodes for some classes, and with another rule where all pods that they
could be near go first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from makeway.planner.plan.gang.levels import least_levels
from makeway.planner.plan.gang.model import AffinityRule, Model, RoomRule
from makeway.planner.snapshot.columns import MOST, Flags

MOST_WAYS: Final = 16
"""Ways that are tried: of more, those in which victims of the least priority would do."""

NEAR: Final = "required pod affinity"


@dataclass(frozen=True, slots=True)
class Way:
    """`level`: no plan of it has all its victims below this priority, by a bound."""

    model: Model
    level: int = -MOST


def ways_of(model: Model) -> list[Way]:
    """Return ways to keep required affinity, those of low levels first; the model itself where none is asked.

    O(slots · nodes · log priorities) for each set of classes that ask for the same.
    """
    ways = [Way(model)]
    for rules in _alike(model.affinities):
        ways = [one for way in ways for one in _ways(way, rules)] or ways
        ways = sorted(ways, key=lambda one: one.level)[:MOST_WAYS]
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
        yield Way(_only(model, rules, near), way.level)
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
    values, domain_of = np.unique(rule.domains[:, inside], axis=1, return_inverse=True)
    domains = np.full(model.nodes, -1, np.int64)
    domains[inside] = domain_of.ravel()
    levels = least_levels(model, [one.cls for one in rules], domains, values.shape[1])
    for domain in np.argsort(levels, kind="stable").tolist()[:MOST_WAYS]:
        if levels[domain] < MOST:
            yield Way(_only(model, rules, np.asarray(domains == domain)), max(way.level, int(levels[domain])))


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
