"""Plans for a pod that no filter has been asked about: the planner judges each node by itself.

kube-scheduler hands its plugin the nodes that removing pods may help. Whoever asks from outside the scheduler
has no such list, and names no node: then the columns say on which nodes the pod fits, on which removing pods
may help, and on which never. Nothing checks the plan afterwards, so what only the scheduler's filters know is
refused here, with that reason. `makeway simulate`, `why` and `makeway nominator` are all answered here. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import numpy as np

from makeway.bus.plan import NodeSelection
from makeway.core.k8s.unmodelled import ONLY_FILTERS_KNOW
from makeway.planner.plan.constraints.tally import CHUNK_STEPS, Allowance, AllowanceUsedUp
from makeway.planner.plan.feasibility import NOWHERE, Feasibility, feasibility
from makeway.planner.plan.node_scores import CHUNK_NODES, PlanCache
from makeway.planner.plan.planner import planning
from makeway.planner.plan.refusal.text import NEVER, subject
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanCandidate, PlanRefusal, Scope
from makeway.planner.snapshot.state import Snapshot

FITS: Final = "RoomIsThere"
"""By the columns the pod fits: it will be bound, or something only the filters know is in the way."""

_PAUSES: Final = 1000
"""Pauses for tallies before the rest is worked out without one, as in `planning`."""


@dataclass(frozen=True, slots=True)
class PodVerdict:
    """What was found: `node` where it fits; else a plan with candidates, or a refusal.

    `found`: the nodes by what the filters that have a column say of them; none where none was looked at.
    """

    found: Feasibility
    node: str
    result: Plan | PlanRefusal | None

    @property
    def best(self) -> PlanCandidate | None:
        """Where it would preempt; None where it fits or is refused."""
        return self.result.candidates[0] if isinstance(self.result, Plan) else None

    @property
    def refusal(self) -> PlanRefusal | None:
        """Why it stays pending; None where it does not."""
        return self.result if isinstance(self.result, PlanRefusal) else None


def answer(snapshot: Snapshot, question: Question, now: datetime, cache: PlanCache) -> Plan | PlanRefusal:
    """Return what `answering` comes to, without its pauses."""
    return next(found for found in answering(snapshot, question, now, cache) if found is not None)


def judge_pod(snapshot: Snapshot, question: Question, now: datetime, cache: PlanCache) -> PodVerdict:
    """Return what `judging` comes to, without its pauses."""
    return next(found for found in judging(snapshot, question, now, cache) if found is not None)


def answering(
    snapshot: Snapshot, question: Question, now: datetime, cache: PlanCache
) -> Iterator[Plan | PlanRefusal | None]:
    """Plan as `planning` does; where the question names no node, judge which nodes may be helped first.

    Refusals say what earlier orders left out. Pauses with None as `planning` does. O(slots · nodes) where no
    node is named.
    """
    if question.nodes.names or question.nodes.all_but:
        for found in planning(snapshot, question, now, cache):
            yield _with_left_out(question, found)
        return
    for verdict in judging(snapshot, question, now, cache):
        if verdict is None:
            yield None
        else:
            yield _told(verdict) or _fits(snapshot, question, verdict.node)


def judging(
    snapshot: Snapshot, question: Question, now: datetime, cache: PlanCache
) -> Iterator[PodVerdict | None]:
    """Ask the filters that columns know of every node, then the planner. Pauses and cost as `answering`."""
    if question.constraints.left_out:
        yield PodVerdict(
            NOWHERE, "", _not_modelled(snapshot, question, ", ".join(question.constraints.left_out))
        )
        return
    if claim := snapshot.volumes.unbound(question.constraints.namespace, question.constraints.binds):
        what = f"PersistentVolumeClaim {claim}, which has no volume"
        yield PodVerdict(NOWHERE, "", _not_modelled(snapshot, question, what))
        return
    found, pauses = NOWHERE, 0
    rows = np.flatnonzero(snapshot.present)
    for first in range(0, rows.size, CHUNK_NODES):
        part: Feasibility | None = None
        while part is None:
            allowance = Allowance(CHUNK_STEPS) if pauses < _PAUSES else Allowance()
            # Nodes may have left since a pause.
            chunk = rows[first : first + CHUNK_NODES]
            chunk = chunk[snapshot.present[chunk]]
            try:
                part = feasibility(snapshot, question, now, cache, rows=chunk, allowance=allowance)
            except AllowanceUsedUp:
                pauses += 1
                yield None
        found = found.with_more(part)
        if first + CHUNK_NODES < rows.size:
            yield None
    if found.fits.size:
        yield PodVerdict(found, found.roomiest(snapshot), None)
        return
    names = tuple(snapshot.names[row] for row in found.helpable.tolist() if snapshot.present[row])
    for result in planning(snapshot, replace(question, nodes=NodeSelection(names=names)), now, cache):
        told = _with_left_out(question, result)
        if told is None:
            yield None
        else:
            yield PodVerdict(found, "", _checked(snapshot, question, told, found.excluded))


def _with_left_out(question: Question, found: Plan | PlanRefusal | None) -> Plan | PlanRefusal | None:
    """Return an answer; a refusal says what earlier orders for the preemptor left out of it."""
    if not isinstance(found, PlanRefusal) or found.reason == NEVER:
        return found
    message, retry_at = question.left_out.told(found.message, found.retry_at)
    return replace(found, message=message, retry_at=retry_at)


def _checked(
    snapshot: Snapshot, question: Question, found: Plan | PlanRefusal, excluded: dict[str, int]
) -> Plan | PlanRefusal:
    """Return the answer where the columns see all that matters; else the refusal that says what they do not.

    Where no node may be helped, why not is the refusal.
    """
    if isinstance(found, PlanRefusal):
        if found.scope.nodes_potential or not excluded:
            return found
        told = ", ".join(f"{count} {reason}" for reason, count in sorted(excluded.items()))
        return replace(found, message=f"{found.message}: {told}", node_reasons=excluded)
    if found.left_out:
        return _not_modelled(snapshot, question, ", ".join(found.left_out))
    if not found.candidates:
        nodes = ", ".join(one.node for one in found.unmodelled[:3])
        return _not_modelled(snapshot, question, f"what keeps it from node {nodes}")
    return replace(found, unmodelled=(), unmodelled_total=0)


def _told(verdict: PodVerdict) -> Plan | PlanRefusal | None:
    """Return the answer with the nodes that no removal helps among a refusal's reasons."""
    refusal = verdict.refusal
    if refusal is None:
        return verdict.result
    return replace(refusal, node_reasons={**verdict.found.excluded, **refusal.node_reasons})


def _fits(snapshot: Snapshot, question: Question, node: str) -> PlanRefusal:
    message = (
        f"{subject(question)} fits on node {node} as far as the planner sees: if the scheduler does not bind "
        "it, only its filters know the obstacle"
    )
    return PlanRefusal(_scope(snapshot), FITS, message)


def _not_modelled(snapshot: Snapshot, question: Question, what: str) -> PlanRefusal:
    message = f"{subject(question)}: only the scheduler's own filters can judge {what}"
    return PlanRefusal(_scope(snapshot), ONLY_FILTERS_KNOW, message)


def _scope(snapshot: Snapshot) -> Scope:
    return Scope(snapshot.revision, snapshot.node_count, 0)
