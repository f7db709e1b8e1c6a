"""From a pair of a group to a comparison: both choices judged by the terms of the plan. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from makeway.bus import messages
from makeway.bus.comparison import Choice, ComparedGroup, Comparison, ComparisonResult
from makeway.core.comparison import Judgement, RelativeRank, RemovedPod, judge
from makeway.core.k8s.importance import NOT_STARTED, moment_of
from makeway.core.policy.document import GroupTerm
from makeway.core.policy.rules import LOWER_PRIORITY
from makeway.planner.observe.comparing import UNSEEN, Certainty, gone, since
from makeway.planner.observe.gang_pairing import ComparedGang, ExpectedGang
from makeway.planner.plan.constraints.budgets import debits_before
from makeway.planner.plan.gang.decision import GangDecision
from makeway.planner.plan.gang.reply import refusal_of
from makeway.planner.plan.gang.result import GangPlan, GangRefusal
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

RULE_OF: Final[Mapping[GroupTerm, str]] = {
    "budgets": "fewest-pdb-violations",
    "highestPriority": "lowest-highest-priority",
    "groups": "fewest-groups-broken",
    "prioritySum": "lowest-priority-sum",
    "victims": "fewest-victims",
}
"""What decides between two choices, as comparisons of pods name it."""


@dataclass(frozen=True, slots=True)
class ObservedGang:
    """A decision about a group, as it is kept until it is known what others did; as `Observed`."""

    decision: GangDecision
    own: tuple[RemovedPod, ...] | None
    certainty: Certainty | None = None


def observed_gang(
    snapshot: Snapshot, decision: GangDecision, certainty: Certainty | None = None
) -> ObservedGang:
    """Keep a decision with what its comparison will need of the snapshot that it was made on."""
    result = decision.result
    own = tuple(gone(snapshot, one.pod) for one in result.victims) if isinstance(result, GangPlan) else None
    return ObservedGang(decision, own, certainty)


def expected_gang(snapshot: Snapshot, decision: GangDecision) -> ExpectedGang:
    """Return what pairing needs to know of a decision. O(budgets + victims)."""
    group, result = decision.request.group, decision.result
    first = decision.question.classes[0].question
    going = first.leaving | first.in_flight.keys()
    taken = debits_before(snapshot, going, first.allowed_before)
    budgets = (snapshot.budgets.get(key) for key in snapshot.budgets.keys())  # noqa: SIM118 - no mapping
    return ExpectedGang(
        decision_id=decision.decision_id,
        group=f"{group.namespace}/{group.name}",
        priority=group.priority,
        scheduler=first.scheduler_name,
        at=decision.at,
        victims=frozenset(one.pod.uid for one in (result.victims if isinstance(result, GangPlan) else ())),
        allowed={one.key: one.allowed - taken.get(one.key, 0) for one in budgets if one is not None},
    )


def compare_gangs(
    one: Judgement, other: Judgement, objective: Iterable[GroupTerm]
) -> tuple[RelativeRank, str]:
    """Return how one choice for a group stands beside another, and the rule that decides; equal by none."""
    for term in objective:
        own, others = _term(one, term), _term(other, term)
        if own != others:
            return ("better" if own < others else "worse"), RULE_OF[term]
    return "equal", ""


def comparison_of_gang(
    seen: ObservedGang, pair: ComparedGang, planner: str, now: messages.Time
) -> Comparison | None:
    """Return what a pair comes to; None where there is nothing to compare, as of a pod."""
    decision, allowed, certainty = seen.decision, pair.expected.allowed, seen.certainty
    if certainty is not None and not pair.evicted:
        return None
    ours = None if seen.own is None else judge(seen.own, allowed)
    theirs = judge((mark.gone for mark in pair.evicted), allowed) if pair.evicted else None
    if theirs is None and (pair.bound or (ours is None and pair.nominated_at is None)):
        return None
    result, decided_by, note = _verdict(seen, pair, ours, theirs)
    group, question = decision.request.group, decision.question
    refused = decision.result if isinstance(decision.result, GangRefusal) else None
    last = max((mark.at for mark in pair.evicted), default=None)
    return Comparison(
        decision_id=decision.decision_id,
        cluster_uid=decision.request.cluster_uid,
        planner=planner,
        at=now,
        planned_at=decision.at,
        preemptor=messages.Preemptor(
            namespace=group.namespace,
            name=group.name,
            uid=group.uid,
            priority=group.priority,
            scheduler_name=pair.expected.scheduler,
        ),
        result=result,
        queue=decision.queue,
        decided_by=decided_by,
        makeway=_own_choice(decision.result, ours),
        default_preemption=_their_choice(pair, theirs),
        refusal=refusal_of(refused) if refused is not None else None,
        plan_duration_microseconds=int(decision.duration_seconds * 1_000_000),
        nominated_after_microseconds=since(decision.at, pair.nominated_at),
        evicted_after_microseconds=since(decision.at, last),
        shared=pair.shared,
        note=note,
        asked=certainty is None,
        left_to_verification=certainty.left_out if certainty else decision.result.left_out,
        restored_pods=certainty.restored if certainty else 0,
        past_complete=certainty.complete if certainty else True,
        planned_after_microseconds=round(certainty.after.total_seconds() * 1_000_000) if certainty else 0,
        group=ComparedGroup(
            members=question.total, must_place=question.must_place, objective=decision.objective
        ),
    )


def _verdict(
    seen: ObservedGang, pair: ComparedGang, ours: Judgement | None, theirs: Judgement | None
) -> tuple[ComparisonResult, str, str]:
    if theirs is None:
        return ("undetermined", "", UNSEEN) if pair.nominated_at is not None else ("makewayOnly", "", "")
    result = seen.decision.result
    if ours is None or isinstance(result, GangRefusal):
        return "defaultOnly", "", ""
    if pair.expected.victims == {mark.gone.uid for mark in pair.evicted} and _nodes(result) == pair.nodes:
        return "same", "", ""
    found, rule = compare_gangs(ours, theirs, seen.decision.objective)
    return found, rule, ""


def _term(judgement: Judgement, term: GroupTerm) -> int:
    match term:
        case "budgets":
            return len(judgement.violating)
        case "highestPriority":
            return judgement.highest_priority
        case "groups":
            return judgement.groups_broken
        case "prioritySum":
            return judgement.priority_sum
        case "victims":
            return judgement.victims


def _nodes(plan: GangPlan) -> tuple[str, ...]:
    return tuple(sorted({one.node for one in plan.placements}))


def _own_choice(result: GangPlan | GangRefusal, judgement: Judgement | None) -> Choice | None:
    if judgement is None or not isinstance(result, GangPlan):
        return None
    return _choice(_nodes(result), [(one.pod, one.rule) for one in result.victims], judgement)


def _their_choice(pair: ComparedGang, judgement: Judgement | None) -> Choice | None:
    if judgement is None:
        return Choice(node=pair.nodes[0], nodes=pair.nodes) if pair.nodes else None
    return _choice(pair.nodes, [(mark.pod, LOWER_PRIORITY) for mark in pair.evicted], judgement)


def _choice(nodes: tuple[str, ...], pods: list[tuple[PodRecord, str]], judgement: Judgement) -> Choice | None:
    nodes = nodes or tuple(sorted({pod.node for pod, _ in pods}))
    victims = tuple(
        messages.Victim(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            node=pod.node,
            priority=pod.priority,
            grace_period_seconds=pod.grace_period_seconds,
            rule=rule,
            pdb_violating=pod.uid in judgement.violating,
        )
        for pod, rule in sorted(pods, key=lambda one: one[0].importance)
    )
    start = judgement.start_micros
    return Choice(
        node=nodes[0],
        nodes=nodes,
        victims=victims,
        pdb_violations=len(judgement.violating),
        groups_broken=judgement.groups_broken,
        highest_priority=judgement.highest_priority if victims else 0,
        priority_sum=judgement.priority_sum,
        latest_start=None if start == NOT_STARTED else moment_of(start),
    )
