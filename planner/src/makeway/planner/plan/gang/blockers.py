"""Pods that keep a domain closed to members by anti-affinity, wherever in the domain they run.

Not only those on the members' own nodes have to go then. The nodes of a class are sorted by the domains that
are closed to it there, of all rules together; what keeps these closed is one set of pods. With such a set
gone, or several, the same question is solved on what is left, and the cheapest plan of all counts.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from makeway.bus.messages import ClosedDomain
from makeway.core.policy.document import GroupTerm
from makeway.planner.plan.gang.draft import Draft, Slot, gone, holds, places_of, price_of, trimmed, victims_of
from makeway.planner.plan.gang.model import Model, RoomRule
from makeway.planner.plan.gang.search import rank_of
from makeway.planner.plan.gang.solving import solve
from makeway.planner.snapshot.columns import Flags

MOST_SETS: Final = 64
"""Sets of blockers by themselves, the cheapest of all, and so many of several of them together."""

Objective = tuple[GroupTerm, ...]


def with_blockers(
    model: Model, draft: Draft | None, objective: Objective
) -> Generator[None, None, Draft | None]:
    """Return a plan that costs less than a draft, or any without one, with blockers gone; else None.

    As many solutions as there are sets of blockers that cost less, at most 2 · MOST_SETS.
    """
    most = model.snapshot.exemptions.policy.cross_node.most_victims
    if not most or (draft is not None and not draft.singles and not draft.units):
        return None
    best, found = draft, None
    for base in list(_together(blockers(model, objective), most + model.must * model.removable.shape[0])):
        if best is not None and price_of(model, base).key(objective) >= price_of(model, best).key(objective):
            continue
        yield
        whole = (yield from solve(narrowed(model, base), base, objective)).draft
        if whole is None:
            continue
        whole = trimmed(model, _of_members(model, whole), Draft())
        yield
        if len(closed_by(model, whole)) > most or not holds(model, whole):
            continue
        if best is None or rank_of(model, whole, objective) < rank_of(model, best, objective):
            best = found = whole
    return found


def blockers(model: Model, objective: Objective) -> list[Draft]:
    """Return the sets of pods that keep nodes closed to a class, cheapest first, at most MOST_SETS.

    A set of which a pod may not go is left out. O(rules · slots · nodes).
    """
    sets: dict[tuple[frozenset[Slot], frozenset[int]], Draft] = {}
    for cls in range(len(model.counts)):
        rules = [(at, rule) for at, rule in enumerate(model.rooms) if rule.cls == cls and rule.closes]
        nodes = np.flatnonzero(model.allowed[cls])
        if not rules or not nodes.size:
            continue
        closed = np.array([np.where(_is_closed(rule), rule.domains, -1)[nodes] for _, rule in rules])
        for domains in np.unique(closed, axis=1).T.tolist():
            base = _opening(
                model, [(rule, at) for (_, rule), at in zip(rules, domains, strict=True) if at >= 0]
            )
            if base is not None and (base.singles or base.units):
                sets.setdefault((frozenset(base.singles), frozenset(base.units)), base)
    ordered = sorted(
        sets.values(),
        key=lambda one: (price_of(model, one).key(objective), sorted(one.singles), sorted(one.units)),
    )
    return [one for one in ordered if victims_of(model, one) <= model.most_victims][:MOST_SETS]


def narrowed(model: Model, base: Draft) -> Model:
    """Return a model without the nodes that stay closed to a class though a base's pods and its own go.

    O(rules · slots · nodes).
    """
    slots, nodes = places_of(gone(model, base))
    removable, allowed = model.removable.copy(), model.allowed.copy()
    removable[slots, nodes] = False
    for rule in model.rooms:
        if rule.closes:
            room = rule.room.copy()
            inside = rule.domains[nodes] >= 0
            np.add.at(room, rule.domains[nodes][inside], rule.use[slots, nodes][inside])
            own = np.where(removable, rule.use, 0).sum(axis=0)
            allowed[rule.cls] &= (rule.domains < 0) | (room[rule.domains] + own >= rule.need)
    return replace(model, allowed=allowed)


def closed_by(model: Model, draft: Draft) -> dict[Slot, ClosedDomain]:
    """Return, of victims by themselves on nodes that no member comes to, which domain they keep closed.

    One to which a member comes; none of a pod that keeps none closed. O(rules · victims).
    """
    members = {node for (node, _), count in draft.members.items() if count}
    beside = [slot for slot in draft.singles if slot[1] not in members]
    found: dict[Slot, ClosedDomain] = {}
    for rule in model.rooms if beside else ():
        if not rule.closes or rule.closing is None:
            continue
        wanted = {
            int(rule.domains[node])
            for (node, cls), count in draft.members.items()
            if count and cls == rule.cls
        }
        for slot in beside:
            if rule.use[slot] > 0 and rule.domains[slot[1]] >= 0 and int(rule.domains[slot[1]]) in wanted:
                node = model.snapshot.nodes.get(model.names[slot[1]])
                if node is not None and rule.key in node.labels:
                    closed = ClosedDomain(rule=rule.closing, key=rule.key, value=node.labels[rule.key])
                    found.setdefault(slot, closed)
    return found


def _of_members(model: Model, draft: Draft) -> Draft:
    """Return a draft without pods that neither run beside a member nor keep its domain closed."""
    members = {node for (node, _), count in draft.members.items() if count}
    closed = closed_by(model, draft)
    return Draft(
        draft.members, {one for one in draft.singles if one[1] in members or one in closed}, draft.units
    )


def _together(sets: list[Draft], most: int) -> Iterator[Draft]:
    """Yield each set by itself, and then the cheapest two, three and so on together."""
    yield from sets
    union = Draft()
    for turn, one in enumerate(sets):
        union = Draft({}, union.singles | one.singles, union.units | one.units)
        if len(union.singles) > most:
            return
        if turn:
            yield union


def _opening(model: Model, closed: list[tuple[RoomRule, int]]) -> Draft | None:
    """Return what goes for some closed domains to open; None where a pod of them may not go."""
    base = Draft()
    for rule, domain in closed:
        held: Flags = (rule.use > 0) & (rule.domains == domain) & model.removable
        if rule.room[domain] + rule.use[held].sum() < rule.need:
            return None
        for slot, node in np.argwhere(held).tolist():
            if unit := int(model.unit[slot, node]):
                base.units.add(unit)
            else:
                base.singles.add((slot, node))
    return base


def _is_closed(rule: RoomRule) -> Flags:
    """Return bool[N], nodes of domains to which no member of the rule's class may come now."""
    return np.asarray((rule.domains >= 0) & (rule.room[rule.domains] < rule.need))
