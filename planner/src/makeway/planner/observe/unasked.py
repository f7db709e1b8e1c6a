"""A plan for a preemption about which no scheduler asked, as of before its first victim was marked. Pure.

There is no filter to ask and no request: every node may be helped, as far as the columns know. The members of
a group that are to be placed are those that others nominated; what topology it asks for is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from makeway.bus.messages import API_VERSION
from makeway.bus.plan import GroupPreemptor, MemberClass, NodeSelection, PlanRequest, Profile
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.pod_groups import GroupRecord
from makeway.planner.observe.comparing import Certainty, Observed, observed
from makeway.planner.observe.pairing import UnaskedPreemption
from makeway.planner.observe.past import ShortPast
from makeway.planner.plan.decision import decision_of
from makeway.planner.plan.gang.planner import planning_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion, alike, labels_named
from makeway.planner.plan.naming import as_placement
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.planner import planning
from makeway.planner.plan.request import Question, question_of
from makeway.planner.plan.result import GangPlan, Plan, PlanRefusal
from makeway.planner.snapshot.state import Snapshot

CANDIDATES: Final = 16
"""Nodes that a plan names, as many as the plugin asks for."""

TOPOLOGY: Final = "schedulingConstraints"
"""What a plan leaves out: a group's constraints are in no watch of the planner."""

MEMBERS_A_TURN: Final = 50
"""Members that are read before other tasks get a turn: some 5 ms."""

OBSERVED: Final = "observed"
"""Stands for an order: a member that has been bound since the first mark counts as one that leaves."""


def reading_members(
    pods: Iterable[Pod], *, cluster_uid: str, request_id: str
) -> Generator[tuple[GangClass, ...] | None, None, None]:
    """Read members into classes of equal ones, and pause with None after every `MEMBERS_A_TURN`.

    A pod is the one class of itself. What is in flight is put in later. Raises as `question_of`.
    """
    members: list[Question] = []
    named: set[str] = set()
    for place, pod in enumerate(pods):
        if place and place % MEMBERS_A_TURN == 0:
            yield None
        members.append(question_of(_request(pod, cluster_uid, request_id), {}))
        named |= labels_named(members[-1])
    classes: dict[object, GangClass] = {}
    for place, one in enumerate(members):
        if place and place % MEMBERS_A_TURN == 0:
            yield None
        key = alike(one, named)
        known = classes.get(key)
        classes[key] = GangClass(one, 1) if known is None else replace(known, count=known.count + 1)
    yield tuple(classes.values())


def planning_unasked(
    snapshot: Snapshot,
    seen: UnaskedPreemption,
    short_past: ShortPast,
    *,
    name: str,
    planner: str,
    cluster_uid: str,
    nominated: Callable[[], Iterable[tuple[Pod, str]]],
    in_flight: Callable[[str], Mapping[str, str]],
    seconds: Callable[[], float],
    cache: PlanCache,
    now: datetime,
) -> Generator[Observed | None, None, None]:
    """Plan for a preemption, and pause with None now and then; yields nothing more of an unknown group.

    The decision is one of the moment before the first mark. `name`: of the decision; `planner`: whose it is.
    `nominated`: all nominated pods, each with its node; `in_flight`: what makeway's own orders remove, as the
    preemptor of this UID sees it. Both are asked as late as may be, since they change meanwhile. `seconds`:
    for how long it has been planned. Raises as `question_of`. Costs a plan, and a microsecond or two for each
    member and each nominated pod.
    """
    classes: tuple[GangClass, ...] | None = None
    pods = (pod for pod, _ in seen.members)
    for classes in reading_members(pods, cluster_uid=cluster_uid, request_id=name):
        if classes is None:
            yield None
    group = snapshot.groups.record_of(seen.key) if seen.of_group else None
    if not classes or (seen.of_group and group is None):
        return
    past = short_past.before(snapshot, seen.revision)
    own = {pod.metadata.uid for pod, _ in seen.members}
    named = [(pod.metadata, node) for pod, node in nominated()]
    nominations = tuple(as_placement(meta, node) for meta, node in named if meta.uid not in own)
    there = (snapshot.pods.get(uid) for uid in own)
    came = {pod.uid: OBSERVED for pod in there if pod is not None and pod.node}
    leaving = {**in_flight("" if seen.of_group else seen.key), **came}

    def then(question: Question) -> Question:
        pod = question.preemptor
        return replace(
            question,
            preemptor=pod if group is None else msgspec.structs.replace(pod, priority=group.priority),
            nominations=nominations,
            in_flight=leaving,
            restored=past.left,
            allowed_before=dict(past.allowed or {}),
        )

    members = tuple(GangClass(then(one.question), one.count) for one in classes)
    with snapshot.restoring(past.left):
        steps: Iterator[Plan | GangPlan | PlanRefusal | None]
        asked: Question | GangQuestion
        if group is None:
            asked, request = members[0].question, _request(seen.pod, cluster_uid, name)
            steps = planning(snapshot, asked, seen.at, cache)
        else:
            asked = GangQuestion(name=seen.key, classes=members, must_place=len(seen.members))
            request = _group_request(seen, group, cluster_uid, name)
            steps = planning_gang(snapshot, asked, seen.at, cache)
        while (result := next(steps)) is None:
            yield None
        decision = decision_of(
            snapshot,
            request,
            asked,
            result,
            decision_id=name,
            planner=planner,
            at=seen.at,
            duration_seconds=seconds(),
        )
        certainty = Certainty(
            left_out=(*decision.result.left_out, *((TOPOLOGY,) if seen.of_group else ())),
            restored=len(past.left),
            complete=past.complete,
            after=now - seen.at,
        )
        yield observed(snapshot, decision, certainty)


def _request(pod: Pod, cluster_uid: str, request_id: str) -> PlanRequest:
    """Return what a scheduler would have asked about one pod."""
    return PlanRequest(
        api_version=API_VERSION,
        request_id=request_id,
        cluster_uid=cluster_uid,
        mode="observe",
        timeout_milliseconds=0,
        max_candidates=CANDIDATES,
        profile=Profile(name=pod.spec.scheduler_name or ""),
        classes=(
            MemberClass(
                pod=msgspec.Raw(msgspec.json.encode(pod)), count=1, nodes=NodeSelection(all_but=True)
            ),
        ),
    )


def _group_request(
    seen: UnaskedPreemption, group: GroupRecord, cluster_uid: str, request_id: str
) -> PlanRequest:
    """Return what a scheduler would have asked about a group, without its classes."""
    named = GroupPreemptor(
        namespace=group.key.namespace, name=group.key.name, uid=group.uid, priority=group.priority
    )
    request = _request(seen.pod, cluster_uid, request_id)
    return msgspec.structs.replace(
        request, group=named, classes=(), must_place=len(seen.members), max_candidates=0
    )
