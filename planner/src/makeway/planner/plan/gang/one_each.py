"""The cheapest plan where no node takes two members: they take whole nodes, or all devices of one.

What a plan costs is then the sum over its nodes, and a node costs no less than the pods without which no
member has room there, whatever rules ask besides. Where some nodes cost least by every term, a member goes to
each of them and no search need follow.
"""

from __future__ import annotations

import numpy as np

from makeway.core.k8s.importance import NOT_STARTED
from makeway.core.policy.document import GroupTerm
from makeway.planner.plan.gang.draft import Draft, holds, price_of
from makeway.planner.plan.gang.model import Model
from makeway.planner.plan.price import NO_PRIORITY, SHIFT
from makeway.planner.snapshot.columns import Flags, Ints


def one_each(model: Model, nodes: tuple[int, ...], objective: tuple[GroupTerm, ...]) -> Draft | None:
    """Return a plan than which none is cheaper, one member on each of its nodes; None where none is known.

    `nodes`: on which a member has room with all gone that may go. O(resources · slots · nodes).
    """
    if len(model.counts) > 1 or len(nodes) < model.must:
        return None
    at, asked = np.array(nodes, np.int64), np.flatnonzero(model.need[0] > 0)
    need = model.need[0][asked, None]
    left = model.emptied(model.removable)[np.ix_(asked, at)] - need
    if not asked.size or (left >= need).all(axis=0).any():
        return None
    part = model.within(at)
    needed = part.removable & (part.uses[asked] > left[:, None]).any(axis=0)
    if (part.emptied(needed)[asked] < need).any() or part.unit[part.removable].any():
        return None
    costs = _costs(part, needed)
    order = np.lexsort((part.rank, *costs[::-1]))
    chosen, others = order[: model.must], order[model.must :]
    if not _dominate(costs, chosen, others, objective):
        return None
    slots, places = np.nonzero(needed[:, chosen])
    places_of = at[chosen].tolist()
    singles = {(slot, places_of[place]) for slot, place in zip(slots.tolist(), places.tolist(), strict=True)}
    draft = Draft(dict.fromkeys(((node, 0) for node in places_of), 1), singles)
    price = price_of(model, draft)
    return draft if not price.violations and not price.broken and holds(model, draft) else None


_Costs = tuple[Ints, Ints, Ints, Ints, Ints, Ints]
"""Of each node: the highest priority of its pods that go, what they lose of their work, how many have that
priority, the sum of their shifted priorities, how many go, and when the first of those of that priority
started, negative. int64[N]."""


def _costs(model: Model, needed: Flags) -> _Costs:
    highest = np.where(needed, model.priority, NO_PRIORITY).max(axis=0, initial=NO_PRIORITY)
    as_high = needed & (model.priority == highest)
    return (
        highest,
        np.where(needed, model.lost, 0).sum(axis=0),
        as_high.sum(axis=0),
        np.where(needed, model.priority + SHIFT, 0).sum(axis=0),
        needed.sum(axis=0),
        -np.where(as_high, model.start, NOT_STARTED).min(axis=0, initial=NOT_STARTED),
    )


def _dominate(costs: _Costs, chosen: Ints, others: Ints, objective: tuple[GroupTerm, ...]) -> bool:
    """Report whether none of the others costs less by any term than one that is chosen.

    How many have the highest priority, and when they started, is compared among nodes with the same one: so
    others may have a higher one only where that counts first.
    """
    highest, lost, as_high, total, count, start = costs
    if not others.size:
        return True
    top = highest[chosen].max()
    alike = others[highest[others] == top]
    if (highest[others] < top).any() or (alike.size < others.size and not highest_comes_first(objective)):
        return False
    topmost = chosen[highest[chosen] == top]
    pairs = (
        (lost, others, chosen),
        (total, others, chosen),
        (count, others, chosen),
        (as_high, alike, topmost),
        (start, alike, topmost),
    )
    return all(not who.size or bool(term[who].min() >= term[of].max()) for term, who, of in pairs)


def highest_comes_first(objective: tuple[GroupTerm, ...]) -> bool:
    """Report whether the highest priority of a victim counts, and before how many have it."""
    before = objective[: objective.index("highestVictims")] if "highestVictims" in objective else objective
    return "highestPriority" in before
