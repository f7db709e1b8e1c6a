"""What kube-scheduler's filters say of every node, as far as the columns know: fits, may be helped, or never.

A node may be helped where its filter would answer Unschedulable; where it would answer
UnschedulableAndUnresolvable, removing pods is no help and the scheduler does not ask for it. Sources:
NodeAffinity, TaintToleration, NodeResourcesFit, InterPodAffinity and PodTopologySpread of kube-scheduler
1.36. Pure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makeway.core.k8s.resources import PODS
from makeway.planner.plan.candidates import EvaluatedBatch
from makeway.planner.plan.constraints.layers import CLAIM_TAKEN, PORT_TAKEN, SPREAD_OVER
from makeway.planner.plan.constraints.tally import Allowance
from makeway.planner.plan.eligibility import eligible, ruled_out
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.planner import Evaluator
from makeway.planner.plan.request import Question
from makeway.planner.snapshot.bounds import RESOURCES
from makeway.planner.snapshot.columns import BASE_RESOURCES, MOST, Flags, Ints
from makeway.planner.snapshot.state import Snapshot

AFFINITY = "Pod affinity is not met"
NO_LABEL = "Label of a topology spread is missing"


@dataclass(frozen=True, slots=True)
class Feasibility:
    """Rows of nodes: those that fit, and those that removing pods may help.

    `free`: float[fits], the part of CPU and memory that stays free with the pod there. `helpable` ascends.
    `excluded`: how many other nodes there are, by reason. `left_out`: constraints beyond the planner's bounds
    that only the scheduler's filters look at; constants of `bounds`.
    """

    fits: Ints
    free: NDArray[np.float64]
    helpable: Ints
    excluded: dict[str, int]
    left_out: tuple[str, ...] = ()

    def with_more(self, others: Feasibility) -> Feasibility:
        """Return what was found of these nodes and of others, whose rows are higher."""
        return Feasibility(
            np.concatenate([self.fits, others.fits]),
            np.concatenate([self.free, others.free]),
            np.concatenate([self.helpable, others.helpable]),
            dict(Counter(self.excluded) + Counter(others.excluded)),
            tuple(dict.fromkeys((*self.left_out, *others.left_out))),
        )

    def roomiest(self, snapshot: Snapshot) -> str:
        """Return the node that keeps most free, of equals the lower name: kube-scheduler's LeastAllocated."""
        order = np.lexsort((snapshot.name_rank()[self.fits], -self.free))
        return snapshot.names[int(self.fits[order[0]])]


NOWHERE: Final = Feasibility(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64), {})
"""What was found where no node was looked at."""


def feasibility(
    snapshot: Snapshot,
    question: Question,
    now: datetime,
    cache: PlanCache,
    *,
    rows: Ints | None = None,
    allowance: Allowance | None = None,
) -> Feasibility:
    """Sort nodes for one pod. O(slots · nodes).

    `rows`: of the nodes to look at; all where None. `allowance`: for what constraints come to; without a
    bound where None. Raises AllowanceUsedUp.
    """
    cache.bind(snapshot)
    present = np.flatnonzero(snapshot.present) if rows is None else rows
    excluded = ruled_out(snapshot, question.constraints, present)
    chosen = eligible(snapshot, question.constraints, present)
    asked = {name for name, amount in question.needs.items() if amount > 0}.difference(BASE_RESOURCES)
    unknown = sorted(name for name in asked if name not in snapshot.node_resources)
    counted = [snapshot.count(name) for name in asked.difference(unknown)]
    if unknown:
        excluded[f"Node too small: {unknown[0]}"] = int(chosen.size)
        chosen = chosen[:0]
    evaluator = Evaluator(snapshot, question, now, cache, allowance or Allowance())
    batches = evaluator.evaluate(chosen)

    fits: list[Ints] = []
    free: list[NDArray[np.float64]] = []
    helpable: list[Ints] = []
    for evaluated in batches:
        never = _never(evaluated, excluded)
        fit = evaluated.found.fits & ~never
        fits.append(evaluated.batch.rows[fit])
        free.append(_free(evaluated, fit))
        helpable.append(evaluated.batch.rows[~fit & ~never])
    return Feasibility(
        np.concatenate([NOWHERE.fits, *fits]),
        np.concatenate([NOWHERE.free, *free]),
        np.sort(np.concatenate([NOWHERE.helpable, *helpable])),
        {reason: number for reason, number in excluded.items() if number},
        (*evaluator.left_out, *(() if all(counted) else (RESOURCES,))),
    )


def _never(evaluated: EvaluatedBatch, excluded: dict[str, int]) -> Flags:
    """Return which nodes of a batch no removal helps, and count them by reason.

    The filters are asked in the scheduler's order, and the first that says no on a node decides.
    """
    found, batch, layers = evaluated.found, evaluated.batch, evaluated.layers
    never = np.zeros(batch.rows.size, np.bool_)
    decided = never.copy()

    def exclude(reason: str, flags: Flags) -> None:
        fresh = flags & ~decided
        if number := int(fresh.sum()):
            excluded[reason] = excluded.get(reason, 0) + number
        never[fresh] = True
        decided[fresh] = True

    leaving = [
        np.broadcast_to(batch.leaving[found.asked], (found.asked.size, batch.rows.size)),
        layers.leaving,
    ]
    lacking = found.room - np.concatenate(leaving) < 0
    resources, constraints = lacking[: found.asked.size], lacking[found.asked.size :]
    by_layer = {layer: name for name, layer in batch.columns.resources.items()}
    for name, lacks in zip(layers.names, constraints, strict=True):
        if name == PORT_TAKEN:
            decided |= lacks
    for place, layer in enumerate(found.asked.tolist()):
        if by_layer[layer] != PODS:
            exclude(f"Node too small: {by_layer[layer]}", found.too_small[place])
    decided |= resources.any(axis=0)
    for name, room, lacks in zip(layers.names, layers.room, constraints, strict=True):
        if name.startswith(SPREAD_OVER):
            exclude(NO_LABEL, room <= -MOST)
        if name.startswith(SPREAD_OVER) or name == CLAIM_TAKEN:
            decided |= lacks
    if layers.required_affinity is not None:
        exclude(AFFINITY, ~layers.required_affinity.kept(np.zeros_like(found.removable)))
    return never


def _free(evaluated: EvaluatedBatch, chosen: Flags) -> NDArray[np.float64]:
    columns = evaluated.batch.columns
    shares = []
    for resource in ("cpu", "memory"):
        layer = columns.resources[resource]
        allocatable = columns.allocatable[layer, chosen]
        asked = evaluated.inputs.question.needs.get(resource, 0)
        left = allocatable - columns.requested[layer, chosen] - asked
        shares.append(left / np.maximum(allocatable, 1))
    return np.asarray(sum(shares) / len(shares), np.float64)
