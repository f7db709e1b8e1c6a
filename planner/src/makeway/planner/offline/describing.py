"""What was found about one pod, in the words of a decision record. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from makeway.bus.messages import API_VERSION
from makeway.bus.plan import NodeSelection, PlanRequest, Profile
from makeway.core.k8s.objects import Pod
from makeway.planner.offline.results import Result, SimulatedPod
from makeway.planner.offline.world import World
from makeway.planner.plan.decision import decision_of, record_of
from makeway.planner.plan.feasibility import Feasibility
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal, Scope
from makeway.planner.snapshot.state import Snapshot

OFFLINE: Final = "offline"
"""Stands for ids that only a running planner has."""

CANDIDATES: Final = 16
"""Nodes that an answer names, as many as the plugin asks for."""


def request_about(world: World, pod: Pod, raw: bytes, candidates: int = CANDIDATES) -> PlanRequest:
    """Return what a scheduler would ask about a pod; `raw`: the same as v1.Pod in JSON."""
    return PlanRequest(
        api_version=API_VERSION,
        request_id=OFFLINE,
        cluster_uid=OFFLINE,
        mode=world.snapshot.exemptions.policy.mode_for(pod.metadata.namespace),
        timeout_milliseconds=0,
        max_candidates=max(candidates, 1),
        profile=Profile(name=pod.spec.scheduler_name or OFFLINE),
        pod=msgspec.Raw(raw),
        nodes=NodeSelection(),
        nominations=tuple(one for one in world.nominations.values() if one.uid != pod.metadata.uid),
    )


@dataclass(frozen=True, slots=True)
class PodQuery:
    """One pod, as it was asked about on a cluster at a moment. `warnings`: about the pod, in sentences."""

    snapshot: Snapshot
    request: PlanRequest
    question: Question
    now: datetime
    warnings: tuple[str, ...] = ()


def described(
    asked: PodQuery, result: Plan | PlanRefusal | None, found: Feasibility | None = None, *, node: str = ""
) -> SimulatedPod:
    """Write down what was found. `result` None: it fits on `node`. `found` None: no node was looked at."""
    snapshot, request, question = asked.snapshot, asked.request, asked.question
    pod = question.preemptor
    scope = Scope(snapshot.revision, snapshot.node_count, int(found.helpable.size) if found else 0)
    decision = decision_of(
        snapshot,
        request,
        question,
        result or Plan(scope, (), 0, (), 0),
        decision_id=OFFLINE,
        planner=OFFLINE,
        at=asked.now,
    )
    record = record_of(decision)
    queue = snapshot.queues.queue_of(pod)
    outcome: Result = "fits" if result is None else "refused"
    if record.nominated_node:
        outcome = "preempts" if record.victims else "waits"
    return SimulatedPod(
        namespace=pod.namespace,
        name=pod.name,
        result=outcome,
        preemptor=decision.preemptor,
        queue=queue.path if queue is not None else "",
        mode=request.mode,
        node=node or record.nominated_node or None,
        nominated_node=record.nominated_node or None,
        victims=record.victims,
        pdb_violations=record.pdb_violations,
        candidates=record.candidates,
        candidates_total=record.candidates_total,
        diagnosis=record.diagnosis,
        spared_by_rule=record.spared_by_rule,
        nearest=record.nearest,
        nodes_total=record.nodes_total,
        nodes_fitting=int(found.fits.size) if found else 0,
        nodes_potential=record.nodes_potential,
        nodes_excluded=found.excluded if found else {},
        warnings=asked.warnings,
    )
