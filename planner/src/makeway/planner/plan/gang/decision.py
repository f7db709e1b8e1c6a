"""Decisions about groups as values, and the record that stays of each. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from makeway.bus.group_plan import GroupPlanRequest
from makeway.bus.messages import (
    DecisionRecord,
    GroupDecision,
    MemberPlacement,
    OrderedGroup,
    Preemptor,
    PricedDomain,
    TopologyDomain,
)
from makeway.core.k8s.pod_groups import GroupKey
from makeway.core.policy.document import GroupTerm
from makeway.planner.plan.decision import awaited_of, refusal_of, victim_of
from makeway.planner.plan.gang.question import GangQuestion
from makeway.planner.plan.gang.reply import group_price
from makeway.planner.plan.gang.result import GangPlan
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import PlanRefusal
from makeway.planner.snapshot.state import Snapshot


@dataclass(frozen=True, slots=True)
class GangDecision:
    """One planned request about a group with its answer; fields as of `Decision`.

    `min_count`: of the group as the planner knows it, 0 where it is no gang. `objective`: the policy's.
    """

    decision_id: str
    planner: str
    at: datetime
    request: GroupPlanRequest
    question: GangQuestion
    result: GangPlan | PlanRefusal
    policy_revision: str
    objective: tuple[GroupTerm, ...]
    min_count: int
    duration_seconds: float
    queue: str = ""
    looked_at_again: bool = False
    recording: str = ""

    @property
    def key(self) -> str:
        """Return the group's namespace/name."""
        return self.question.name

    @property
    def asked(self) -> Question:
        """Return the question about a member."""
        return self.question.classes[0].question

    @property
    def preemptor(self) -> Preemptor:
        """Name the group."""
        group = self.request.group
        return Preemptor(
            namespace=group.namespace,
            name=group.name,
            uid=group.uid,
            priority=group.priority,
            scheduler_name=self.asked.scheduler_name,
        )


def gang_decision(
    snapshot: Snapshot,
    request: GroupPlanRequest,
    question: GangQuestion,
    result: GangPlan | PlanRefusal,
    *,
    decision_id: str,
    planner: str,
    at: datetime,
    objective: tuple[GroupTerm, ...] | None = None,
    duration_seconds: float = 0.0,
    looked_at_again: bool = False,
) -> GangDecision:
    """Return a decision with what the snapshot says of its group. `objective`: where not the policy's."""
    key = GroupKey(request.group.namespace, request.group.name)
    known = snapshot.groups.records.get(key)
    return GangDecision(
        decision_id=decision_id,
        planner=planner,
        at=at,
        request=request,
        question=question,
        result=result,
        policy_revision=snapshot.exemptions.revision,
        objective=objective or snapshot.exemptions.policy.groups.objective,
        min_count=known.min_count if known is not None else 0,
        duration_seconds=duration_seconds,
        queue=snapshot.queues.path_of(question.classes[0].question.preemptor) if question.classes else "",
        looked_at_again=looked_at_again,
    )


def gang_record_of(decision: GangDecision) -> DecisionRecord:
    """Write the decision record: who goes where, who has to go by which rule, and what it costs."""
    result, request, question = decision.result, decision.request, decision.question
    planned = result if isinstance(result, GangPlan) else None
    refused = result if isinstance(result, PlanRefusal) else None
    return DecisionRecord(
        decision_id=decision.decision_id,
        request_id=request.request_id,
        kind="group",
        cluster_uid=request.cluster_uid,
        planner=decision.planner,
        at=decision.at,
        mode=request.mode,
        status="candidates" if planned else "refused",
        snapshot_revision=result.scope.revision,
        policy_revision=decision.policy_revision,
        queue=decision.queue,
        nodes_total=result.scope.nodes_total,
        nodes_potential=result.scope.nodes_potential,
        victims=tuple(victim_of(one.pod.node, one) for one in planned.victims) if planned else (),
        pdb_violations=planned.price.violations if planned else 0,
        diagnosis=refusal_of(refused) if refused else None,
        plan_duration_microseconds=int(decision.duration_seconds * 1_000_000),
        recording=decision.recording,
        left_to_verification=result.left_out,
        group=OrderedGroup(
            namespace=request.group.namespace,
            name=request.group.name,
            uid=request.group.uid,
            priority=request.group.priority,
            scheduler_name=question.classes[0].question.scheduler_name if question.classes else "",
            must_place=request.must_place,
            min_count=decision.min_count,
        ),
        group_plan=GroupDecision(
            members=question.total,
            objective=decision.objective,
            placements=tuple(
                MemberPlacement(member_class=one.member_class, node=one.node, count=one.count)
                for one in (planned.placements if planned else ())
            ),
            awaited=awaited_of(planned.awaited if planned else ()),
            domains=_domains(planned.domains) if planned else (),
            price=group_price(planned.price) if planned else None,
            priced=tuple(
                PricedDomain(
                    domains=_domains(one.domains),
                    placeable=one.placeable,
                    price=group_price(one.price) if one.price is not None else None,
                )
                for one in result.priced
            ),
            placeable=refused.placeable if refused else 0,
            missing=dict(refused.missing) if refused else {},
        ),
    )


def _domains(domains: tuple[tuple[str, str], ...]) -> tuple[TopologyDomain, ...]:
    return tuple(TopologyDomain(key=key, value=value) for key, value in domains)
