"""A plan for a preemptor for whom no scheduler asked, as of before its first victim was marked.

There is no filter to ask and no request: every node may be helped, as far as the columns know. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from makeway.bus.messages import API_VERSION, NodeSelection, Placement, PlanRequest, Profile
from makeway.core.k8s.objects import Pod
from makeway.planner.observe.detecting import UnaskedPreemption
from makeway.planner.observe.past import Past
from makeway.planner.plan.decision import Decision
from makeway.planner.plan.request import Question, question_of
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot.state import Snapshot

CANDIDATES = 16
"""Nodes that a plan names, as many as the plugin asks for."""

ALL_NODES = NodeSelection(all_but=True)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a plan is told of besides the preemption; asked as late as may be, since it changes meanwhile.

    `name`: of the decision. `nominated`: all nominated pods, each with its node. `in_flight`: what makeway's
    own orders remove, as the preemptor of this UID sees it. `unsynced`: what is missing to plan on.
    """

    name: str
    nominated: Callable[[], Iterable[tuple[Pod, str]]]
    in_flight: Callable[[str], Mapping[str, str]]
    unsynced: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Unasked:
    """The request that a scheduler would have sent, and the question in it."""

    request: PlanRequest
    question: Question


def unasked(
    seen: UnaskedPreemption,
    past: Past,
    *,
    cluster_uid: str,
    request_id: str,
    nominated: Iterable[tuple[Pod, str]],
    in_flight: Mapping[str, str],
) -> Unasked:
    """Put the question of a preemption; raises as `question_of`.

    `nominated`: all nominated pods, each with its node. `in_flight`: what makeway's own orders remove.
    """
    uid = seen.pod.metadata.uid
    request = PlanRequest(
        api_version=API_VERSION,
        request_id=request_id,
        cluster_uid=cluster_uid,
        mode="observe",
        timeout_milliseconds=0,
        max_candidates=CANDIDATES,
        profile=Profile(name=seen.pod.spec.scheduler_name or ""),
        pod=msgspec.Raw(msgspec.json.encode(seen.pod)),
        nodes=ALL_NODES,
        nominations=tuple(
            Placement(
                namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid, node=node
            )
            for pod, node in nominated
            if pod.metadata.uid != uid
        ),
    )
    question = question_of(request, in_flight)
    return Unasked(request, replace(question, restored=past.left, allowed_before=dict(past.allowed or {})))


def decision_of(
    snapshot: Snapshot,
    asked: Unasked,
    seen: UnaskedPreemption,
    result: Plan | PlanRefusal,
    *,
    decision_id: str,
    planner: str,
    duration_seconds: float,
) -> Decision:
    """Return the plan as a decision of the moment before the first mark."""
    return Decision(
        decision_id=decision_id,
        planner=planner,
        at=seen.at,
        request=asked.request,
        question=asked.question,
        result=result,
        policy_revision=snapshot.exemptions.revision,
        duration_seconds=duration_seconds,
        queue=snapshot.queues.path_of(asked.question.preemptor),
    )
