"""A plan for a preemption about which no scheduler asked, as of before its first victim was marked. Pure.

There is no filter to ask and no request: every node may be helped, as far as the columns know.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from makeway.bus.messages import API_VERSION
from makeway.bus.plan import MemberClass, NodeSelection, PlanRequest, Profile
from makeway.core.k8s.objects import Pod
from makeway.planner.observe.comparing import Certainty, Observed, observed
from makeway.planner.observe.pairing import UnaskedPreemption
from makeway.planner.observe.past import ShortPast
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.decision import decision_of
from makeway.planner.plan.naming import as_placement
from makeway.planner.plan.planner import planning
from makeway.planner.plan.request import question_of
from makeway.planner.snapshot.state import Snapshot

CANDIDATES: Final = 16
"""Nodes that a plan names, as many as the plugin asks for."""

OBSERVED: Final = "observed"
"""Stands for an order: a pod that has been bound since the first mark counts as one that leaves."""


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
    """Plan for a preemption, and pause with None now and then.

    The decision is one of the moment before the first mark. `name`: of the decision; `planner`: whose it is.
    `nominated`: all nominated pods, each with its node; `in_flight`: what makeway's own orders remove, as the
    preemptor of this UID sees it. Both are asked as late as may be, since they change meanwhile. `seconds`:
    for how long it has been planned. Raises as `question_of`. Costs a plan, and a microsecond or two for each
    nominated pod.
    """
    request = _request(seen.pod, cluster_uid, name)
    past = short_past.before(snapshot, seen.revision)
    named = ((pod.metadata, node) for pod, node in nominated())
    there = snapshot.pods.get(seen.uid)
    came = {seen.uid: OBSERVED} if there is not None and there.node else {}
    asked = replace(
        question_of(request, {**in_flight(seen.uid), **came}),
        nominations=tuple(as_placement(meta, node) for meta, node in named if meta.uid != seen.uid),
        restored=past.left,
        allowed_before=dict(past.allowed or {}),
    )
    with snapshot.restoring(past.left):
        steps = planning(snapshot, asked, seen.at, cache)
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
            left_out=decision.result.left_out,
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
