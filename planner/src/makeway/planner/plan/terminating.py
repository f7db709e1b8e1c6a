"""Pods that are terminating: whose room a plan awaits, and which of them should have left. Pure.

One rule for every plan: a terminating pod is no victim. Its room is on its way while at most the policy's
`awaitTerminating` of its grace period is left; with more left it counts only in a plan that is otherwise
refused. A minute after the end of its grace period it is overdue, and makes no room.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from datetime import datetime, timedelta
from typing import Final

from makeway.core.k8s.importance import microseconds, moment_of
from makeway.core.k8s.times import api_time
from makeway.core.policy.exemption import TERMINATING
from makeway.core.policy.rules import Verdict
from makeway.core.text import counted
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

OVERDUE_AFTER: Final = timedelta(seconds=60)
"""After the end of its grace period a pod is no longer expected to leave: its kubelet may be dead."""

NAMED: Final = 3
"""Overdue pods that a refusal names."""


def awaited(snapshot: Snapshot, now: datetime, *, patient: bool = False) -> dict[str, PodRecord]:
    """Return the bound pods whose room is on its way, by UID. O(terminating pods).

    `patient`: however much of their grace period is left.
    """
    late = microseconds(now - OVERDUE_AFTER)
    soon = microseconds(now + snapshot.exemptions.policy.await_terminating)
    return {
        uid: pod
        for uid, pod in snapshot.exemptions.terminating.items()
        if late < pod.ends_micros and (patient or pod.ends_micros <= soon)
    }


def is_overdue(pod: PodRecord, now: datetime) -> bool:
    """Report whether a pod should have left by now."""
    return pod.terminating and pod.ends_micros <= microseconds(now - OVERDUE_AFTER)


def overdue_at(pods: Iterable[PodRecord]) -> datetime:
    """Return when the last of some terminating pods is no longer expected to leave."""
    return moment_of(max(pod.ends_micros for pod in pods)) + OVERDUE_AFTER


def verdict_of(pod: PodRecord, now: datetime) -> Verdict:
    """Return why a terminating pod is no victim."""
    ends = api_time(moment_of(pod.ends_micros))
    if is_overdue(pod, now):
        return Verdict(False, TERMINATING, f"its grace period ended at {ends}, and it has not left")
    return Verdict(False, TERMINATING, f"it is being deleted, and its grace period ends at {ends}")


def overdue_text(snapshot: Snapshot, nodes: Container[str], now: datetime) -> str:
    """Name the first few pods of some nodes that should have left; empty for none. O(terminating pods)."""
    there = snapshot.exemptions.terminating.values()
    late = [pod for pod in there if pod.node in nodes and is_overdue(pod, now)]
    if not late:
        return ""
    late.sort(key=lambda pod: (pod.ends_micros, pod.uid))
    named = ", ".join(
        f"{pod.namespace}/{pod.name} on {pod.node} (its grace period ended at "
        f"{api_time(moment_of(pod.ends_micros))})"
        for pod in late[:NAMED]
    )
    more = f" and {counted(len(late) - NAMED, 'other')}" if len(late) > NAMED else ""
    return f"makes no room since its node or a finalizer keeps it: {named}{more}"
