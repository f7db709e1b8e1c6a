"""Decisions as values: what was asked and answered, and the record of it that stays. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import msgspec

from makeway.bus import decisions, messages
from makeway.bus import plan as wire
from makeway.bus.decisions import DecisionRecord
from makeway.bus.plan import PlanRequest
from makeway.core.k8s.importance import NOT_STARTED, moment_of
from makeway.core.k8s.pod_groups import GroupKey
from makeway.core.policy.document import GroupTerm
from makeway.core.policy.lost_work import WHOLE
from makeway.core.policy.mode import Mode
from makeway.planner.plan.gang.question import GangQuestion
from makeway.planner.plan.lost_work import largest_of
from makeway.planner.plan.naming import as_victim
from makeway.planner.plan.price import Price
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import (
    AwaitedPod,
    ExemptPods,
    GangPlan,
    NearestNode,
    Plan,
    PlanCandidate,
    PlanRefusal,
    RemovablePod,
)
from makeway.planner.plan.terminating import overdue_at
from makeway.planner.snapshot.changes import RecordingEntry
from makeway.planner.snapshot.state import Snapshot


@dataclass(frozen=True, slots=True)
class Decision:
    """One planned request with its answer: what a decision record is written from, after the reply.

    `queue`: the preemptor's. `looked_at_again`: a refusal's `retry_at` is there since the snapshot was
    behind, or room is only pledged to others. `held_back`: nodes on which a preemption loop would go on
    were left out afterwards, which no recording knows. `recording`: where what it was decided from is kept.
    `min_count`: of the group as the planner knows it, 0 where it is no gang. `objective`: the terms by which
    a group's plan was chosen, empty for pods.
    """

    decision_id: str
    planner: str
    at: datetime
    request: PlanRequest
    question: Question | GangQuestion
    result: Plan | GangPlan | PlanRefusal
    policy_revision: str
    duration_seconds: float
    queue: str = ""
    looked_at_again: bool = False
    held_back: bool = False
    recording: str = ""
    objective: tuple[GroupTerm, ...] = ()
    min_count: int = 0

    @property
    def key(self) -> str:
        """Return what the preemptor is known by: a pod's UID, or a group's namespace/name."""
        question = self.question
        return question.name if isinstance(question, GangQuestion) else question.preemptor.uid

    @property
    def asked(self) -> Question:
        """Return the question about the pod, or a member of the group."""
        return self.question.each[0]

    @property
    def needs(self) -> dict[str, int]:
        """Return what the pod asks for, of a group's members each resource as the largest do."""
        return largest_of([one.needs for one in self.question.each])

    @property
    def refusal(self) -> PlanRefusal | None:
        """Return why there is no plan; None where there is one."""
        return self.result if isinstance(self.result, PlanRefusal) else None

    @property
    def chosen(self) -> tuple[RemovablePod, ...] | None:
        """Return the victims of the plan, of a pod's of the best candidate; None where there is none."""
        result = self.result
        if isinstance(result, Plan):
            return result.candidates[0].victims if result.candidates else None
        return result.victims if isinstance(result, GangPlan) else None

    @property
    def preemptor(self) -> messages.Preemptor:
        """Name the pod, or the group, that room is made for."""
        of = self.request.group or self.asked.preemptor
        return messages.Preemptor(
            namespace=of.namespace,
            name=of.name,
            uid=of.uid,
            priority=of.priority,
            scheduler_name=self.asked.scheduler_name,
        )


def decision_of(
    snapshot: Snapshot,
    request: PlanRequest,
    question: Question | GangQuestion,
    result: Plan | GangPlan | PlanRefusal,
    *,
    decision_id: str,
    planner: str,
    at: datetime,
    duration_seconds: float = 0.0,
    looked_at_again: bool = False,
    held_back: bool = False,
) -> Decision:
    """Return a decision with what the snapshot says of its preemptor."""
    policy, min_count = snapshot.exemptions, 0
    objective: tuple[GroupTerm, ...] = ()
    if (group := request.group) is not None:
        known = snapshot.groups.records.get(GroupKey(group.namespace, group.name))
        min_count = known.min_count if known is not None else 0
        objective = policy.policy.groups.objective
    return Decision(
        decision_id=decision_id,
        planner=planner,
        at=at,
        request=request,
        question=question,
        result=result,
        policy_revision=policy.revision,
        duration_seconds=duration_seconds,
        queue=snapshot.queues.path_of(question.each[0].preemptor),
        looked_at_again=looked_at_again,
        held_back=held_back,
        objective=objective,
        min_count=min_count,
    )


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
    running: frozenset[str] = frozenset()
    refused: dict[str, str] = msgspec.field(default_factory=dict)
    stuck: dict[str, str] = msgspec.field(default_factory=dict)
    began_need: dict[str, int] = msgspec.field(default_factory=dict)
    gates: frozenset[str] | None = None


def record_of(decision: Decision) -> DecisionRecord:
    """Write the decision record: what was looked at, what was chosen, by which rule, with which numbers."""
    result, request, refusal = decision.result, decision.request, decision.refusal
    planned = result if isinstance(result, Plan) else None
    gang = result if isinstance(result, GangPlan) else None
    best = planned.candidates[0] if planned and planned.candidates else None
    of_pod = request.group is None
    victims = victims_of(best) if best else ()
    if gang:
        victims = tuple(victim_of(one.pod.node, one) for one in gang.victims)
    return DecisionRecord(
        decision_id=decision.decision_id,
        request_id=request.request_id,
        kind="pod" if of_pod else "group",
        cluster_uid=request.cluster_uid,
        planner=decision.planner,
        at=decision.at,
        mode=request.mode,
        status="refused" if refusal else "candidates",
        snapshot_revision=result.scope.revision,
        policy_revision=decision.policy_revision,
        preemptor=decision.preemptor if of_pod else None,
        queue=decision.queue,
        nodes_total=result.scope.nodes_total,
        nodes_potential=result.scope.nodes_potential,
        candidates_total=planned.candidates_total if planned else 0,
        unmodelled_total=planned.unmodelled_total if planned else 0,
        nominated_node=best.node if best else "",
        victims=victims,
        pdb_violations=best.pdb_violations if best else gang.price.violations if gang else 0,
        candidates=tuple(_ranked(candidate) for candidate in planned.candidates) if planned else (),
        diagnosis=refusal_of(refusal) if refusal else None,
        spared_by_rule=refusal.exempt if refusal else {},
        nearest=tuple(_near(one) for one in refusal.nearest) if refusal else (),
        plan_duration_microseconds=int(decision.duration_seconds * 1_000_000),
        recording=decision.recording,
        ahead=request.ahead,
        left_to_verification=result.left_out,
        group=_ordered_group(decision, request.group) if request.group is not None else None,
        group_plan=_group_decision(decision, decision.question, gang, refusal)
        if isinstance(decision.question, GangQuestion)
        else None,
    )


def _ordered_group(decision: Decision, group: wire.GroupPreemptor) -> messages.OrderedGroup:
    return messages.OrderedGroup(
        namespace=group.namespace,
        name=group.name,
        uid=group.uid,
        priority=group.priority,
        scheduler_name=decision.asked.scheduler_name,
        must_place=decision.request.must_place,
        min_count=decision.min_count,
    )


def _group_decision(
    decision: Decision, question: GangQuestion, plan: GangPlan | None, refusal: PlanRefusal | None
) -> decisions.GroupDecision:
    """Write down who goes where, and what it costs."""
    looked_at = plan.priced if plan else refusal.priced if refusal else ()
    return decisions.GroupDecision(
        members=question.total,
        objective=decision.objective,
        placements=plan.placements if plan else (),
        awaited=awaited_of(plan.awaited) if plan else (),
        domains=domains_of(plan.domains) if plan else (),
        price=price_of(plan.price) if plan else None,
        priced=tuple(
            decisions.PricedDomain(
                domains=domains_of(one.domains),
                placeable=one.placeable,
                price=price_of(one.price) if one.price is not None else None,
            )
            for one in looked_at
        ),
        placeable=refusal.placeable if refusal else 0,
        missing=dict(refusal.missing) if refusal else {},
    )


def domains_of(domains: Iterable[tuple[str, str]]) -> tuple[wire.TopologyDomain, ...]:
    """Write topology domains down."""
    return tuple(wire.TopologyDomain(key=key, value=value) for key, value in domains)


def price_of(price: Price) -> wire.GroupPrice | None:
    """Write a price down; None where there are no victims."""
    if not price.victims:
        return None
    return wire.GroupPrice(
        pdb_violations=price.violations,
        highest_priority=price.highest,
        groups_broken=price.broken,
        lost_work_seconds=price.lost_work // WHOLE,
        highest_victims=price.highest_victims,
        priority_sum=price.priority_sum,
        victims=price.victims,
    )


def refusal_of(refusal: PlanRefusal) -> wire.Refusal:
    """Write a refusal down."""
    return wire.Refusal(
        reason=refusal.reason,
        message=refusal.message,
        node_reasons=refusal.node_reasons,
        retry_at=refusal.retry_at,
        depends_on=tuple(
            wire.Dependency(kind=kind, namespace=namespace, name=name)
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
    return as_victim(
        one.pod,
        one.rule,
        node=one.pod.node if one.unit else node,
        pdb_violating=one.pdb_violating,
        assumed=not one.pod.node,
        detail=one.detail,
        unit=one.unit,
        closes=one.closes,
    )


def _ranked(candidate: PlanCandidate) -> decisions.RankedCandidate:
    return decisions.RankedCandidate(
        node=candidate.node,
        victims=victims_of(candidate),
        awaited=awaited_of(candidate.awaited),
        pdb_violations=candidate.pdb_violations,
        highest_priority=candidate.highest_priority,
        lost_work_seconds=candidate.lost_work // WHOLE,
        priority_sum=candidate.priority_sum,
        latest_start=None if candidate.start_micros == NOT_STARTED else moment_of(candidate.start_micros),
        decided_by=candidate.decided_by,
        spared=_exempt_pods(candidate.exempt),
        spared_total=candidate.exempt.total,
    )


def _near(near: NearestNode) -> decisions.NearNode:
    return decisions.NearNode(
        node=near.node, missing=near.missing, spared=_exempt_pods(near.exempt), spared_total=near.exempt.total
    )


def _exempt_pods(exempt: ExemptPods) -> tuple[decisions.Spared, ...]:
    return tuple(
        decisions.Spared(
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
