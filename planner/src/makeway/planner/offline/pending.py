"""Why a pod of the cluster is pending, and what would unblock it. Pure.

The smallest changes are named, each checked by judging the pod again with it; what is not found to help is
never given. Where no single change helps, one that lifts a whole obstacle is taken for granted and another is
looked for beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from makeway.bus.plan import PlanRequest
from makeway.core.k8s.objects import Pod
from makeway.planner.offline.asking import as_asked, gated, request_about, unseen
from makeway.planner.offline.counterfactuals import of_cluster as cluster_changes
from makeway.planner.offline.counterfactuals import of_pod as pod_changes
from makeway.planner.offline.counterfactuals import of_policy as policy_changes
from makeway.planner.offline.counterfactuals.changes import Case, Finder
from makeway.planner.offline.describing import described
from makeway.planner.offline.results import Change, Counterfactual, Pending, SimulatedPod
from makeway.planner.offline.world import World
from makeway.planner.plan.decision import victims_of
from makeway.planner.plan.left_out import NOTHING_PASSED_OVER, PassedOver
from makeway.planner.plan.request import Question, question_of
from makeway.planner.plan.result import PlanRefusal
from makeway.planner.plan.unfiltered import PodVerdict, judge_pod

MOST: Final = 12
"""Counterfactuals that are given."""

FINDERS: Final[tuple[Finder, ...]] = (
    pod_changes.waiting,
    pod_changes.allowed,
    cluster_changes.more_disruptions,
    cluster_changes.more_of_queues,
    cluster_changes.less_guaranteed,
    policy_changes.other_policy,
    pod_changes.of_higher_priority,
    pod_changes.of_less,
    cluster_changes.uncordoned,
    pod_changes.tolerating,
    cluster_changes.further_node,
)
"""In the order in which they are named: what asks least of others first."""


def asked_about(
    world: World,
    raw: bytes,
    now: datetime,
    *,
    in_flight: Mapping[str, str] | None = None,
    leaving: frozenset[str] = frozenset(),
    left_out: PassedOver = NOTHING_PASSED_OVER,
) -> tuple[PlanRequest, Question]:
    """Return what a scheduler or the nominator would ask about a pod.

    `raw`: the v1.Pod. `in_flight`, `leaving`: as of `question_of`, which raises the same. `left_out`: by
    earlier orders.
    """
    pod = msgspec.json.decode(raw, type=Pod)
    request = request_about(world, pod, raw)
    question = as_asked(world.snapshot, question_of(request, in_flight or {}, leaving), pod)
    if question.daemonset_node and question.unfit_since is None:
        question = replace(question, unfit_since=now)
    return request, question.leaving_out(left_out)


def pending(world: World, raw: bytes, now: datetime, request: PlanRequest, question: Question) -> Pending:
    """Judge a pod of the world, as it is asked about. `raw`: the v1.Pod."""
    warnings = tuple(unseen(world.snapshot, raw, question))

    def told(answer: PodVerdict | PlanRefusal) -> SimulatedPod:
        return described(world.snapshot, request, question, answer, now=now, warnings=warnings)

    gates = tuple(gate["name"] for gate in msgspec.json.decode(raw)["spec"].get("schedulingGates") or ())
    if gates:
        return Pending(answer=told(gated(world.snapshot, question, gates)), unblocked_by=())
    case = Case(world.snapshot, question, now, world.snapshot.nodes)
    judged = judge_pod(case.snapshot, question, now, case.cache)
    return Pending(answer=told(judged), unblocked_by=counterfactuals(case, judged))


def counterfactuals(case: Case, judged: PodVerdict) -> tuple[Counterfactual, ...]:
    """Return what would unblock a refused pod, as it was judged; nothing for one that fits or may preempt.

    Costs some dozens of plans, and a copy of the snapshot for each kind of change to the cluster.
    """
    if judged.refusal is None:
        return ()
    found = list(_beside((), case, judged))
    if not found:
        for lifted, there in _lifts(case, judged):
            again = there.judged()
            if again.refusal is None:
                found.append(_told(lifted, there, case))
            else:
                found += _beside(lifted, there, again)
    return tuple(found[:MOST])


def _beside(granted: tuple[Change, ...], case: Case, judged: PodVerdict) -> Iterator[Counterfactual]:
    for finder in FINDERS:
        for change, there in finder(case, judged):
            yield _told((*granted, change), there, case)


def _lifts(case: Case, judged: PodVerdict) -> Iterator[tuple[tuple[Change, ...], Case]]:
    """Return what lifts a whole obstacle, where there is one."""
    allowed = pod_changes.lift_never(case)
    if allowed is not None:
        yield (allowed[0],), allowed[1]
    queues = cluster_changes.lift_queues(case)
    if queues is not None:
        yield queues
    soft = policy_changes.soft_budgets(case, judged)
    if soft is not None:
        yield (soft[0],), soft[1]


def _told(changes: tuple[Change, ...], there: Case, before: Case) -> Counterfactual:
    """Write down what would happen then."""
    judged = there.judged()
    best = judged.best
    return Counterfactual(
        changes=changes,
        node=best.node if best is not None else judged.node,
        victims=victims_of(best) if best is not None else (),
        at=there.now if there.now != before.now else None,
    )
