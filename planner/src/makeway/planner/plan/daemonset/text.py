"""What the simple preemptor says: refusals with their numbers, and why each victim was chosen."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction

from makeway.core.daemonset.occupant import Occupant
from makeway.core.daemonset.rule import HIGHER_PRIORITY
from makeway.core.daemonset.selection import Miss, NoSelection
from makeway.core.daemonset.strategies import Multiple, NoneCovers, Single, TooLarge, TooLittle, TooMany
from makeway.core.k8s.resources import PODS
from makeway.core.k8s.times import api_time
from makeway.core.policy.document import DaemonSets
from makeway.core.text import counted
from makeway.planner.plan.daemonset.node import DaemonSetNode
from makeway.planner.plan.refusal.exempt import HARD_BUDGET
from makeway.planner.plan.refusal.text import MARGIN, amount_of, dependencies, subject, tried_again
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import NearestNode, PlanRefusal, Scope
from makeway.planner.plan.terminating import overdue_text
from makeway.planner.snapshot.exemptions import Source

TOO_EARLY = "DaemonSetStartDelay"
NO_VICTIMS = "DaemonSetNoVictims"


def too_early(
    scope: Scope, question: Question, source: Source | None, *, due: datetime, now: datetime
) -> PlanRefusal:
    """Refuse until the start delay is over, or the policy, which is in `source`, has another."""
    seconds = math.ceil((due - now).total_seconds())
    message = (
        f"{subject(question)}, which its DaemonSet has bound to node {question.daemonset_node}, "
        f"has not fitted on it since {api_time(question.unfit_since or now)}; "
        f"preemption starts in {seconds} s, at {api_time(due)}"
    )
    depends_on = () if source is None else (source,)
    return PlanRefusal(scope, TOO_EARLY, message, {"Start delay": 1}, due, depends_on)


def no_victims(scope: Scope, node: DaemonSetNode, need: Mapping[str, int], found: NoSelection) -> PlanRefusal:
    """Refuse because no strategy found victims, and say of each why."""
    misses = "; ".join(f"{name}: {_miss(miss, node)}" for name, miss in found.misses)
    message = f"{_where(node)} does not fit on it ({_missing(need, node)}); {misses}; {_who_may_go(node)}"
    short = [miss.short for _, miss in found.misses if isinstance(miss, TooLittle)]
    missing = {name: amount for name, amount in (short or [{}])[0].items() if name not in node.constraints}
    return _refusal(scope, node, message, {_reason(name, node): 1 for name in need}, missing)


def _reason(name: str, node: DaemonSetNode) -> str:
    if name in node.constraints:
        return name
    return "Too many pods" if name == PODS else f"Insufficient {name}"


def nothing_to_remove(scope: Scope, node: DaemonSetNode) -> PlanRefusal:
    """Refuse where the resources suffice and no pod may go that could stand in another way."""
    message = f"{_where(node)} has enough of every resource there; {_who_may_go(node)}"
    return _refusal(scope, node, message, {"No removable pod": 1})


def of_single(found: Single, settings: DaemonSets) -> str:
    """Return why the one victim was chosen."""
    return (
        f"{_class(found.victim)}, alone makes the room; larger than needed by {_percent(found.deviation)} "
        f"of the request, at most {settings.single_max_deviation_percent}%"
    )


def of_multiple(pod: Occupant, found: Multiple, need: Mapping[str, int], node: DaemonSetNode) -> str:
    """Return why one of several victims was chosen."""
    gives = ", ".join(
        _given(name, pod.amounts[name], amount, node)
        for name, amount in sorted(need.items())
        if pod.amounts[name]
    )
    return f"{_class(pod)}, gives {gives} needed; one of {len(found.victims)}, at most {node.most_victims}"


def _given(name: str, given: int, needed: int, node: DaemonSetNode) -> str:
    limit = node.maxima.get(name)
    if limit is None:
        return f"{name} {amount_of(name, given)} of {amount_of(name, needed)}"
    amounts = f"{limit.resource} {amount_of(limit.resource, given)} of {amount_of(limit.resource, needed)}"
    return f"{amounts} in queue {limit.queue.path}"


def _miss(miss: Miss, node: DaemonSetNode) -> str:
    if isinstance(miss, NoneCovers):
        return "no removable pod alone is large enough"
    if isinstance(miss, TooLarge):
        return (
            f"the nearest pod is larger than needed by {_percent(miss.deviation)} of the request, "
            f"at most {node.settings.single_max_deviation_percent}%"
        )
    if isinstance(miss, TooMany):
        return f"it would take {miss.needed} victims, at most {node.most_victims}"
    return f"too little even without all removable pods ({_missing(miss.short, node)})"


def _who_may_go(node: DaemonSetNode) -> str:
    """Count the pods of the node: how many may go, and what keeps the others."""
    total = len(node.pods) + len(node.awaited)
    kept = _by_rule(node)
    told = [f"{count} by {rule}" for rule, count in sorted(kept.items())]
    others = f" (kept: {', '.join(told)})" if told else ""
    late = overdue_text(node.snapshot, {node.name}, node.now, node.question.preemptor.namespace)
    may_go = len(node.may_go) - node.scarce.total()
    return f"{may_go} of {counted(total, 'pod')} are removable{others}{f'; {late}' if late else ''}"


def _by_rule(node: DaemonSetNode) -> Counter[str]:
    """Count the pods that stay, also those that hard budgets do not let go together."""
    kept = Counter(one.verdict.rule for one in node.stay)
    return kept + Counter({HARD_BUDGET: node.scarce.total()})


def _refusal(
    scope: Scope,
    node: DaemonSetNode,
    message: str,
    reasons: dict[str, int],
    missing: Mapping[str, int] | None = None,
) -> PlanRefusal:
    """Refuse for as long as the rules keep what they keep: until a toleration ends, or one changes.

    `missing`: what would be short even without all removable pods.
    """
    ends = [one.verdict.until for one in node.stay if one.verdict.until is not None]
    kept = _by_rule(node)
    return PlanRefusal(
        scope,
        NO_VICTIMS,
        message,
        reasons,
        retry_at=tried_again(node.snapshot, min(ends) + MARGIN if ends else None, kept, node.now),
        depends_on=dependencies(
            node.snapshot,
            node.question,
            (key for key, allowed in node.allowance.items() if allowed <= 0 or key in node.scarce),
            limited=True,
            exempt=kept,
            maxima=node.maxima.values(),
        ),
        exempt={rule: number for rule, number in sorted(kept.items()) if rule != HIGHER_PRIORITY},
        nearest=(NearestNode(node.name, dict(missing or {}), node.exempt),),
    )


def _where(node: DaemonSetNode) -> str:
    return f"{subject(node.question)}, which its DaemonSet has bound to node {node.name},"


def _class(pod: Occupant) -> str:
    return pod.pod_class.name.lower().replace("_", " ")


def _missing(amounts: Mapping[str, int], node: DaemonSetNode) -> str:
    """Return what stands in the way: amounts of resources, and constraints by their names."""
    return ", ".join(
        name.lower() if name in node.constraints else f"{name} {amount_of(name, amount)} missing"
        for name, amount in sorted(amounts.items())
    )


def _percent(share: Fraction) -> str:
    return f"{float(share * 100):.4g}%"
