"""Why a pod of the cluster is pending, and what would unblock it. Pure.

The smallest changes are named, each checked by judging the pod again with it; what is not found to help by
itself is never given.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Final

import msgspec

from makeway.bus.plan import PlanRequest
from makeway.core.k8s.objects import Pod
from makeway.planner.offline.asking import as_asked, gated, request_about, unseen
from makeway.planner.offline.counterfactuals import of_cluster as cluster_changes
from makeway.planner.offline.counterfactuals import of_pod as pod_changes
from makeway.planner.offline.counterfactuals.changes import Case, Finder
from makeway.planner.offline.describing import described
from makeway.planner.offline.results import Change, Counterfactual, Pending, SimulatedPod
from makeway.planner.offline.world import World
from makeway.planner.orders.ledger import Ledger
from makeway.planner.plan.decision import victims_of
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
    pod_changes.of_higher_priority,
    pod_changes.of_less,
    cluster_changes.uncordoned,
    cluster_changes.further_node,
)
"""In the order in which they are named: what asks least of others first."""


def asked_about(
    world: World, raw: bytes, now: datetime, ledger: Ledger | None = None
) -> tuple[PlanRequest, Question]:
    """Return what a scheduler or the nominator would ask about a pod.

    `raw`: the v1.Pod. `ledger`: of the orders that are alive or have just ended. Raises as `question_of`.
    """
    ledger, pod = ledger or Ledger(), msgspec.json.decode(raw, type=Pod)
    uid, request = pod.metadata.uid, request_about(world, pod, raw)
    asked = question_of(request, ledger.in_flight(now, asking=uid), ledger.leaving(now))
    question = as_asked(world.snapshot, asked, pod)
    if question.daemonset_node and question.unfit_since is None:
        question = replace(question, unfit_since=now)
    return request, question.leaving_out(ledger.pauses.left_out(uid, now))


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
    found = (one for finder in FINDERS for one in finder(case, judged))
    return tuple(_told(change, there, case) for change, there in islice(found, MOST))


def _told(change: Change, there: Case, before: Case) -> Counterfactual:
    """Write down what would happen then."""
    judged = there.judged()
    best = judged.best
    return Counterfactual(
        change=change,
        node=best.node if best is not None else judged.node,
        victims=victims_of(best) if best is not None else (),
        at=there.now if there.now != before.now else None,
    )
