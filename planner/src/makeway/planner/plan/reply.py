"""From a plan to the reply that the plugin waits for."""

from __future__ import annotations

from makeway.bus import plan as wire
from makeway.bus.commit import Offer, offered
from makeway.bus.messages import API_VERSION
from makeway.bus.plan import GroupPlan, PlanReply
from makeway.planner.plan.decision import Decision, awaited_of, domains_of, price_of, refusal_of
from makeway.planner.plan.result import GangPlan, Plan, PlanCandidate


def reply_of(decision: Decision, offer: str = "") -> PlanReply:
    """Write the reply to a planned request. `offer`: what a commit may name, sealed."""
    result, request, refusal = decision.result, decision.request, decision.refusal
    plan = result if isinstance(result, Plan) else None
    return PlanReply(
        api_version=API_VERSION,
        request_id=request.request_id,
        planner=decision.planner,
        status="refused" if refusal else "candidates",
        snapshot_revision=result.scope.revision,
        policy_revision=decision.policy_revision,
        decision_id=decision.decision_id,
        candidates=tuple(_candidate(one) for one in plan.candidates) if plan else (),
        unmodelled=tuple(_candidate(one) for one in plan.unmodelled) if plan else (),
        unmodelled_total=plan.unmodelled_total if plan else 0,
        plan=_group_plan(result) if isinstance(result, GangPlan) else None,
        refusal=refusal_of(refusal) if refusal else None,
        sample=_candidate(refusal.sample) if refusal and refusal.sample else None,
        left_to_verification=result.left_out if request.group is not None else (),
        offer=offer,
    )


def offer_of(decision: Decision, cluster_uid: str) -> Offer:
    """Write down what a commit may name: what is removable on each node, or a group's victims wherever."""
    question, plan = decision.asked, decision.result
    gang = plan if isinstance(plan, GangPlan) else None
    nodes = (*plan.candidates, *plan.unmodelled) if isinstance(plan, Plan) else ()
    bound = gang is None and bool(question.daemonset_node)
    removable = [(node.node, one) for node in nodes for one in node.removable]
    removable += [("", one) for one in (gang.victims if gang else ())]
    return Offer(
        decision_id=decision.decision_id,
        cluster_uid=cluster_uid,
        preemptor_uid=decision.preemptor.uid,
        at=decision.at,
        pods=offered((node, one.pod.uid) for node, one in removable),
        violating=offered((node, one.pod.uid) for node, one in removable if one.pdb_violating),
        closing={one.pod.uid: one.closes for one in (gang.victims if gang else ()) if one.closes is not None},
        daemonset_node=question.daemonset_node if bound else "",
        unfit_since=question.unfit_since if bound else None,
    )


def unplanned(*, request_id: str, planner: str, reason: str, message: str) -> PlanReply:
    """Write the reply to a request that is not planned: `reason` is a constant, `message` a sentence.

    Its status is that of a planner that is not ready, so that the plugin does not take it for a no.
    """
    return PlanReply(
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
                lost_work=one.lost_work,
            )
            for one in candidate.removable
        ),
        awaited=awaited_of(candidate.awaited),
        pdb_violations=candidate.pdb_violations,
        max_victims=candidate.max_victims,
    )


def _group_plan(plan: GangPlan) -> GroupPlan:
    return GroupPlan(
        placements=plan.placements,
        victims=tuple(
            wire.Removable(
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
