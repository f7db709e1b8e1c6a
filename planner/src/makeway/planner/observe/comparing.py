"""From a pair to a comparison: both choices judged, and what that comes to. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from makeway.bus import messages
from makeway.bus.comparison import Choice, Comparison, ComparisonResult
from makeway.core.comparison import Judgement, RemovedPod, compare, judge
from makeway.core.k8s.importance import NOT_STARTED, moment_of
from makeway.core.policy.rules import LOWER_PRIORITY
from makeway.planner.observe.pairing import ComparedPair, Expected
from makeway.planner.plan.constraints.budgets import debits
from makeway.planner.plan.decision import Decision, preemptor_of, refusal_of
from makeway.planner.plan.result import Plan, PlanRefusal
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


@dataclass(frozen=True, slots=True)
class Observed:
    """A decision in mode `observe`, as it is kept until it is known what DefaultPreemption did.

    `own`: the victims of its best candidate with the budgets that cover them; None where there is no
    candidate. `certainty`: of a plan that no scheduler asked for.
    """

    decision: Decision
    own: tuple[RemovedPod, ...] | None
    certainty: Certainty | None = None


def gone(snapshot: Snapshot, pod: PodRecord) -> RemovedPod:
    """Return what judging looks at of a pod, with the budgets that cover it now."""
    keys = snapshot.budgets.covering_keys(pod.namespace, pod.name, pod.labels)
    share = snapshot.groups.share_of(pod)
    return RemovedPod(pod.uid, pod.priority, pod.start_micros, keys, share)


def observed(snapshot: Snapshot, decision: Decision, certainty: Certainty | None = None) -> Observed:
    """Keep a decision with what its comparison will need of the snapshot that it was made on."""
    result, own = decision.result, None
    if isinstance(result, Plan) and result.candidates:
        own = tuple(gone(snapshot, one.pod) for one in result.candidates[0].victims)
    return Observed(decision, own, certainty)


def expected(snapshot: Snapshot, decision: Decision, nominated: str) -> Expected:
    """Return what pairing needs to know of a decision. O(budgets + candidates)."""
    question, result = decision.question, decision.result
    taken = debits(snapshot, question.leaving | question.in_flight.keys())
    budgets = (snapshot.budgets.get(key) for key in snapshot.budgets.keys())  # noqa: SIM118 - no mapping
    return Expected(
        decision_id=decision.decision_id,
        uid=question.preemptor.uid,
        priority=question.preemptor.priority,
        scheduler=question.scheduler_name,
        at=decision.at,
        candidates={
            candidate.node: frozenset(one.pod.uid for one in candidate.victims)
            for candidate in (result.candidates if isinstance(result, Plan) else ())
        },
        allowed={
            b.key: question.allowed_before.get(b.key, b.allowed) - taken.get(b.key, 0)
            for b in budgets
            if b is not None
        },
        nominated=nominated,
    )


def comparison_of(seen: Observed, pair: ComparedPair, planner: str, now: datetime) -> Comparison | None:
    """Return what a pair comes to; None where there is nothing to compare.

    That is: neither found a way, or the pod found a place without any eviction.
    """
    decision, allowed, certainty = seen.decision, pair.expected.allowed, seen.certainty
    if certainty is not None and not pair.evicted:
        return None
    ours = None if seen.own is None else judge(seen.own, allowed)
    theirs = judge((mark.gone for mark in pair.evicted), allowed) if pair.evicted else None
    refused = decision.result if isinstance(decision.result, PlanRefusal) else None
    if theirs is None and (pair.bound or (ours is None and not pair.node)):
        return None
    result, decided_by, note = _verdict(seen, pair, ours, theirs)
    last = max((mark.at for mark in pair.evicted), default=None)
    return Comparison(
        decision_id=decision.decision_id,
        cluster_uid=decision.request.cluster_uid,
        planner=planner,
        at=now,
        planned_at=decision.at,
        preemptor=preemptor_of(decision.question),
        result=result,
        queue=decision.queue,
        decided_by=decided_by,
        makeway=_own_choice(decision, ours),
        default_preemption=_their_choice(pair, theirs),
        refusal=refusal_of(refused) if refused is not None else None,
        plan_duration_microseconds=int(decision.duration_seconds * 1_000_000),
        nominated_after_microseconds=since(decision.at, pair.nominated_at),
        evicted_after_microseconds=since(decision.at, last),
        shared=pair.shared,
        note=note,
        asked=certainty is None,
        left_to_verification=decision.result.left_out,
        restored_pods=certainty.restored if certainty else 0,
        past_complete=certainty.complete if certainty else True,
        planned_after_microseconds=round(certainty.after.total_seconds() * 1_000_000) if certainty else 0,
    )


def _verdict(
    seen: Observed, pair: ComparedPair, ours: Judgement | None, theirs: Judgement | None
) -> tuple[ComparisonResult, str, str]:
    """Return the result, the rule that decides it, and what there is to say besides."""
    if theirs is None:
        return ("undetermined", "", UNSEEN) if pair.node else ("makewayOnly", "", "")
    if ours is None:
        refused = isinstance(seen.decision.result, PlanRefusal)
        return ("defaultOnly", "", "") if refused else ("undetermined", "", UNMODELLED)
    best = next(iter(pair.expected.candidates.items()))
    if best == (pair.node, frozenset(mark.gone.uid for mark in pair.evicted)):
        return "same", "", ""
    result, rule = compare(ours, theirs)
    return result, rule, ""


def _own_choice(decision: Decision, judgement: Judgement | None) -> Choice | None:
    if judgement is None or not isinstance(decision.result, Plan):
        return None
    best = decision.result.candidates[0]
    return _choice(best.node, ((one.pod, one.rule) for one in best.victims), judgement)


def _their_choice(pair: ComparedPair, judgement: Judgement | None) -> Choice | None:
    if judgement is None:
        return Choice(node=pair.node) if pair.node else None
    return _choice(pair.node, ((mark.pod, LOWER_PRIORITY) for mark in pair.evicted), judgement)


def _choice(node: str, pods: Iterable[tuple[PodRecord, str]], judgement: Judgement) -> Choice:
    victims = tuple(
        messages.Victim(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            node=node,
            priority=pod.priority,
            grace_period_seconds=pod.grace_period_seconds,
            rule=rule,
            pdb_violating=pod.uid in judgement.violating,
        )
        for pod, rule in sorted(pods, key=lambda one: one[0].importance)
    )
    start = judgement.start_micros
    return Choice(
        node=node,
        victims=victims,
        pdb_violations=len(judgement.violating),
        groups_broken=judgement.groups_broken,
        highest_priority=judgement.highest_priority if victims else 0,
        priority_sum=judgement.priority_sum,
        latest_start=None if start == NOT_STARTED else moment_of(start),
    )


def since(begin: datetime, moment: datetime | None) -> int:
    """Return how many microseconds a moment is later; 0 where there is none, or it is earlier."""
    return 0 if moment is None else max(0, round((moment - begin).total_seconds() * 1_000_000))
