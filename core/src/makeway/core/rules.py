"""Which pods may be removed for which: rules that all must allow it.

A rule looks at one preemptor and one pod and answers with a verdict that says which rule spoke and
with which numbers. Planner, evictor and command line ask the same rules, so that the evictor's
re-check cannot differ from the plan. Kubernetes' own rule is `lower-priority`; further policies are
further rules in the tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

LOWER_PRIORITY = "lower-priority"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule says of one pod. `detail` holds the numbers, for a person to read."""

    removable: bool
    rule: str
    detail: str


@dataclass(frozen=True, slots=True)
class Pair:
    """What rules look at: the pod that needs room, the pod that might go, and the time."""

    preemptor_priority: int
    victim_priority: int
    now: datetime


Rule = Callable[[Pair], Verdict]


def lower_priority(pair: Pair) -> Verdict:
    """Allow only pods of lower priority than the preemptor, as kube-scheduler does."""
    removable = pair.victim_priority < pair.preemptor_priority
    sign = "<" if removable else ">="
    return Verdict(removable, LOWER_PRIORITY, f"{pair.victim_priority} {sign} {pair.preemptor_priority}")


KUBERNETES_RULES: tuple[Rule, ...] = (lower_priority,)
"""What holds without any policy."""


def judge(rules: Sequence[Rule], pair: Pair) -> Verdict:
    """Ask the rules in order: the first that forbids speaks, else the last that allows. O(rules)."""
    verdict = Verdict(removable=False, rule="", detail="no rule")
    for rule in rules:
        verdict = rule(pair)
        if not verdict.removable:
            return verdict
    return verdict
