"""One pod on one cluster, as scheduler and planner see it: it fits, it may preempt, or neither. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from makeway.bus.messages import NodeSelection
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.feasibility import Feasibility, feasibility
from makeway.planner.plan.planner import plan
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanCandidate, PlanRefusal, Scope
from makeway.planner.snapshot.state import Snapshot

GATED: Final = "SchedulingGated"
UNMODELLED: Final = "OnlyFiltersKnow"
NAMED: Final = 3
"""Nodes that such a refusal names."""


@dataclass(frozen=True, slots=True)
class PodVerdict:
    """What was found: `node` where it fits; else a plan with candidates, or a refusal."""

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


def judge_pod(snapshot: Snapshot, question: Question, now: datetime, cache: PlanCache) -> PodVerdict:
    """Ask the filters that columns know, then the planner. O(slots · nodes)."""
    found = feasibility(snapshot, question, now, cache)
    if found.fits.size:
        return PodVerdict(found, found.roomiest(snapshot), None)
    names = tuple(snapshot.names[row] for row in found.helpable.tolist())
    result = plan(snapshot, replace(question, nodes=NodeSelection(names=names)), now, cache)
    if isinstance(result, PlanRefusal):
        return PodVerdict(found, "", result if names else _excluded(result, found))
    return PodVerdict(found, "", result if result.candidates else _unmodelled(result, question))


def _excluded(refusal: PlanRefusal, found: Feasibility) -> PlanRefusal:
    """Return why no node may be helped."""
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(found.excluded.items()))
    message = f"{refusal.message}: {told}" if told else refusal.message
    return replace(refusal, message=message, node_reasons=found.excluded)


def _unmodelled(found: Plan, question: Question) -> PlanRefusal:
    nodes = ", ".join(candidate.node for candidate in found.unmodelled[:NAMED])
    pod = f"pod {question.preemptor.namespace}/{question.preemptor.name}"
    message = f"{pod} lacks nothing that removing pods would give on {nodes or 'any node'}: only the "
    return PlanRefusal(found.scope, UNMODELLED, message + "scheduler's own filters know who would have to go")


def gated(snapshot: Snapshot, question: Question, gates: tuple[str, ...]) -> PlanRefusal:
    """Refuse a pod that its scheduling gates hold back, so that no scheduler looks at it."""
    pod = f"pod {question.preemptor.namespace}/{question.preemptor.name}"
    message = f"{pod} is held back by its scheduling gates: {', '.join(gates)}"
    return PlanRefusal(Scope(snapshot.revision, snapshot.node_count, 0), GATED, message)
