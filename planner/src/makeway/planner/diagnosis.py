"""Why nothing helps, said with numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

import numpy as np

from makeway.core.importance import moment_of
from makeway.core.resources import CPU, PODS
from makeway.planner import spared
from makeway.planner.answer import NearNode, Refusal, Scope
from makeway.planner.dependencies import Objects, dependencies
from makeway.planner.layers import NO_AFFINITY
from makeway.planner.overlay import Block
from makeway.planner.question import Question
from makeway.planner.queue_terms import NO_TERMS, QueueTerms
from makeway.planner.ranking import top
from makeway.planner.snapshot import Snapshot
from makeway.planner.victims import Evaluation

NEVER = "PreemptionPolicyNever"
NO_NODES = "NoPotentialNodes"
NOT_OFFERED = "ResourceNotOffered"
NOTHING_REMOVABLE = "NoLowerPriorityPods"
ALL_SPARED = "PodsSpared"
NO_ROOM = "NotEnoughRoom"
FORBIDDEN = "ForbiddenByPolicy"

NO_LOWER = "No pods of lower priority"
ALL_KEPT = "All pods of lower priority are spared"
OVER_BUDGET = "A hard disruption budget forbids it"
OVER_LIMIT = "More victims than an order may have"
UNKNOWN_NODE = "Not known to the planner"
_NEAREST = 3
MARGIN = timedelta(milliseconds=1)
"""A toleration holds up to and including its last moment."""
_MEBI = 2**20


def never(scope: Scope, question: Question) -> Refusal:
    """Refuse a pod whose preemptionPolicy is Never."""
    return Refusal(scope, NEVER, f"{_who(question)} has preemptionPolicy Never")


def no_nodes(scope: Scope, question: Question, unknown: int) -> Refusal:
    """Refuse where no node may be helped by removing pods."""
    reasons = {UNKNOWN_NODE: unknown} if unknown else {}
    told = f"; {unknown} named nodes are not known to the planner" if unknown else ""
    message = f"{_who(question)}: none of {scope.nodes_total} nodes may be helped by removing pods{told}"
    return Refusal(scope, NO_NODES, message, reasons)


def not_offered(scope: Scope, question: Question, resource: str) -> Refusal:
    """Refuse a resource that no node offers."""
    wanted = amount_of(resource, question.needs[resource])
    message = f"{_who(question)} asks for {resource} {wanted}, which no node offers"
    return Refusal(scope, NOT_OFFERED, message, {f"Insufficient {resource}": scope.nodes_potential})


class Findings:
    """What was found on nodes where removing every removable pod makes no room, added up block by block.

    A block is looked at when it is added, so that the snapshot may change before the next.
    """

    def __init__(self, snapshot: Snapshot, question: Question, now: datetime) -> None:
        self._snapshot = snapshot
        self._question = question
        self._now = now
        self._reasons: Counter[str] = Counter()
        self._spared: Counter[str] = Counter()
        self._near: list[tuple[float, str, NearNode, str]] = []
        self._ends: list[int] = []
        self._helps: list[int] = []
        self._objects = Objects()

    def add(self, block: Block, found: Evaluation) -> None:
        """Take in the nodes of a block. O(slots · nodes)."""
        priority = self._question.preemptor.priority
        self._reasons += _count(block, found, priority)
        self._spared += spared.count(block, found, priority)
        self._near += _nearest(self._snapshot, block, found, self._question, self._now)
        self._near = sorted(self._near, key=lambda one: one[:2])[:_NEAREST]
        if (end := spared.first_end(block, found, priority)) is not None:
            self._ends.append(end)
        if (end := spared.first_help(block, found, priority)) is not None:
            self._helps.append(end)
        self._objects.add(self._snapshot, block, found)

    def refusal(self, scope: Scope, unknown: int, queues: QueueTerms = NO_TERMS) -> Refusal:
        """Refuse, and name the nearest nodes. `unknown`: nodes that the planner does not know."""
        question, counts = self._question, self._spared
        priority = question.preemptor.priority
        if unknown:
            self._reasons[UNKNOWN_NODE] = unknown
        asked = ", ".join(
            f"{name} {amount_of(name, amount)}"
            for name, amount in sorted(question.needs.items())
            if name != PODS
        )
        reason, why = _why(scope, self._reasons)
        message = f"{_who(question)} asks for {asked or 'a place'} at priority {priority}: {why}"
        if queues.limits:
            message += "; " + "; ".join(limit.reason for limit in queues.limits)
        if counts:
            message += f"; {spared.text(counts, _clock(min(self._ends)) if self._ends else '')}"
        nearest = [text for _, _, _, text in self._near if text]
        if nearest:
            message += "; nearest: " + "; ".join(nearest)
        return Refusal(
            scope,
            reason,
            message,
            dict(sorted(self._reasons.items())),
            retry_at=moment_of(min(self._helps)) + MARGIN if self._helps else None,
            depends_on=dependencies(self._snapshot, question, self._objects, counts, queues),
            spared=dict(sorted(counts.items())),
            nearest=tuple(one for _, _, one, _ in self._near),
        )


def _why(scope: Scope, reasons: Mapping[str, int]) -> tuple[str, str]:
    """Give the refusal's reason and its sentence."""
    potential = scope.nodes_potential
    lower, kept = reasons.get(NO_LOWER, 0), reasons.get(ALL_KEPT, 0)
    forbidden = reasons.get(OVER_BUDGET, 0) + reasons.get(OVER_LIMIT, 0)
    if lower == potential:
        return NOTHING_REMOVABLE, f"none of {lower} potential nodes has a pod of lower priority"
    if kept == potential:
        return ALL_SPARED, f"on each of {potential} potential nodes all pods of lower priority are spared"
    parts = [f"of {potential} potential nodes {lower} have no pod of lower priority"]
    if kept:
        parts.append(f"on {kept} all of them are spared")
    if forbidden:
        parts.append(f"on {forbidden} the victims would be against the policy")
    full = potential - lower - kept - forbidden
    if full:
        parts.append(f"{full} have too little room even without them")
    why = ", ".join(parts[:-1]) + f", and {parts[-1]}" if len(parts) > 1 else parts[0]
    if forbidden:
        return FORBIDDEN, why
    return (NO_ROOM if full else ALL_SPARED), why


def amount_of(resource: str, amount: int) -> str:
    """Write an amount for people: cores or milli-cores, MiB where whole, else plain units."""
    if resource == CPU:
        return f"{amount // 1000}" if amount % 1000 == 0 else f"{amount}m"
    if amount >= _MEBI and amount % _MEBI == 0:
        return f"{amount // _MEBI}Mi"
    return str(amount)


def _who(question: Question) -> str:
    return f"pod {question.preemptor.namespace}/{question.preemptor.name}"


def _names(block: Block, found: Evaluation) -> list[str]:
    by_layer = {layer: name for name, layer in block.columns.resources.items()}
    return [by_layer[layer] for layer in found.asked.tolist()]


def _count(block: Block, found: Evaluation, priority: int) -> Counter[str]:
    """Count nodes by what stood in the way; one node may count for several resources."""
    reasons: Counter[str] = Counter()
    empty = ~found.removable.any(axis=0)
    stay = spared.barred(block, found, priority) | found.budgeted | found.guarded
    kept = empty & stay.any(axis=0) & ~found.over_budget
    bare = empty & ~kept & ~found.over_budget
    for text, flags in (
        (NO_LOWER, bare),
        (ALL_KEPT, kept),
        (OVER_BUDGET, found.over_budget),
        (OVER_LIMIT, found.over_limit),
        (NO_AFFINITY, found.alone & ~empty),
    ):
        if flags.any():
            reasons[text] = int(flags.sum())
    for place, name in enumerate(found.constraints, found.asked.size):
        if blocked := int(((found.short[place] > 0) & ~empty).sum()):
            reasons[name] = blocked
    for place, name in enumerate(_names(block, found)):
        too_small = int((found.too_small[place] & ~empty).sum())
        short = int(((found.short[place] > 0) & ~empty & ~found.too_small[place]).sum())
        if too_small:
            reasons[f"Node too small: {name}"] = too_small
        if short:
            reasons["Too many pods" if name == PODS else f"Insufficient {name}"] = short
    return reasons


def _nearest(
    snapshot: Snapshot, block: Block, found: Evaluation, question: Question, now: datetime
) -> list[tuple[float, str, NearNode, str]]:
    """Give the nodes that lack least, as (greatest relative shortfall, name, node, text).

    A node from which nobody may go is near, too, where that is because rules keep its pods.
    """
    if not found.short.shape[0]:
        return []
    names = _names(block, found)
    needs = [*(question.needs[name] for name in names), *(1 for _ in found.constraints)]
    need = np.array(needs, np.float64)[:, None]
    relative = (found.short / need).max(axis=0)
    kept = spared.barred(block, found, question.preemptor.priority) | found.budgeted
    open_nodes = np.flatnonzero((found.removable | kept).any(axis=0) & ~found.too_small.any(axis=0))
    closest = top((relative, snapshot.name_rank()[block.rows]), open_nodes, _NEAREST)
    order = sorted(closest.tolist(), key=lambda place: (relative[place], snapshot.names[block.rows[place]]))
    nearest = []
    for place in order:
        missing = {
            name: int(short) for name, short in zip(names, found.short[:, place], strict=False) if short > 0
        }
        lacking = [f"{name} {amount_of(name, amount)}" for name, amount in missing.items()]
        against = found.short[found.asked.size :, place] > 0
        lacking += [name for name, short in zip(found.constraints, against, strict=True) if short]
        if not lacking and found.alone[place]:
            lacking = [NO_AFFINITY]
        lacks = ", ".join(lacking)
        node = snapshot.names[int(block.rows[place])]
        lower = int(found.removable[:, place].sum())
        text = f"{node} lacks {lacks} without its {lower} lower" if lacks and lower else ""
        near = NearNode(
            node, missing, spared.of_node(snapshot, block, found, place, question=question, now=now)
        )
        nearest.append((float(relative[place]), node, near, text))
    return nearest


def _clock(micros: int) -> str:
    return f"{moment_of(micros):%Y-%m-%dT%H:%M:%SZ}"
