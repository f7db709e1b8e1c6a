"""The domains of a group's topology constraints: which there are, in which order they are priced and told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from typing import Final

import numpy as np

from makeway.core.policy.document import GroupTerm
from makeway.planner.plan.gang.levels import least_levels
from makeway.planner.plan.gang.model import Model
from makeway.planner.plan.gang.question import GangQuestion
from makeway.planner.plan.price import Key, Price
from makeway.planner.plan.result import GangDomain
from makeway.planner.snapshot.columns import MOST

MOST_DOMAINS: Final = 64
"""Domains that are priced; of more, those with most room."""

Part = tuple[int, tuple[tuple[str, str], ...], Model]
"""The least level of victims, key and value of each topology constraint, and the nodes that have them."""


def parts_of(model: Model, gang: GangQuestion) -> Generator[None, None, list[Part]]:
    """Return the model of each domain in which all members could be; all of it without such a constraint.

    Those come first in which pods of lower priority would do, and of these those with most room for each
    member.
    """
    if not gang.topology:
        return [(-MOST, (), model)]
    snapshot = model.snapshot
    nodes: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, name in enumerate(model.names):
        if (node := snapshot.nodes.get(name)) is not None:
            held = node.labels
            if all(key in held for key in gang.topology):
                nodes[tuple(held[key] for key in gang.topology)].append(place)
    for placement in gang.placed:
        there = snapshot.nodes.get(placement.node)
        if there is not None:
            mine = tuple(there.labels.get(key, "") for key in gang.topology)
            nodes = defaultdict(list, {mine: nodes.get(mine, [])})
    emptied, usable = model.emptied(), np.asarray(model.allowed.any(axis=0))
    share = np.min(emptied / np.maximum(model.need[0], 1)[:, None], axis=0, initial=float(model.must))
    share = np.where(usable, share, 0)
    # There are nodes of other domains as well, where pods keep them closed.
    those = (values for values, places in nodes.items() if usable[places].any())
    chosen = sorted(those, key=lambda values: (-float(share[nodes[values]].sum()), values))[:MOST_DOMAINS]
    yield
    domains = np.full(model.nodes, -1, np.int64)
    for number, values in enumerate(chosen):
        domains[nodes[values]] = number
    levels = yield from least_levels(model, list(range(len(model.counts))), domains, len(chosen))
    parts: list[Part] = []
    for level, values in zip(levels.tolist(), chosen, strict=True):
        part = model.within(np.array(nodes[values]))
        parts.append((level, tuple(zip(gang.topology, values, strict=True)), part))
        yield
    return sorted(parts, key=lambda one: one[0])


def cannot_beat(model: Model, level: int, price: Price) -> bool:
    """Report whether no plan with a victim of at least a level costs less than a price."""
    if not price.victims:
        return True
    return set(model.before_highest) <= {"budgets"} and not price.violations and price.highest < level


def in_order(
    priced: list[GangDomain], gang: GangQuestion, objective: tuple[GroupTerm, ...]
) -> tuple[GangDomain, ...]:
    """Return the domains that were looked at, those first that cost least, then those with most room."""
    if not gang.topology:
        return ()

    def place(one: GangDomain) -> tuple[bool, Key]:
        return one.price is None, (-one.placeable,) if one.price is None else one.price.key(objective)

    return tuple(sorted(priced, key=place))
