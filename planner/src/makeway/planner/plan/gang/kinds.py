"""Classes of members that nothing tells apart, as one: a search has far fewer combinations to look at then.

Members of two templates with other names or labels are often alike in all that a plan looks at.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from makeway.planner.plan.gang.draft import Draft
from makeway.planner.plan.gang.model import AffinityRule, Model, RoomRule, SpreadRule

_Rule = TypeVar("_Rule", RoomRule, SpreadRule, AffinityRule)


@dataclass(frozen=True, slots=True)
class Kinds:
    """`model`: the question with one class for each kind. `of`: the classes of each kind, as they were."""

    model: Model
    of: tuple[tuple[int, ...], ...]

    def apart(self, counts: tuple[int, ...], draft: Draft) -> Draft:
        """Return a draft by the classes as they were. `counts`: how many members of each wait."""
        members: dict[tuple[int, int], int] = {}
        left = list(counts)
        for (node, kind), count in sorted(draft.members.items()):
            still = count
            for cls in self.of[kind]:
                if come := min(still, left[cls]):
                    members[node, cls] = come
                    left[cls] -= come
                    still -= come
        return Draft(members, draft.singles, draft.units)


def kinds_of(model: Model) -> Kinds:
    """Put classes that are alike together. O(slots · nodes · rules) for each that needs what another does."""
    of: list[tuple[int, ...]] = []
    for cls in range(len(model.counts)):
        at = next((at for at, kind in enumerate(of) if _alike(model, kind[0], cls)), len(of))
        of[at : at + 1] = [(*(of[at] if at < len(of) else ()), cls)]
    first = [kind[0] for kind in of]
    if len(first) < len(model.counts):
        model = replace(
            model,
            need=model.need[first],
            allowed=model.allowed[first],
            counts=tuple(sum(model.counts[cls] for cls in kind) for kind in of),
            rooms=_of_kinds(model.rooms, first),
            spreads=_of_kinds(model.spreads, first),
            affinities=_of_kinds(model.affinities, first),
        )
    return Kinds(model, tuple(of))


def _of_kinds(rules: tuple[_Rule, ...], first: list[int]) -> tuple[_Rule, ...]:
    """Return the rules of the first class of each kind."""
    return tuple(
        replace(rule, cls=first.index(rule.cls), take=rule.take[first]) for rule in rules if rule.cls in first
    )


def _alike(model: Model, one: int, other: int) -> bool:
    """Report whether members of two classes can be put in each other's places."""
    rules: list[RoomRule | SpreadRule | AffinityRule]
    rules = [*model.rooms, *model.spreads, *model.affinities]
    if not all(np.array_equal(of_class[one], of_class[other]) for of_class in (model.need, model.allowed)):
        return False
    if any(rule.take[one] != rule.take[other] for rule in rules):
        return False
    mine, others = ([rule for rule in rules if rule.cls == cls] for cls in (one, other))
    return len(mine) == len(others) and all(map(_same, mine, others))


def _same(one: Any, other: Any) -> bool:
    """Report whether two rules of other classes, or parts of them, are the same."""
    if isinstance(one, RoomRule | SpreadRule | AffinityRule):
        names = [field.name for field in fields(one) if field.name != "cls"]
        return type(one) is type(other) and all(_same(getattr(one, of), getattr(other, of)) for of in names)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)
