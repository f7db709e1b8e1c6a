"""What may be removed for whom, in the form the columns need: each rule once for a pod, once as a mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from makeway.core.rules import Pair, Rule, judge, lower_priority
from makeway.planner.columns import Columns, Flags, Ints
from makeway.planner.records import PodRecord


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """One rule of `core.rules`, and the same rule over all slots of some nodes at once.

    `mask(columns, nodes, preemptor)` gives bool[slots, len(nodes)], False in empty slots. Both forms
    must agree; a plan labels its removable pods by asking `rule`.
    """

    rule: Rule
    mask: Callable[[Columns, Ints, PodRecord], Flags]


def _lower_priority(columns: Columns, nodes: Ints, preemptor: PodRecord) -> Flags:
    return columns.priority[:, nodes] < preemptor.priority


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules in force, and the revision they came with. Without any policy: Kubernetes' own."""

    revision: str = ""
    rules: tuple[ColumnRule, ...] = (ColumnRule(lower_priority, _lower_priority),)

    def removable(self, columns: Columns, nodes: Ints, preemptor: PodRecord) -> Flags:
        """Give bool[slots, len(nodes)]: the pods that every rule allows to go."""
        mask = self.rules[0].mask(columns, nodes, preemptor)
        for rule in self.rules[1:]:
            mask &= rule.mask(columns, nodes, preemptor)
        return mask

    def rule_for(self, preemptor: PodRecord, victim: PodRecord, now: datetime) -> str:
        """Give the name of the rule that made a pod removable."""
        pair = Pair(preemptor.priority, victim.priority, now)
        return judge([rule.rule for rule in self.rules], pair).rule
