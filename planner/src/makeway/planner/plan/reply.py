"""From a plan to the reply that the plugin waits for."""

from __future__ import annotations

from makeway.bus import messages
from makeway.bus.messages import API_VERSION, PlanReply
from makeway.planner.plan.decision import awaited_of, refusal_of
from makeway.planner.plan.result import Plan, PlanCandidate, PlanRefusal


def reply_of(
    result: Plan | PlanRefusal, *, request_id: str, planner: str, decision_id: str, policy_revision: str
) -> PlanReply:
    """Write the reply to a planned request."""
    if isinstance(result, PlanRefusal):
        return PlanReply(
            api_version=API_VERSION,
            request_id=request_id,
            planner=planner,
            status="refused",
            snapshot_revision=result.scope.revision,
            policy_revision=policy_revision,
            decision_id=decision_id,
            refusal=refusal_of(result),
            sample=None if result.sample is None else _candidate(result.sample),
        )
    return PlanReply(
        api_version=API_VERSION,
        request_id=request_id,
        planner=planner,
        status="candidates",
        snapshot_revision=result.scope.revision,
        policy_revision=policy_revision,
        decision_id=decision_id,
        candidates=tuple(_candidate(candidate) for candidate in result.candidates),
        unmodelled=tuple(_candidate(candidate) for candidate in result.unmodelled),
        unmodelled_total=result.unmodelled_total,
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
        refusal=messages.Refusal(reason=reason, message=message),
    )


def _candidate(candidate: PlanCandidate) -> messages.Candidate:
    return messages.Candidate(
        node=candidate.node,
        removable=tuple(
            messages.Removable(
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
