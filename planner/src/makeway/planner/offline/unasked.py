"""Refusals of pods about which no planner is asked. Pure."""

from __future__ import annotations

from typing import Final

from makeway.planner.plan.refusal.text import subject
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import PlanRefusal, Scope
from makeway.planner.snapshot.state import Snapshot

GATED: Final = "SchedulingGated"
NOT_ADMITTED: Final = "NotAdmitted"
"""The API server does not store the pod."""


def gated(snapshot: Snapshot, question: Question, gates: tuple[str, ...]) -> PlanRefusal:
    """Refuse a pod that its scheduling gates hold back, so that no scheduler looks at it."""
    message = f"{subject(question)} is held back by its scheduling gates: {', '.join(gates)}"
    return PlanRefusal(Scope(snapshot.revision, snapshot.node_count, 0), GATED, message)


def not_admitted(snapshot: Snapshot, message: str) -> PlanRefusal:
    """Refuse a pod that the API server does not store, or its group. `message`: as the server words it."""
    return PlanRefusal(Scope(snapshot.revision, snapshot.node_count, 0), NOT_ADMITTED, message)
