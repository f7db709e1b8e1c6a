"""Plans for a pod that no filter has been asked about: the planner judges each node by itself.

kube-scheduler hands its plugin the nodes that removing pods may help. Whoever asks from outside the scheduler
has no such list, and names no node: then the columns say on which nodes the pod fits, on which removing pods
may help, and on which never. Nothing checks the plan afterwards, so what only the scheduler's filters know is
refused here, with that reason. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import numpy as np

from makeway.bus.messages import NodeSelection
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.constraints.tally import CHUNK_STEPS, Allowance, AllowanceUsedUp
from makeway.planner.plan.feasibility import feasibility
from makeway.planner.plan.node_scores import CHUNK_NODES
from makeway.planner.plan.planner import planning
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal, Scope
from makeway.planner.snapshot.columns import Ints
from makeway.planner.snapshot.state import Snapshot

FITS: Final = "RoomIsThere"
"""By the columns the pod fits: it will be bound, or something only the filters know stands in the way."""

NOT_MODELLED: Final = "OnlyFiltersKnow"
"""What stands in the pod's way has no column."""

_PAUSES: Final = 1000
"""Pauses for tallies before the rest is worked out without one, as in `planning`."""


def answer(snapshot: Snapshot, question: Question, now: datetime, cache: PlanCache) -> Plan | PlanRefusal:
    """Return what `answering` comes to, without its pauses."""
    return next(found for found in answering(snapshot, question, now, cache) if found is not None)


def answering(
    snapshot: Snapshot, question: Question, now: datetime, cache: PlanCache
) -> Iterator[Plan | PlanRefusal | None]:
    """Plan as `planning` does; where the question names no node, judge which nodes may be helped first.

    Pauses with None as `planning` does. O(slots · nodes) where no node is named.
    """
    if question.nodes.names or question.nodes.all_but:
        yield from planning(snapshot, question, now, cache)
        return
    if question.constraints.left_out:
        yield _not_modelled(snapshot, question, ", ".join(question.constraints.left_out))
        return
    if claim := snapshot.volumes.unbound(question.constraints.namespace, question.constraints.binds):
        yield _not_modelled(snapshot, question, f"PersistentVolumeClaim {claim}, which has no volume")
        return
    judging = _Judging(snapshot, question, now, cache)
    rows, pauses = np.flatnonzero(snapshot.present), 0
    for first in range(0, rows.size, CHUNK_NODES):
        node: str | None = None
        while node is None:
            allowance = Allowance(CHUNK_STEPS) if pauses < _PAUSES else Allowance()
            try:
                node = judging.judge(rows[first : first + CHUNK_NODES], allowance)
            except AllowanceUsedUp:
                pauses += 1
                yield None
        if node:
            yield _fits(snapshot, question, node)
            return
        yield None
    named = replace(question, nodes=NodeSelection(names=tuple(judging.helpable)))
    for found in planning(snapshot, named, now, cache):
        yield found if found is None else _checked(snapshot, question, found, judging.excluded)


@dataclass
class _Judging:
    """Which nodes removing pods may help, as far as they have been looked at.

    `excluded`: how many no removal helps, by reason.
    """

    snapshot: Snapshot
    question: Question
    now: datetime
    cache: PlanCache
    helpable: list[str] = field(default_factory=list)
    excluded: dict[str, int] = field(default_factory=dict)

    def judge(self, rows: Ints, allowance: Allowance) -> str:
        """Sort some nodes; return one that fits, empty where none does. Nodes may have left since a pause."""
        snapshot = self.snapshot
        rows = rows[snapshot.present[rows]]
        found = feasibility(snapshot, self.question, self.now, self.cache, rows=rows, allowance=allowance)
        if found.fits.size:
            return found.roomiest(snapshot)
        self.helpable += [snapshot.names[row] for row in found.helpable.tolist()]
        for reason, count in found.excluded.items():
            self.excluded[reason] = self.excluded.get(reason, 0) + count
        return ""


def _checked(
    snapshot: Snapshot, question: Question, found: Plan | PlanRefusal, excluded: dict[str, int]
) -> Plan | PlanRefusal:
    """Return the answer where the columns see all that matters; else the refusal that says what they do not.

    Nodes that no removal helps are part of a refusal's reasons.
    """
    if isinstance(found, PlanRefusal):
        return replace(found, node_reasons={**excluded, **found.node_reasons})
    if found.left_out:
        return _not_modelled(snapshot, question, ", ".join(found.left_out))
    if not found.candidates:
        nodes = ", ".join(one.node for one in found.unmodelled[:3])
        return _not_modelled(snapshot, question, f"what keeps it from node {nodes}")
    return replace(found, unmodelled=(), unmodelled_total=0)


def _fits(snapshot: Snapshot, question: Question, node: str) -> PlanRefusal:
    message = (
        f"{_pod(question)} fits on node {node} as far as the planner sees: if the scheduler does not bind "
        "it, something stands in the way that only its filters know"
    )
    return PlanRefusal(_scope(snapshot), FITS, message)


def _not_modelled(snapshot: Snapshot, question: Question, what: str) -> PlanRefusal:
    message = f"{_pod(question)}: only the scheduler's own filters can judge {what}"
    return PlanRefusal(_scope(snapshot), NOT_MODELLED, message)


def _scope(snapshot: Snapshot) -> Scope:
    return Scope(snapshot.revision, snapshot.node_count, 0)


def _pod(question: Question) -> str:
    return f"pod {question.preemptor.namespace}/{question.preemptor.name}"
