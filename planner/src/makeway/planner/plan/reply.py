"""From a plan to the reply that the plugin waits for."""

from __future__ import annotations

from typing import TypeVar

from makeway.bus import plan as wire
from makeway.bus.group_plan import GroupPlan, GroupPlanReply, GroupVictim
from makeway.bus.messages import API_VERSION
from makeway.bus.plan import PlanReply
from makeway.planner.plan.decision import awaited_of, domains_of, placements_of, price_of, refusal_of
from makeway.planner.plan.gang.result import GangPlan
from makeway.planner.plan.result import Plan, PlanCandidate, PlanRefusal

_R = TypeVar("_R", bound=PlanReply | GroupPlanReply)


def reply_of(
    result: Plan | PlanRefusal, *, request_id: str, planner: str, decision_id: str, policy_revision: str
) -> PlanReply:
    """Write the reply to a planned request about a pod."""
    plan = result if isinstance(result, Plan) else None
    refusal = result if isinstance(result, PlanRefusal) else None
    return PlanReply(
        api_version=API_VERSION,
        request_id=request_id,
        planner=planner,
        status="candidates" if plan else "refused",
        snapshot_revision=result.scope.revision,
        policy_revision=policy_revision,
        decision_id=decision_id,
        candidates=tuple(_candidate(one) for one in plan.candidates) if plan else (),
        unmodelled=tuple(_candidate(one) for one in plan.unmodelled) if plan else (),
        unmodelled_total=plan.unmodelled_total if plan else 0,
        refusal=refusal_of(refusal) if refusal else None,
        sample=_candidate(refusal.sample) if refusal and refusal.sample else None,
    )


def group_reply_of(
    result: GangPlan | PlanRefusal, *, request_id: str, planner: str, decision_id: str, policy_revision: str
) -> GroupPlanReply:
    """Write the reply to a planned request about a group."""
    plan = result if isinstance(result, GangPlan) else None
    return GroupPlanReply(
        api_version=API_VERSION,
        request_id=request_id,
        planner=planner,
        status="candidates" if plan else "refused",
        snapshot_revision=result.scope.revision,
        policy_revision=policy_revision,
        decision_id=decision_id,
        plan=_group_plan(plan) if plan else None,
        refusal=refusal_of(result) if isinstance(result, PlanRefusal) else None,
        left_to_verification=result.left_out,
    )


def unplanned(kind: type[_R], *, request_id: str, planner: str, reason: str, message: str) -> _R:
    """Write the reply to a request that is not planned: `reason` is a constant, `message` a sentence.

    Its status is that of a planner that is not ready, so that the plugin does not take it for a no.
    """
    return kind(
        api_version=API_VERSION,
        request_id=request_id,
        planner=planner,
        status="notSynced",
        refusal=wire.Refusal(reason=reason, message=message),
    )


def _candidate(candidate: PlanCandidate) -> wire.Candidate:
    return wire.Candidate(
        node=candidate.node,
        removable=tuple(
            wire.Removable(
                uid=one.pod.uid,
                rule=one.rule,
                victim=one.victim,
                pdb_violating=one.pdb_violating,
                unit=one.unit,
                node=one.pod.node if one.unit and one.pod.node != candidate.node else "",
            )
            for one in candidate.removable
        ),
        awaited=awaited_of(candidate.awaited),
        pdb_violations=candidate.pdb_violations,
        max_victims=candidate.max_victims,
    )


def _group_plan(plan: GangPlan) -> GroupPlan:
    return GroupPlan(
        placements=placements_of(plan.placements),
        victims=tuple(
            GroupVictim(
                uid=one.pod.uid,
                node=one.pod.node,
                rule=one.rule,
                pdb_violating=one.pdb_violating,
                unit=one.unit,
                closes=one.closes,
            )
            for one in plan.victims
        ),
        awaited=awaited_of(plan.awaited),
        domains=domains_of(plan.domains),
        price=price_of(plan.price),
    )
