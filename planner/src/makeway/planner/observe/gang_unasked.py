"""A plan for a PodGroup for which no scheduler asked, as of before its first victim was marked. Pure.

Who is to be placed are the members that others nominated. What topology the group asks for is not known.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

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

MEMBERS_A_TURN: Final = 50
"""Members that are read before other tasks get a turn: some 5 ms."""


@dataclass(frozen=True, slots=True)
class AskedGang:
    """The request that a scheduler would have sent, without its classes, and the question in it."""

    request: GroupPlanRequest
    question: GangQuestion


def reading_members(
    pods: Iterable[Pod], *, cluster_uid: str, request_id: str
) -> Generator[tuple[GangClass, ...] | None, None, None]:
    """Read members into classes of equal ones, and pause with None after every `MEMBERS_A_TURN`.

    What is in flight the classes are told later, by `unasked_gang`. Raises as `question_of`.
    """
    classes: dict[object, GangClass] = {}
    for place, pod in enumerate(pods):
        if place and place % MEMBERS_A_TURN == 0:
            yield None
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
        )
        one = question_of(request, {})
        requests = tuple(sorted(one.preemptor.requests.items()))
        key = requests, tuple(sorted(one.needs.items())), one.constraints, one.may_preempt
        known = classes.get(key)
        classes[key] = GangClass(one, 1) if known is None else replace(known, count=known.count + 1)
    yield tuple(classes.values())


def unasked_gang(
    seen: UnaskedGang,
    group: GroupRecord,
    classes: Iterable[GangClass],
    past: Past,
    *,
    cluster_uid: str,
    request_id: str,
    nominated: Iterable[tuple[Pod, str]],
    in_flight: Mapping[str, str],
) -> AskedGang:
    """Put the question of a preemption for a group. O(classes + members + nominated pods), a µs or two each.

    `classes`: as `reading_members` reads them. `nominated`: all nominated pods, each with its node.
    `in_flight`: what makeway's own orders remove.
    """
    own = {pod.metadata.uid for pod, _ in seen.members}
    nominations = tuple(
        Placement(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid, node=node)
        for pod, node in nominated
        if pod.metadata.uid not in own
    )
    allowed = dict(past.allowed or {})

    def then(question: Question) -> Question:
        return replace(
            question,
            preemptor=msgspec.structs.replace(question.preemptor, priority=group.priority),
            nominations=nominations,
            in_flight=in_flight,
            restored=past.left,
            allowed_before=allowed,
        )

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
        classes=tuple(GangClass(then(alike.question), alike.count) for alike in classes),
        must_place=len(seen.members),
    )
    return AskedGang(asked, question)
