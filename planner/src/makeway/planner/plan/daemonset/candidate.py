"""From the victims on one node to a candidate: named pods in the order of reprieve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from makeway.core.daemonset.occupant import Occupant, most_important_first
from makeway.core.daemonset.rule import DAEMONSET_MULTIPLE, DAEMONSET_SINGLE
from makeway.core.daemonset.selection import strategy_names
from makeway.planner.plan.daemonset.node import DaemonSetNode
from makeway.planner.plan.ranking import ONLY_CANDIDATE, count_awaited, score
from makeway.planner.plan.result import PlanCandidate, RemovablePod
from makeway.planner.snapshot.columns import Flags


@dataclass(frozen=True, slots=True)
class DaemonSetVictims:
    """Which pods go, by which rule, with which numbers by UID.

    `removable`: slots of the pods among which the scheduler's filters may choose, should the victims not
    do; the victims are among them. `awaited`: those of other orders that have to leave.
    """

    rule: str = DAEMONSET_MULTIPLE
    victims: Sequence[Occupant] = ()
    details: Mapping[str, str] = field(default_factory=dict)
    awaited: Sequence[Occupant] = ()
    removable: frozenset[int] = frozenset()


def daemonset_candidate(node: DaemonSetNode, chosen: DaemonSetVictims) -> PlanCandidate:
    """Write the victims down, with the numbers that plans are ranked by. O(n log n)."""
    victims = {node.slots[pod.uid] for pod in chosen.victims}
    violating = _violating(node, victims, chosen.removable)
    removable = [
        RemovablePod(
            pod=node.pods[slot],
            rule=chosen.rule if slot in victims else _other_rule(node),
            victim=slot in victims,
            pdb_violating=bool(violating[slot]),
            detail=chosen.details.get(node.pods[slot].uid, ""),
        )
        for slot in sorted(chosen.removable, key=lambda slot: most_important_first(node.occupants[slot]))
        if slot in victims or not (node.allowance and violating[slot])
    ]
    removable.sort(key=lambda one: not one.pdb_violating)
    waiting = {pod.uid: pod for pod in node.batch.awaited.get(0, ())}
    awaited = [waiting[pod.uid] for pod in chosen.awaited]
    mask: Flags = np.zeros((len(node.pods), 1), np.bool_)
    mask[sorted(victims)] = True
    scores = score(node.batch.columns, np.zeros(1, np.int64), mask, violating[:, None])
    count_awaited(scores, 0, awaited)
    return PlanCandidate(
        node=node.name,
        removable=tuple(removable),
        awaited=node.question.awaited(awaited),
        pdb_violations=int(scores.violations[0]),
        highest_priority=int(scores.highest[0]) if scores.count[0] else 0,
        priority_sum=int(scores.priority_sum[0]),
        start_micros=int(scores.start[0]),
        decided_by=ONLY_CANDIDATE,
        exempt=node.exempt,
        max_victims=node.most_victims,
    )


def _violating(node: DaemonSetNode, victims: set[int], removable: frozenset[int]) -> Flags:
    """Return bool[slots]: pods that would violate a budget, the victims counted first."""
    flags = np.zeros(len(node.pods), np.bool_)
    order = np.array([*sorted(victims), *sorted(removable - victims)], np.int64)
    sets = node.batch.columns.budgets[order, 0]
    flags[order] = node.snapshot.budgets.violating(sets[:, None], node.debits)[:, 0]
    return flags


def _other_rule(node: DaemonSetNode) -> str:
    """Return the rule by which a pod goes that the plan did not choose, should the filters ask for it."""
    return DAEMONSET_MULTIPLE if "multiple" in strategy_names(node.settings) else DAEMONSET_SINGLE
