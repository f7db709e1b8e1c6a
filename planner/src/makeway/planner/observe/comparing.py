"""From a pair to a comparison: both choices judged, and what that comes to. Pure.

`comparison` is the one place that does it; what pods and groups tell each in their own way are its
`BothChoices`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeAlias, TypeVar

from makeway.bus import messages
from makeway.bus.comparison import Choice, ComparedGroup, Comparison, ComparisonResult
from makeway.core.comparison import Judgement, RelativeRank, RemovedPod, compare, judge
from makeway.core.k8s.importance import NOT_STARTED, moment_of
from makeway.core.policy.rules import LOWER_PRIORITY
from makeway.planner.observe.gang_pairing import ComparedGang
from makeway.planner.observe.pairing import ComparedPair, Expected
from makeway.planner.plan.constraints.budgets import debits
from makeway.planner.plan.decision import Decision, preemptor_of, refusal_of
from makeway.planner.plan.gang.decision import GangDecision
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


_D = TypeVar("_D", bound=Decision | GangDecision)

_Pair: TypeAlias = ComparedPair | ComparedGang


@dataclass(frozen=True, slots=True)
class Observed(Generic[_D]):
    """A decision in mode `observe`, as it is kept until it is known what others did.

    `own`: the victims of its plan, of a pod's of the best candidate, with the budgets that cover them; None
    where there is none. `certainty`: of a plan that no scheduler asked for.
    """

    decision: _D
    own: tuple[RemovedPod, ...] | None
    certainty: Certainty | None = None


@dataclass(frozen=True, slots=True)
class BothChoices:
    """Both choices about a preemptor, as pods and groups tell them.

    `own_nodes`, `own_victims`: where makeway would have placed it, and who goes by which rule; empty where it
    has no plan. `nodes`: where others nominated it to. `rank`: how one choice stands beside another, and the
    rule that decides. `refusal`: makeway's. `group`: of a group.
    """

    preemptor: messages.Preemptor
    own_nodes: tuple[str, ...]
    own_victims: tuple[tuple[PodRecord, str], ...]
    nodes: tuple[str, ...]
    rank: Callable[[Judgement, Judgement], tuple[RelativeRank, str]]
    refusal: messages.Refusal | None = None
    group: ComparedGroup | None = None


def gone(snapshot: Snapshot, pod: PodRecord) -> RemovedPod:
    """Return what judging looks at of a pod, with the budgets that cover it now."""
    keys = snapshot.budgets.covering_keys(pod.namespace, pod.name, pod.labels)
    share = snapshot.groups.share_of(pod)
    return RemovedPod(pod.uid, pod.priority, pod.start_micros, keys, share)


def observed(
    snapshot: Snapshot, decision: Decision, certainty: Certainty | None = None
) -> Observed[Decision]:
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


def comparison_of(
    seen: Observed[Decision], pair: ComparedPair, planner: str, now: datetime
) -> Comparison | None:
    """Return what the pair of a pod comes to; None where there is nothing to compare."""
    decision, result = seen.decision, seen.decision.result
    best = result.candidates[0] if isinstance(result, Plan) and result.candidates else None
    sides = BothChoices(
        preemptor=preemptor_of(decision.question),
        own_nodes=(best.node,) if best is not None else (),
        own_victims=tuple((one.pod, one.rule) for one in best.victims) if best is not None else (),
        nodes=(pair.node,) if pair.node else (),
        rank=compare,
        refusal=refusal_of(result) if isinstance(result, PlanRefusal) else None,
    )
    return comparison(seen, pair, sides, planner, now)


def comparison(
    seen: Observed[_D], pair: _Pair, sides: BothChoices, planner: str, now: datetime
) -> Comparison | None:
    """Return what a pair comes to; None where there is nothing to compare. O(victims · log victims).

    That is: neither found a way, or a place was found without any eviction.
    """
    decision, allowed, certainty = seen.decision, pair.expected.allowed, seen.certainty
    if certainty is not None and not pair.evicted:
        return None
    ours = None if seen.own is None else judge(seen.own, allowed)
    theirs = judge((mark.gone for mark in pair.evicted), allowed) if pair.evicted else None
    if theirs is None and (pair.bound or (ours is None and pair.nominated_at is None)):
        return None
    result, decided_by, note = _verdict(pair, sides, ours, theirs)
    evicted = tuple((mark.pod, LOWER_PRIORITY) for mark in pair.evicted)
    last = max((mark.at for mark in pair.evicted), default=None)
    of_group = sides.group is not None
    return Comparison(
        decision_id=decision.decision_id,
        cluster_uid=decision.request.cluster_uid,
        planner=planner,
        at=now,
        planned_at=decision.at,
        preemptor=sides.preemptor,
        result=result,
        queue=decision.queue,
        decided_by=decided_by,
        makeway=_choice(sides.own_nodes, sides.own_victims, ours, of_group=of_group),
        default_preemption=_choice(sides.nodes, evicted, theirs, of_group=of_group),
        refusal=sides.refusal,
        plan_duration_microseconds=int(decision.duration_seconds * 1_000_000),
        nominated_after_microseconds=_since(decision.at, pair.nominated_at),
        evicted_after_microseconds=_since(decision.at, last),
        shared=pair.shared,
        note=note,
        asked=certainty is None,
        left_to_verification=certainty.left_out if certainty else decision.result.left_out,
        restored_pods=certainty.restored if certainty else 0,
        past_complete=certainty.complete if certainty else True,
        planned_after_microseconds=round(certainty.after.total_seconds() * 1_000_000) if certainty else 0,
        group=sides.group,
    )


def _verdict(
    pair: _Pair, sides: BothChoices, ours: Judgement | None, theirs: Judgement | None
) -> tuple[ComparisonResult, str, str]:
    """Return the result, the rule that decides it, and what there is to say besides."""
    if theirs is None:
        return ("makewayOnly", "", "") if pair.nominated_at is None else ("undetermined", "", UNSEEN)
    if ours is None:
        return ("undetermined", "", UNMODELLED) if sides.refusal is None else ("defaultOnly", "", "")
    victims = {pod.uid for pod, _ in sides.own_victims}
    if sides.own_nodes == sides.nodes and victims == {mark.gone.uid for mark in pair.evicted}:
        return "same", "", ""
    result, rule = sides.rank(ours, theirs)
    return result, rule, ""


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
        messages.Victim(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            node=pod.node or nodes[0],
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
        nodes=told,
        victims=victims,
        pdb_violations=len(judgement.violating),
        groups_broken=judgement.groups_broken,
        highest_priority=judgement.highest_priority if victims else 0,
        priority_sum=judgement.priority_sum,
        latest_start=None if start == NOT_STARTED else moment_of(start),
    )


def _since(begin: datetime, moment: datetime | None) -> int:
    """Return how many microseconds a moment is later; 0 where there is none, or it is earlier."""
    return 0 if moment is None else max(0, round((moment - begin).total_seconds() * 1_000_000))
