"""What a plan for a group costs, term by term, and in which order the terms count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from makeway.core import comparison
from makeway.core.k8s.importance import NOT_STARTED
from makeway.core.policy.document import GroupTerm

NO_PRIORITY: Final = -(2**40)
"""The highest priority of no victims: below every pod's."""

SHIFT: Final = comparison.PRIORITY_SHIFT
"""Added to each priority in sums, as kube-scheduler does, so that each victim more costs more."""

Key = tuple[int, ...]
"""A price as it is compared: the less, the better."""


@dataclass(frozen=True, slots=True)
class Price:
    """The terms of `groups.objective`, and what decides between plans that are alike in all of them.

    `violations`: pods whose eviction violates a budget. `highest`: the highest priority of a victim.
    `broken`: groups that lose a unit or fall below their minCount. `highest_victims`: how many victims have
    the highest priority. `priority_sum`: over the victims, each shifted by SHIFT. `start`: when the longest
    running victim of highest priority started, in microseconds; the later the better.
    """

    violations: int = 0
    highest: int = NO_PRIORITY
    broken: int = 0
    highest_victims: int = 0
    priority_sum: int = 0
    victims: int = 0
    start: int = NOT_STARTED

    def key(self, objective: tuple[GroupTerm, ...]) -> Key:
        """Return the terms in the order of the objective; those that it leaves out do not count."""
        terms = {
            "budgets": self.violations,
            "highestPriority": self.highest,
            "groups": self.broken,
            "highestVictims": self.highest_victims,
            "prioritySum": self.priority_sum,
            "victims": self.victims,
        }
        return (*(terms[term] for term in objective), -self.start)
