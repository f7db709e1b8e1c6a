"""The rule that no pod is stuck: a preemptor whose order has ended is tried again.

A scheduling attempt shows as whatever the scheduler writes about the pod: a condition, a nomination, an
Event, a binding; or as a question to the planner (a decision record), or another order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from makeway.dev.audit_log import AuditEvent
from makeway.dev.checker.case import Finding, OrderCase, uid_of
from makeway.dev.checker.findings import Invariant
from makeway.dev.checker.orders import OrderHistory

ACTIVE = timedelta(seconds=10)
RELEASE = timedelta(seconds=60)
"""A preemptor is released at the longest grace period of its victims + this, whatever they do."""


def rules(case: OrderCase) -> Iterator[Finding]:
    """Every preemptor is tried again within 10 s of its outcome, or of its last victim's leaving."""
    seen = _signs(case)
    for order in case.orders:
        preemptor = case.pods.get(order.preemptor_uid)
        if order.outcome is None or order.ended_at is None or preemptor is None:
            continue
        begin = _released(case, order, order.ended_at)
        due = case.outages.due(begin, ACTIVE)
        leaving = preemptor.leaving_at
        if leaving is not None and leaving <= due:
            continue
        if preemptor.bound_by(due):
            continue
        if any(order.ended_at < when <= due for when in seen.get(preemptor.uid, ())):
            continue
        yield case.overdue(
            Invariant.PREEMPTOR_IDLE,
            (preemptor.described, order.described),
            due,
            f"no attempt since its order {order.outcome.result} at {order.ended_at.isoformat()}",
        )


def _released(case: OrderCase, order: OrderHistory, ended_at: datetime) -> datetime:
    """When there is a reason to try again: at once after a failure, else when the room is there."""
    if order.made_no_room:
        return ended_at
    awaited = [a.uid for a in order.order.awaited]
    pods = [case.pods.get(uid) for uid in (*order.victim_uids, *awaited)]
    left = [pod.gone_at for pod in pods if pod is not None]
    grace = max((victim.grace_period_seconds for victim in order.order.victims), default=0)
    at_the_latest = ended_at + timedelta(seconds=grace) + RELEASE
    times = [when or at_the_latest for when in left]
    return max([ended_at, *(min(when, at_the_latest) for when in times)])


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
