"""What pods that go add to the price of a plan: one complex number each, so that prices are sums of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from makeway.core.policy.document import GroupTerm
from makeway.planner.plan.gang.model import Model
from makeway.planner.plan.price import SHIFT, weights_of
from makeway.planner.snapshot.columns import Ints

Costs = np.ndarray[tuple[int, ...], np.dtype[np.complex128]]

NEVER: Final = np.complex128(complex(np.inf, 0))
"""What costs more than any plan."""


@dataclass(frozen=True, slots=True)
class Pricing:
    """Of plans with no victim above a level. `weights`: of terms; `grain`: of sums of priorities."""

    model: Model
    level: int
    weights: Mapping[GroupTerm, complex]
    grain: int

    @classmethod
    def of(
        cls, model: Model, level: int, *, victims: int, groups: int, most: int, lost: int, grain: int = 1
    ) -> Self:
        """Return prices in which no term outweighs one before it.

        `victims`, `groups`: how many go at the most; `most`, `lost`: what one of the victims adds to the sum
        of priorities, and to the lost work.
        """
        below = {
            "budgets": victims + 1,
            "groups": groups + 1,
            "lostWork": (victims + 1) * lost + 1,
            "highestVictims": victims + 1,
            "prioritySum": (victims + 1) * (max(1, most) // grain),
            "victims": victims + 1,
        }
        return cls(model, level, weights_of(model.objective, below), grain)

    def price(self, terms: Mapping[GroupTerm, int]) -> complex:
        """Return a price as one number, real part first. `terms`: by name; those left out are 0."""
        scaled: dict[GroupTerm, int] = dict(terms)
        if "prioritySum" in scaled:
            scaled["prioritySum"] //= self.grain
        return sum((weight * scaled.get(term, 0) for term, weight in self.weights.items()), 0j)

    def pods(self, slots: Ints | slice, nodes: Ints | slice | int) -> Costs:
        """Return what each of some pods adds by going alone, without budgets and groups."""
        priorities, weight = self.model.priority[slots, nodes], self.weights.get
        found = np.full(priorities.shape, weight("victims", 0j), np.complex128)
        if "lostWork" in self.weights:
            found += self.weights["lostWork"] * self.model.lost[slots, nodes]
        found += weight("highestVictims", 0j) * (priorities == self.level)
        found += weight("prioritySum", 0j) * ((priorities + SHIFT) // self.grain)
        return found
