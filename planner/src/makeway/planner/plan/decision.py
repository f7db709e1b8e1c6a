"""Decisions as values: what was asked and answered, and the record of it that stays. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import msgspec

from makeway.bus import messages
from makeway.bus.messages import DecisionRecord, PlanRequest
from makeway.core.k8s.importance import NOT_STARTED, moment_of
from makeway.core.policy.mode import Mode
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import (
    AwaitedPod,
    ExemptPods,
    NearestNode,
    Plan,
    PlanCandidate,
    PlanRefusal,
    RemovablePod,
)
from makeway.planner.plan.terminating import overdue_at
from makeway.planner.snapshot.changes import RecordingEntry


@dataclass(frozen=True, slots=True)
class Decision:
    """One planned request with its answer: what a decision record is written from, after the reply.

    `queue`: the preemptor's. `looked_at_again`: a refusal's `retry_at` is there since the snapshot was
    behind. `held_back`: what goes on with a preemption loop was left out afterwards, which no recording
    knows. `recording`: where what it was decided from is kept.
    """

    decision_id: str
    planner: str
    at: datetime
    request: PlanRequest
    question: Question
    result: Plan | PlanRefusal
    policy_revision: str
    duration_seconds: float
    queue: str = ""
    looked_at_again: bool = False
    held_back: bool = False
    recording: str = ""

    @property
    def key(self) -> str:
        """Return what the preemptor is known by: its UID."""
        return self.question.preemptor.uid

    @property
    def asked(self) -> Question:
        """Return the question about one pod; of a group about a member."""
        return self.question

    @property
    def preemptor(self) -> messages.Preemptor:
        """Name the pod."""
        return preemptor_of(self.question)


class QuotaInputs(RecordingEntry, frozen=True, tag=16, gc=False):
    """What was known besides the snapshot when a quota was planned for, as recordings hold it.

    `maximum`: what the queue is brought down to. `leaving`: UIDs that orders remove. `running`: queues that
    other processes run for. `refused`, `stuck`: why pods could not be evicted before, by UID. `began_need`:
    what had to go when the process began. `gates`: the names of the scheduler profiles that have the queue
    gate; None where that does not matter.
    """

    decision_id: str
    at: datetime
    queue: str
    maximum: dict[str, int]
    mode: Mode
    leaving: frozenset[str]
    running: frozenset[str]
    refused: dict[str, str]
    stuck: dict[str, str]
    began_need: dict[str, int] = msgspec.field(default_factory=dict)
    gates: frozenset[str] | None = None


def record_of(decision: Decision) -> DecisionRecord:
    """Write the decision record: what was looked at, what was chosen, by which rule, with which numbers."""
    result, request = decision.result, decision.request
    planned = result if isinstance(result, Plan) else None
    best = planned.candidates[0] if planned and planned.candidates else None
    return DecisionRecord(
        decision_id=decision.decision_id,
        request_id=request.request_id,
        kind="pod",
        cluster_uid=request.cluster_uid,
        planner=decision.planner,
        at=decision.at,
        mode=request.mode,
        status="candidates" if planned else "refused",
        snapshot_revision=result.scope.revision,
        policy_revision=decision.policy_revision,
        preemptor=preemptor_of(decision.question),
        queue=decision.queue,
        nodes_total=result.scope.nodes_total,
        nodes_potential=result.scope.nodes_potential,
        candidates_total=planned.candidates_total if planned else 0,
        unmodelled_total=planned.unmodelled_total if planned else 0,
        nominated_node=best.node if best else "",
        victims=victims_of(best) if best else (),
        pdb_violations=best.pdb_violations if best else 0,
        candidates=tuple(_ranked(candidate) for candidate in planned.candidates) if planned else (),
        diagnosis=refusal_of(result) if isinstance(result, PlanRefusal) else None,
        spared_by_rule=result.exempt if isinstance(result, PlanRefusal) else {},
        nearest=tuple(_near(one) for one in result.nearest) if isinstance(result, PlanRefusal) else (),
        plan_duration_microseconds=int(decision.duration_seconds * 1_000_000),
        recording=decision.recording,
        ahead=request.ahead,
        left_to_verification=result.left_out,
    )


def refusal_of(refusal: PlanRefusal) -> messages.Refusal:
    """Write a refusal down."""
    return messages.Refusal(
        reason=refusal.reason,
        message=refusal.message,
        node_reasons=refusal.node_reasons,
        retry_at=refusal.retry_at,
        depends_on=tuple(
            messages.Dependency(kind=kind, namespace=namespace, name=name)
            for kind, namespace, name in refusal.depends_on
        ),
    )


def awaited_of(pods: Iterable[AwaitedPod]) -> tuple[messages.Awaited, ...]:
    """Name pods that leave anyway: each with the order that removes it, or how long it is waited for."""
    return tuple(
        messages.Awaited(uid=one.pod.uid, order_id=one.order_id)
        if one.order_id
        else messages.Awaited(
            uid=one.pod.uid,
            namespace=one.pod.namespace,
            name=one.pod.name,
            until=overdue_at([one.pod]),
        )
        for one in pods
    )


def victims_of(candidate: PlanCandidate) -> tuple[messages.Victim, ...]:
    """Name the pods that must go."""
    return tuple(victim_of(candidate.node, one) for one in candidate.victims)


def victim_of(node: str, one: RemovablePod) -> messages.Victim:
    """Write down a pod that has to go; `node`: where a pod runs that goes by itself."""
    return messages.Victim(
        namespace=one.pod.namespace,
        name=one.pod.name,
        uid=one.pod.uid,
        node=one.pod.node if one.unit else node,
        priority=one.pod.priority,
        grace_period_seconds=one.pod.grace_period_seconds,
        rule=one.rule,
        pdb_violating=one.pdb_violating,
        assumed=not one.pod.node,
        detail=one.detail,
        unit=one.unit,
        closes=one.closes,
    )


def _ranked(candidate: PlanCandidate) -> messages.RankedCandidate:
    return messages.RankedCandidate(
        node=candidate.node,
        victims=victims_of(candidate),
        awaited=awaited_of(candidate.awaited),
        pdb_violations=candidate.pdb_violations,
        highest_priority=candidate.highest_priority,
        priority_sum=candidate.priority_sum,
        latest_start=None if candidate.start_micros == NOT_STARTED else moment_of(candidate.start_micros),
        decided_by=candidate.decided_by,
        spared=_exempt_pods(candidate.exempt),
        spared_total=candidate.exempt.total,
    )


def _near(near: NearestNode) -> messages.NearNode:
    return messages.NearNode(
        node=near.node, missing=near.missing, spared=_exempt_pods(near.exempt), spared_total=near.exempt.total
    )


def _exempt_pods(exempt: ExemptPods) -> tuple[messages.Spared, ...]:
    return tuple(
        messages.Spared(
            namespace=one.pod.namespace,
            name=one.pod.name,
            uid=one.pod.uid,
            priority=one.pod.priority,
            rule=one.verdict.rule,
            detail=one.verdict.detail,
            until=one.verdict.until,
        )
        for one in exempt.pods
    )


def preemptor_of(question: Question) -> messages.Preemptor:
    """Name the pod that room is made for."""
    pod = question.preemptor
    return messages.Preemptor(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        priority=pod.priority,
        scheduler_name=question.scheduler_name,
    )
