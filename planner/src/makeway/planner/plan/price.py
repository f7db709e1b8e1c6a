"""What a plan for a group costs, term by term, and in which order the terms count."""

from __future__ import annotations

from collections.abc import Mapping
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
    `lost_work`: in thousandths of seconds of a member, 0 where the objective does not name it.
    """

    violations: int = 0
    highest: int = NO_PRIORITY
    broken: int = 0
    highest_victims: int = 0
    priority_sum: int = 0
    victims: int = 0
    start: int = NOT_STARTED
    lost_work: int = 0

    def key(self, objective: tuple[GroupTerm, ...]) -> Key:
        """Return the terms in the order of the objective; those that it leaves out do not count."""
        terms = self.terms()
        return (*(terms[term] for term in objective), -self.start)

    def terms(self) -> dict[GroupTerm, int]:
        """Return the terms by name."""
        return {
            "budgets": self.violations,
            "highestPriority": self.highest,
            "groups": self.broken,
            "lostWork": self.lost_work,
            "highestVictims": self.highest_victims,
            "prioritySum": self.priority_sum,
            "victims": self.victims,
        }


EXACT: Final = 2**52
"""Below it every whole number is exact in each part of a complex number."""


def weights_of(objective: tuple[GroupTerm, ...], most: Mapping[str, int]) -> dict[GroupTerm, complex]:
    """Return by what each term counts in one complex number that orders as they do, one after the other.

    numpy orders complex numbers by their real part and then by the other one, so that a sum of them is a sum
    of prices. `most`: what each term is below; one that is missing there adds nothing. Terms at the end for
    which there is no place are left out.
    """
    terms = [term for term in objective if term in most]
    while terms:
        found: dict[GroupTerm, complex] = {}
        part, scale = 1j, 1
        for term in reversed(terms):
            if scale * most[term] > EXACT and part == 1j:
                part, scale = 1 + 0j, 1
            found[term] = part * scale
            scale *= most[term]
        if scale <= EXACT:
            return {term: found[term] for term in terms}
        terms.pop()
    return {}
