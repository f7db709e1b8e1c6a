"""The plan for a pod that its DaemonSet has bound to one node: the simple preemptor.

One node, no ranking: what is left to decide is which pods go. Pure. Source: YuniKorn's design of the simple
preemptor; where makeway differs from it is told in docs/policies/differences.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from makeway.core.daemonset.occupant import Occupant, most_important_first
from makeway.core.daemonset.rule import DAEMONSET_MULTIPLE, DAEMONSET_SINGLE
from makeway.core.daemonset.selection import NoSelection, select, strategy_names
from makeway.core.daemonset.strategies import Single, deviation, needed_of
from makeway.planner.plan.constraints.tally import Tallies
from makeway.planner.plan.daemonset import text
from makeway.planner.plan.daemonset.node import DaemonSetNode, daemonset_node_of
from makeway.planner.plan.ranking import ONLY_CANDIDATE, count_awaited, score
from makeway.planner.plan.refusal.text import awaits_queue_room
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanCandidate, PlanRefusal, RemovablePod, Scope
from makeway.planner.snapshot.columns import Flags
from makeway.planner.snapshot.state import Snapshot


def plan_daemonset(
    snapshot: Snapshot, question: Question, scope: Scope, now: datetime, tallies: Tallies
) -> Plan | PlanRefusal:
    """Decide which pods go for a daemonset pod, whose node may be helped. O(n log n) for the node's n pods.

    In this order: no victims before the start delay is over; none where room is expected, on the node or in
    the pod's queue; else the configured strategies over the pods that may go.
    """
    exemptions = snapshot.exemptions
    due = (question.unfit_since or now) + exemptions.policy.daemon_sets.preemption_start_delay
    if now < due:
        return text.too_early(scope, question, exemptions.source, due=due, now=now)
    node = daemonset_node_of(snapshot, question, now, tallies)
    lacking = node.lacking()
    if not lacking:
        return _unmodelled(node, scope)
    if not node.lacking(node.awaited):
        return _planned(node, DaemonSetVictims(awaited=needed_of(node.awaited, lacking)), scope)
    if node.queues.on_its_way is not None and node.maxima.keys() & node.lacking(node.awaited).keys():
        return awaits_queue_room(scope, question, snapshot, node.queues)
    return _chosen(node, scope)


def _chosen(node: DaemonSetNode, scope: Scope) -> Plan | PlanRefusal:
    """Choose victims for what is missing once all that leave anyway have left."""
    settings, need = node.settings, node.lacking(node.awaited)
    found = select(
        node.of(node.may_go),
        need,
        node.request,
        settings,
        most_victims=node.most_victims,
        allowance=node.allowance,
    )
    if isinstance(found, NoSelection):
        return text.no_victims(scope, node, need, found)
    rule, victims = DAEMONSET_SINGLE, found.victims
    if isinstance(found, Single):
        details = {found.victim.uid: text.of_single(found, settings)}
    else:
        rule = DAEMONSET_MULTIPLE
        details = {pod.uid: text.of_multiple(pod, found, need, node) for pod in victims}
    chosen = DaemonSetVictims(
        rule=rule,
        victims=victims,
        details=details,
        awaited=needed_of(node.awaited, node.lacking(victims)),
        removable=_removable(node, need),
    )
    return _planned(node, chosen, scope)


def _removable(node: DaemonSetNode, need: Mapping[str, int]) -> frozenset[int]:
    """Return the slots of all pods that the configured strategies might choose."""
    if "multiple" in strategy_names(node.settings):
        return node.may_go
    most = node.settings.single_max_deviation_percent

    def near(slot: int) -> bool:
        pod = node.occupants[slot]
        return pod.covers(need) and deviation(pod, need, node.request) * 100 <= most

    return frozenset(slot for slot in node.may_go if near(slot))


def _planned(node: DaemonSetNode, chosen: DaemonSetVictims, scope: Scope) -> Plan:
    return Plan(scope, (daemonset_candidate(node, chosen),), 1, (), 0)


def _unmodelled(node: DaemonSetNode, scope: Scope) -> Plan | PlanRefusal:
    """Leave to the scheduler's filters what no resource explains: a host port, an affinity, a volume."""
    if not node.may_go and not node.awaited:
        return text.nothing_to_remove(scope, node)
    chosen = DaemonSetVictims(awaited=node.awaited, removable=node.may_go)
    return Plan(scope, (), 0, (daemonset_candidate(node, chosen),), 1)


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
