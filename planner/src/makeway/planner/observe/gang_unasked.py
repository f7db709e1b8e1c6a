"""A plan for a PodGroup for which no scheduler asked, as of before its first victim was marked. Pure.

Who is to be placed are the members that others nominated. What topology the group asks for is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from makeway.bus.group_plan import GroupPlanRequest, GroupPreemptor
from makeway.bus.messages import API_VERSION, Placement, PlanRequest, Profile
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.pod_groups import GroupRecord
from makeway.planner.observe.gang_pairing import UnaskedGang
from makeway.planner.observe.past import Past
from makeway.planner.observe.unasked import ALL_NODES
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.request import Question, question_of

TOPOLOGY = "schedulingConstraints"
"""What a plan leaves out: a group's constraints are in no watch of the planner."""


@dataclass(frozen=True, slots=True)
class AskedGang:
    """The request that a scheduler would have sent, without its classes, and the question in it."""

    request: GroupPlanRequest
    question: GangQuestion


def unasked_gang(
    seen: UnaskedGang,
    group: GroupRecord,
    past: Past,
    *,
    cluster_uid: str,
    request_id: str,
    nominated: Iterable[tuple[Pod, str]],
    in_flight: Mapping[str, str],
) -> AskedGang:
    """Put the question of a preemption for a group; raises as `question_of`.

    `nominated`: all nominated pods, each with its node. `in_flight`: what makeway's own orders remove.
    """
    own = {pod.metadata.uid for pod, _ in seen.members}
    nominations = tuple(
        Placement(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid, node=node)
        for pod, node in nominated
        if pod.metadata.uid not in own
    )
    classes: defaultdict[object, list[Question]] = defaultdict(list)
    for pod, _ in seen.members:
        request = PlanRequest(
            api_version=API_VERSION,
            request_id=request_id,
            cluster_uid=cluster_uid,
            mode="observe",
            timeout_milliseconds=0,
            max_candidates=1,
            profile=Profile(name=pod.spec.scheduler_name or ""),
            pod=msgspec.Raw(msgspec.json.encode(pod)),
            nodes=ALL_NODES,
            nominations=nominations,
        )
        one = question_of(request, in_flight)
        preemptor = msgspec.structs.replace(one.preemptor, priority=group.priority)
        one = replace(one, preemptor=preemptor, restored=past.left, allowed_before=dict(past.allowed or {}))
        requests = tuple(sorted(preemptor.requests.items()))
        classes[requests, tuple(sorted(one.needs.items())), one.constraints, one.may_preempt].append(one)
    asked = GroupPlanRequest(
        api_version=API_VERSION,
        request_id=request_id,
        cluster_uid=cluster_uid,
        mode="observe",
        timeout_milliseconds=0,
        profile=Profile(name=seen.members[0][0].spec.scheduler_name or ""),
        group=GroupPreemptor(
            namespace=group.key.namespace, name=group.key.name, uid=group.uid, priority=group.priority
        ),
        classes=(),
        must_place=len(seen.members),
    )
    question = GangQuestion(
        name=seen.group,
        classes=tuple(GangClass(alike[0], len(alike)) for alike in classes.values()),
        must_place=len(seen.members),
    )
    return AskedGang(asked, question)
