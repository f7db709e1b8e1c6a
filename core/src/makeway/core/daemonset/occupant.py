"""The pods of a node as the choice of victims sees them, and which of two is the better victim.

Source: the simple preemptor's design for YuniKorn (classes, then priority, age and size). Where size
stands in the order is the strategies' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction


class PodClass(IntEnum):
    """How much is lost with a pod; the lower class goes first."""

    REGULAR = 0
    OWNER = 1
    """Another pod's ownerReference names it, or it is the first pod of its application."""
    OPTED_OUT = 2
    """It asks by `yunikorn.apache.org/allow-preemption: "false"` to be taken last."""


BudgetKey = tuple[str, str]
"""Namespace and name of a disruption budget."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod that may go. `amounts`: what it takes from the node; `budgets`: those that cover it.

    `created_micros`: since 1970; the later, the younger.
    """

    uid: str
    pod_class: PodClass
    priority: int
    created_micros: int
    amounts: Mapping[str, int]
    budgets: tuple[BudgetKey, ...] = ()

    def covers(self, need: Mapping[str, int]) -> bool:
        """Report whether its room alone is enough."""
        return all(self.amounts.get(name, 0) >= amount for name, amount in need.items())

    def size(self, need: Mapping[str, int]) -> Fraction:
        """Return how much of the need it holds, summed over its types; 1 is all of one type."""
        return sum((Fraction(self.amounts.get(name, 0), amount) for name, amount in need.items()), Fraction())


def most_important_first(pod: Occupant) -> tuple[int, int, int, str]:
    """Sort key of reprieve: the higher class first, then higher priority, then the older; then UID."""
    return -pod.pod_class, -pod.priority, pod.created_micros, pod.uid
