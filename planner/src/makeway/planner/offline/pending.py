"""Why a pod of the cluster is pending, and what would unblock it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import msgspec

from makeway.bus.plan import PlanRequest
from makeway.core.k8s.objects import Pod
from makeway.planner.offline.asking import as_asked, gated, request_about, unseen
from makeway.planner.offline.counterfactuals.changes import Case
from makeway.planner.offline.counterfactuals.search import counterfactuals
from makeway.planner.offline.describing import described
from makeway.planner.offline.results import Pending, SimulatedPod
from makeway.planner.offline.world import World
from makeway.planner.plan.left_out import NOTHING_PASSED_OVER, PassedOver
from makeway.planner.plan.request import Question, question_of
from makeway.planner.plan.result import PlanRefusal
from makeway.planner.plan.unfiltered import PodVerdict, judge_pod


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
