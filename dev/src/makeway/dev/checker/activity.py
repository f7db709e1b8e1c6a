"""The rule that no pod is stuck: a preemptor whose order has ended is tried again.

A scheduling attempt shows as whatever the scheduler writes about the pod: a condition, a nomination, an
Event, a binding; or as a question to the planner (a decision record), or another order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from makeway.core.k8s.pod_groups import GroupKey
from makeway.dev.audit_log import AuditEvent
from makeway.dev.checker.case import Finding, OrderCase, uid_of
from makeway.dev.checker.findings import Invariant
from makeway.dev.checker.orders import OrderHistory
from makeway.dev.checker.units import Groups

ACTIVE = timedelta(seconds=10)
BACK_OFF = timedelta(seconds=10)
"""kube-scheduler's podMaxBackoffSeconds. The plugin moves its preemptor past it; the nominator cannot."""
TOO_FEW = timedelta(seconds=20)
"""kube-scheduler tries no gang that has too few pods. The plugin waits 15 s for more, and then takes its
nominations back: that is what shows."""
RELEASE = timedelta(seconds=60)
"""A preemptor is released at the longest grace period of its victims + this, whatever they do."""


def rules(case: OrderCase) -> Iterator[Finding]:
    """Every preemptor is tried again within 10 s of its outcome, or of its last victim's leaving.

    A nominator's has kube-scheduler's back-off before it. A gang that has too few pods then is given up.
    """
    seen, groups = _signs(case), Groups(case)
    for order in case.orders:
        for uid in order.nominations:
            yield from _idle(case, order, uid, seen, groups)


def _idle(
    case: OrderCase, order: OrderHistory, uid: str, seen: dict[str, list[datetime]], groups: Groups
) -> Iterator[Finding]:
    preemptor = case.pods.get(uid)
    if order.outcome is not None and order.ended_at is not None and preemptor is not None:
        begin = _released(case, order, order.ended_at)
        due = case.outages.due(begin, ACTIVE + BACK_OFF if order.order.is_external else ACTIVE)
        if any(_too_few(case, order, groups, moment) for moment in (begin, due)):
            due = case.outages.due(begin, ACTIVE + TOO_FEW)
        leaving = preemptor.leaving_at
        if leaving is not None and leaving <= due:
            return
        if preemptor.bound_by(due):
            return
        signs = (*seen.get(uid, ()), *seen.get(order.preemptor_uid, ()))
        # The last victim may have left, and the pod been tried, before the outcome was stored.
        since = order.ended_at if order.made_no_room else min(order.ended_at, _room_at(case, order) or begin)
        if any(since < when <= due for when in signs):
            return
        yield case.overdue(
            Invariant.PREEMPTOR_IDLE,
            (preemptor.described, order.described),
            due,
            f"no attempt since its order {order.outcome.result} at {order.ended_at.isoformat()}",
        )


def _too_few(case: OrderCase, order: OrderHistory, groups: Groups, moment: datetime) -> bool:
    """Whether the gang of an order has fewer pods at a moment than it needs."""
    group = order.order.group
    if group is None:
        return False
    record = groups.at(GroupKey(group.namespace, group.name), moment)
    there = 0
    for pod in case.pods:
        shown = pod.at(moment)
        same = (pod.namespace, pod.group) == (group.namespace, group.name)
        there += same and shown is not None and not shown.gone
    return there < (group.min_count if record is None else record.min_count)


def _released(case: OrderCase, order: OrderHistory, ended_at: datetime) -> datetime:
    """When there is a reason to try again: at once after a failure, else when the room is there."""
    if order.made_no_room:
        return ended_at
    left = _left(case, order)
    grace = max((victim.grace_period_seconds for victim in order.order.victims), default=0)
    at_the_latest = ended_at + timedelta(seconds=grace) + RELEASE
    times = [when or at_the_latest for when in left]
    return max([ended_at, *(min(when, at_the_latest) for when in times)])


def _room_at(case: OrderCase, order: OrderHistory) -> datetime | None:
    """When the last of the pods that had to leave had left; None where one has not."""
    left = _left(case, order)
    gone = [when for when in left if when is not None]
    return max(gone) if gone and len(gone) == len(left) else None


def _left(case: OrderCase, order: OrderHistory) -> list[datetime | None]:
    """When each victim and each pod that is awaited had left; None for one that has not."""
    pods = [case.pods.get(uid) for uid in (*order.victim_uids, *(one.uid for one in order.order.awaited))]
    return [pod.gone_at for pod in pods if pod is not None]


def _signs(case: OrderCase) -> dict[str, list[datetime]]:
    """When each pod was seen to be tried, by UID."""
    signs: dict[str, list[datetime]] = defaultdict(list)
    for event in case.history.requests:
        if event.user == case.accounts.scheduler and event.accepted and (uid := _about(event)):
            signs[uid].append(event.answered_at)
    for decision in case.history.streams.decisions:
        if decision.message.preemptor is not None:
            signs[decision.message.preemptor.uid].append(decision.at)
    for order in case.orders:
        signs[order.preemptor_uid].append(order.committed_at)
    return signs


def _about(event: AuditEvent) -> str:
    """The UID of the pod that a write of the scheduler's is about."""
    if event.resource == "pods":
        return uid_of(event)
    if event.resource == "events":
        body: dict[str, Any] = event.request or {}
        return str((body.get("regarding") or body.get("involvedObject") or {}).get("uid", ""))
    return ""
