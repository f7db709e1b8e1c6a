"""From a pair to a comparison: both choices judged, and what that comes to. Pure.

The choices for a pod are ranked by kube-scheduler's rules, those for a group by the terms of its plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from makeway.bus.comparison import Choice, ComparedGroup, Comparison, ComparisonResult
from makeway.core.comparison import (
    LEAST_LOST_WORK,
    RULES,
    RULES_WITH_LOST_WORK,
    Judgement,
    RemovedPod,
    compare,
    judge,
)
from makeway.core.k8s.importance import NOT_STARTED, microseconds, moment_of
from makeway.core.policy.document import GroupTerm
from makeway.core.policy.lost_work import WHOLE
from makeway.core.policy.rules import LOWER_PRIORITY
from makeway.planner.observe.marks import ANYWHERE, Expected
from makeway.planner.observe.pairing import ComparedPair
from makeway.planner.plan.constraints.budgets import debits_before
from makeway.planner.plan.decision import Decision, refusal_of
from makeway.planner.plan.gang.question import GangQuestion
from makeway.planner.plan.lost_work import LostWorkOf, lost_work_of
from makeway.planner.plan.naming import as_victim
from makeway.planner.plan.result import GangPlan, Plan, PlanRefusal
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

UNMODELLED = "makeway had left the choice to the scheduler's filters, which are not asked in mode observe"
UNSEEN = "the pod was nominated, and no victim was seen"


@dataclass(frozen=True, slots=True)
class Certainty:
    """How good a plan is that no scheduler asked for.

    `left_out`: constraints of the preemptor that have no column. `restored`: pods that had left since the
    first mark and were put back for the plan. `complete`: no change since then was forgotten. `after`: how
    long after the first mark it was made.
    """

    left_out: tuple[str, ...] = ()
    restored: int = 0
    complete: bool = True
    after: timedelta = timedelta()


RULE_OF: Final[Mapping[GroupTerm, str]] = {
    "budgets": "fewest-pdb-violations",
    "highestPriority": "lowest-highest-priority",
    "groups": "fewest-groups-broken",
    "lostWork": LEAST_LOST_WORK,
    "highestVictims": "fewest-highest-priority-victims",
    "prioritySum": "lowest-priority-sum",
    "victims": "fewest-victims",
}
"""What decides between two choices for a group, as comparisons of pods name it."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A decision in mode `observe`, as it is kept until it is known what others did.

    `own`: the victims of its plan, of a pod's of the best candidate, with the budgets that cover them; None
    where there is none. `certainty`: of a plan that no scheduler asked for. `lost_work`: what victims lose by
    its measure; `ranked`: it decided.
    """

    decision: Decision
    own: tuple[RemovedPod, ...] | None
    lost_work: LostWorkOf
    ranked: bool
    certainty: Certainty | None = None


def gone(snapshot: Snapshot, pod: PodRecord) -> RemovedPod:
    """Return what judging looks at of a pod, with the budgets that cover it now."""
    keys = snapshot.budgets.covering_keys(pod.namespace, pod.name, pod.labels)
    share = snapshot.groups.share_of(pod)
    return RemovedPod(pod.uid, pod.priority, pod.start_micros, keys, share, snapshot.exemptions.work_of(pod))


def observed(snapshot: Snapshot, decision: Decision, certainty: Certainty | None = None) -> Observed:
    """Keep a decision with what its comparison will need of the snapshot that it was made on."""
    chosen = decision.chosen
    own = None if chosen is None else tuple(gone(snapshot, one.pod) for one in chosen)
    policy = snapshot.exemptions.policy.lost_work
    ranked = "lostWork" in decision.objective if decision.objective else policy.rank != "off"
    lost_work = lost_work_of(policy, decision.needs, microseconds(decision.at))
    return Observed(decision, own, lost_work, ranked, certainty)


def expected(snapshot: Snapshot, seen: Observed) -> Expected:
    """Return what pairing needs to know of a decision. O(budgets + candidates)."""
    decision, asked, result = seen.decision, seen.decision.asked, seen.decision.result
    taken = debits_before(snapshot, asked.leaving | asked.in_flight.keys(), asked.allowed_before)
    budgets = (snapshot.budgets.get(key) for key in snapshot.budgets.keys())  # noqa: SIM118 - no mapping
    victims: dict[str, frozenset[str]] = {}
    if isinstance(result, GangPlan):
        victims[ANYWHERE] = frozenset(one.pod.uid for one in result.victims)
    for candidate in result.candidates if isinstance(result, Plan) else ():
        victims[candidate.node] = frozenset(one.pod.uid for one in candidate.victims)
    return Expected(
        decision_id=decision.decision_id,
        key=decision.key,
        priority=asked.preemptor.priority,
        scheduler=asked.scheduler_name,
        at=decision.at,
        victims=victims,
        allowed={one.key: one.allowed - taken.get(one.key, 0) for one in budgets if one is not None},
        kept=seen,
    )


def comparison(seen: Observed, pair: ComparedPair, planner: str, now: datetime) -> Comparison | None:
    """Return what a pair comes to; None where there is nothing to compare. O(victims · log victims).

    That is: neither found a way, or a place was found without any eviction.
    """
    decision, allowed, certainty = seen.decision, pair.expected.allowed, seen.certainty
    if certainty is not None and not pair.evicted:
        return None
    lost = seen.lost_work.of
    ours = None if seen.own is None else judge(seen.own, allowed, lost)
    theirs = judge((mark.gone for mark in pair.evicted), allowed, lost) if pair.evicted else None
    if theirs is None and (pair.bound or (ours is None and pair.nominated_at is None)):
        return None
    result, decided_by, note = _verdict(pair, seen, ours, theirs)
    last = max((mark.at for mark in pair.evicted), default=None)
    planned, question, group = decision.result, decision.question, None
    if isinstance(question, GangQuestion):
        group = ComparedGroup(
            members=question.total, must_place=question.must_place, objective=decision.objective
        )
    refusal = decision.refusal
    own_nodes = () if isinstance(planned, PlanRefusal) else planned.nodes
    own = tuple((one.pod, one.rule) for one in decision.chosen or ())
    evicted = tuple((mark.pod, LOWER_PRIORITY) for mark in pair.evicted)
    return Comparison(
        decision_id=decision.decision_id,
        cluster_uid=decision.request.cluster_uid,
        planner=planner,
        at=now,
        planned_at=decision.at,
        preemptor=decision.preemptor,
        result=result,
        queue=decision.queue,
        decided_by=decided_by,
        makeway=_choice(own_nodes, own, ours, of_group=group is not None),
        default_preemption=_choice(pair.nodes, evicted, theirs, of_group=group is not None),
        refusal=refusal_of(refusal) if refusal is not None else None,
        plan_duration_microseconds=int(decision.duration_seconds * 1_000_000),
        nominated_after_microseconds=_since(decision.at, pair.nominated_at),
        evicted_after_microseconds=_since(decision.at, last),
        shared=pair.shared,
        note=note,
        asked=certainty is None,
        left_to_verification=certainty.left_out if certainty else planned.left_out,
        restored_pods=certainty.restored if certainty else 0,
        past_complete=certainty.complete if certainty else True,
        planned_after_microseconds=round(certainty.after.total_seconds() * 1_000_000) if certainty else 0,
        group=group,
    )


def _verdict(
    pair: ComparedPair, seen: Observed, ours: Judgement | None, theirs: Judgement | None
) -> tuple[ComparisonResult, str, str]:
    """Return the result, the rule that decides it, and what there is to say besides."""
    decision, result = seen.decision, seen.decision.result
    if theirs is None:
        return ("makewayOnly", "", "") if pair.nominated_at is None else ("undetermined", "", UNSEEN)
    if isinstance(result, PlanRefusal):
        return "defaultOnly", "", ""
    if ours is None:
        return "undetermined", "", UNMODELLED
    victims = {one.pod.uid for one in decision.chosen or ()}
    if result.nodes == pair.nodes and victims == {mark.gone.uid for mark in pair.evicted}:
        return "same", "", ""
    of_pods = RULES_WITH_LOST_WORK if seen.ranked else RULES
    rules = tuple(RULE_OF[term] for term in decision.objective) or of_pods
    return *compare(ours, theirs, rules), ""


def _choice(
    nodes: tuple[str, ...],
    pods: Sequence[tuple[PodRecord, str]],
    judgement: Judgement | None,
    *,
    of_group: bool,
) -> Choice | None:
    """Write a choice down; None where there is none. The pods of a unit may run on other nodes."""
    nodes = nodes or tuple(sorted({pod.node for pod, _ in pods}))
    if not nodes:
        return None
    told = nodes if of_group else ()
    if judgement is None:
        return Choice(node=nodes[0], nodes=told)
    victims = tuple(
        as_victim(pod, rule, node=pod.node or nodes[0], pdb_violating=pod.uid in judgement.violating)
        for pod, rule in sorted(pods, key=lambda one: one[0].importance)
    )
    start = judgement.start_micros
    return Choice(
        node=nodes[0],
        nodes=told,
        victims=victims,
        pdb_violations=len(judgement.violating),
        groups_broken=judgement.groups_broken,
        highest_priority=judgement.highest_priority if victims else 0,
        priority_sum=judgement.priority_sum,
        latest_start=None if start == NOT_STARTED else moment_of(start),
        lost_work_seconds=judgement.lost_work // WHOLE,
    )


def _since(begin: datetime, moment: datetime | None) -> int:
    """Return how many microseconds a moment is later; 0 where there is none, or it is earlier."""
    return 0 if moment is None else max(0, round((moment - begin).total_seconds() * 1_000_000))
