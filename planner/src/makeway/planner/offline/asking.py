"""How a pod is asked about offline: as its scheduler would, what no column judges, who is not asked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import msgspec

from makeway.bus.messages import API_VERSION
from makeway.bus.plan import MemberClass, NodeSelection, PlanRequest, Profile
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.pod_groups import group_of
from makeway.core.k8s.unmodelled import unmodelled
from makeway.core.policy.external import is_external
from makeway.planner.offline.admission import DEFAULT_SCHEDULER
from makeway.planner.offline.world import World
from makeway.planner.plan.refusal.text import subject
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import PlanRefusal, Scope
from makeway.planner.snapshot.state import Snapshot

OFFLINE: Final = "offline"
"""In place of ids that only a running planner has."""

CANDIDATES: Final = 16
"""Nodes that an answer names, as many as the plugin asks for."""

GATED: Final = "SchedulingGated"
NOT_ADMITTED: Final = "NotAdmitted"
"""The API server does not store the pod."""

_WITH_LIMITS: Final = ("persistentVolumeClaim", "ephemeral", "csi")
"""Volumes of which a node can attach so many, and for which there may be no capacity."""


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
        classes=(MemberClass(pod=msgspec.Raw(raw), count=1, nodes=NodeSelection()),),
        nominations=tuple(one for one in world.nominations.values() if one.uid != pod.metadata.uid),
    )


def as_asked(snapshot: Snapshot, question: Question, pod: Pod) -> Question:
    """Return a pod's question as its scheduler puts it, or makeway nominator for pods that it preempts for.

    Those may preempt. Members of a pod group are none of them: their group's own policy counts first.
    """
    if name := group_of(pod):
        group = snapshot.groups.record_of(f"{pod.metadata.namespace}/{name}")
        own = question.may_preempt
        return replace(question, may_preempt=own if group is None else group.lets_preempt(own))
    of_class = snapshot.priority_classes.get(pod.spec.priority_class_name or "")
    if question.may_preempt or not is_external(of_class):
        return question
    return replace(question, may_preempt=True)


def gated(snapshot: Snapshot, question: Question, gates: tuple[str, ...]) -> PlanRefusal:
    """Refuse a pod that its scheduling gates hold back, so that no scheduler looks at it."""
    message = f"{subject(question)} is held back by its scheduling gates: {', '.join(gates)}"
    return PlanRefusal(Scope(snapshot.revision, snapshot.node_count, 0), GATED, message)


def not_admitted(snapshot: Snapshot, message: str) -> PlanRefusal:
    """Refuse a pod that the API server does not store, or its group. `message`: as the server words it."""
    return PlanRefusal(Scope(snapshot.revision, snapshot.node_count, 0), NOT_ADMITTED, message)


def unseen(snapshot: Snapshot, raw: bytes, question: Question) -> Iterator[str]:
    """Yield what of a pod was not judged, whatever the answer; `beyond` has what the answer left out.

    `raw`: the v1.Pod.
    """
    if what := unmodelled(raw):
        yield f"not judged: {what}"
    if snapshot.devices:
        for name in sorted(snapshot.served_by_devices(question.needs)):
            yield f"not judged: devices that a DeviceClass offers as {name}"
    volumes = msgspec.json.decode(raw)["spec"].get("volumes") or ()
    if any(kind in volume for volume in volumes for kind in _WITH_LIMITS):
        yield "not judged: attach limits of nodes and capacity of storage, for its volumes"
    if question.scheduler_name != DEFAULT_SCHEDULER:
        yield f"its scheduler, {question.scheduler_name}, is taken for kube-scheduler with makeway in it"


def beyond(left_out: Iterable[str]) -> Iterator[str]:
    """Yield what is more than plans look at. `left_out`: constants of `bounds`."""
    for what in left_out:
        yield f"not judged: {what}, which is beyond the planner's bounds"
