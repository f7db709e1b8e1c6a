"""From a plan for a group to the reply that the plugin waits for."""

from __future__ import annotations

from makeway.bus.group_plan import (
    GroupPlan,
    GroupPlanReply,
    GroupVictim,
)
from makeway.bus.messages import (
    API_VERSION,
    GroupPrice,
    MemberPlacement,
    Refusal,
    TopologyDomain,
)
from makeway.planner.plan.decision import awaited_of, refusal_of
from makeway.planner.plan.gang.price import Price
from makeway.planner.plan.gang.result import GangPlan
from makeway.planner.plan.result import PlanRefusal


def reply_of(
    result: GangPlan | PlanRefusal,
    *,
    request_id: str,
    planner: str,
    decision_id: str,
    policy_revision: str,
) -> GroupPlanReply:
    """Write the reply to a planned request."""
    planned = result if isinstance(result, GangPlan) else None
    return GroupPlanReply(
        api_version=API_VERSION,
        request_id=request_id,
        planner=planner,
        status="candidates" if planned else "refused",
        snapshot_revision=result.scope.revision,
        policy_revision=policy_revision,
        decision_id=decision_id,
        plan=_plan(planned) if planned else None,
        refusal=refusal_of(result) if isinstance(result, PlanRefusal) else None,
        left_to_verification=result.left_out,
    )


def unplanned(*, request_id: str, planner: str, reason: str, message: str) -> GroupPlanReply:
    """Write the reply to a request that is not planned; as of a plan request for a pod."""
    return GroupPlanReply(
        api_version=API_VERSION,
        request_id=request_id,
        planner=planner,
        status="notSynced",
        refusal=Refusal(reason=reason, message=message),
    )


def group_price(price: Price) -> GroupPrice | None:
    """Write a price down; None where nothing has to go."""
    if not price.victims:
        return None
    return GroupPrice(
        pdb_violations=price.violations,
        highest_priority=price.highest,
        groups_broken=price.broken,
        highest_victims=price.highest_victims,
        priority_sum=price.priority_sum,
        victims=price.victims,
    )


def _plan(plan: GangPlan) -> GroupPlan:
    return GroupPlan(
        placements=tuple(
            MemberPlacement(member_class=one.member_class, node=one.node, count=one.count)
            for one in plan.placements
        ),
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
        domains=tuple(TopologyDomain(key=key, value=value) for key, value in plan.domains),
        price=group_price(plan.price),
    )
