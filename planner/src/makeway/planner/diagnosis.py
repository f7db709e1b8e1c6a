"""Why nothing helps, said with numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from makeway.core.resources import CPU, PODS
from makeway.planner.answer import Refusal, Scope
from makeway.planner.layers import NO_AFFINITY
from makeway.planner.overlay import Block
from makeway.planner.question import Question
from makeway.planner.snapshot import Snapshot
from makeway.planner.victims import Evaluation

NEVER = "PreemptionPolicyNever"
NO_NODES = "NoPotentialNodes"
NOT_OFFERED = "ResourceNotOffered"
NOTHING_REMOVABLE = "NoLowerPriorityPods"
NO_ROOM = "NotEnoughRoom"

NO_LOWER = "No pods of lower priority"
UNKNOWN_NODE = "Not known to the planner"
_NEAREST = 3
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


def no_room(
    scope: Scope,
    snapshot: Snapshot,
    question: Question,
    parts: list[tuple[Block, Evaluation]],
    unknown: int,
) -> Refusal:
    """Refuse where removing every removable pod makes room on no node, and name the nearest nodes."""
    reasons: Counter[str] = Counter()
    near: list[tuple[float, str, str]] = []
    for block, found in parts:
        reasons += _count(block, found)
        near += _nearest(snapshot, block, found, question.needs)
    if unknown:
        reasons[UNKNOWN_NODE] = unknown
    lower = reasons.get(NO_LOWER, 0)
    asked = ", ".join(
        f"{name} {amount_of(name, amount)}" for name, amount in sorted(question.needs.items()) if name != PODS
    )
    head = f"{_who(question)} asks for {asked or 'a place'} at priority {question.preemptor.priority}: "
    if lower == scope.nodes_potential:
        message = f"{head}none of {lower} potential nodes has a pod of lower priority"
        return Refusal(scope, NOTHING_REMOVABLE, message, dict(sorted(reasons.items())))
    full = scope.nodes_potential - lower
    message = (
        f"{head}of {scope.nodes_potential} potential nodes {lower} have no pod of lower priority, "
        f"and {full} have too little room even without them"
    )
    nearest = [text for _, _, text in sorted(near)[:_NEAREST]]
    if nearest:
        message += "; nearest: " + "; ".join(nearest)
    return Refusal(scope, NO_ROOM, message, dict(sorted(reasons.items())))


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


def _count(block: Block, found: Evaluation) -> Counter[str]:
    """Count nodes by what stood in the way; one node may count for several resources."""
    reasons: Counter[str] = Counter()
    bare = ~found.removable.any(axis=0)
    if bare.any():
        reasons[NO_LOWER] = int(bare.sum())
    for place, name in enumerate(found.constraints, found.asked.size):
        if blocked := int(((found.short[place] > 0) & ~bare).sum()):
            reasons[name] = blocked
    if lonely := int((found.alone & ~bare).sum()):
        reasons[NO_AFFINITY] = lonely
    for place, name in enumerate(_names(block, found)):
        too_small = int((found.too_small[place] & ~bare).sum())
        short = int(((found.short[place] > 0) & ~bare & ~found.too_small[place]).sum())
        if too_small:
            reasons[f"Node too small: {name}"] = too_small
        if short:
            reasons["Too many pods" if name == PODS else f"Insufficient {name}"] = short
    return reasons


def _nearest(
    snapshot: Snapshot, block: Block, found: Evaluation, needs: Mapping[str, int]
) -> list[tuple[float, str, str]]:
    """Give the nodes that lack least, as (greatest relative shortfall, name, text)."""
    if not found.short.shape[0]:
        return []
    names = _names(block, found)
    need = np.array([*(needs[name] for name in names), *(1 for _ in found.constraints)], np.float64)[:, None]
    relative = (found.short / need).max(axis=0)
    open_nodes = np.flatnonzero(found.removable.any(axis=0) & ~found.too_small.any(axis=0))
    order = sorted(
        open_nodes.tolist(), key=lambda place: (relative[place], snapshot.names[int(block.rows[place])])
    )[:_NEAREST]
    nearest = []
    for place in order:
        lacking = [
            f"{name} {amount_of(name, int(short))}"
            for name, short in zip(names, found.short[:, place], strict=False)
            if short > 0
        ]
        against = found.short[found.asked.size :, place] > 0
        lacking += [name for name, short in zip(found.constraints, against, strict=True) if short]
        missing = ", ".join(lacking or [NO_AFFINITY])
        node = snapshot.names[int(block.rows[place])]
        count = int(found.removable[:, place].sum())
        nearest.append((float(relative[place]), node, f"{node} lacks {missing} without its {count} lower"))
    return nearest
