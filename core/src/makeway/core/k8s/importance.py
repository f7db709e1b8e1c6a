"""Which of two pods matters more: the order in which pods are reprieved.

Source: pkg/scheduler/util, MoreImportantPod: higher priority first, then the longer running. Two pods
that are equal there are ordered by UID here, so that the same input leads to the same plan.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NOT_STARTED = 2**62
"""Start of a pod that has none yet, in microseconds. Kubernetes takes the present; it is later than all."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Importance = tuple[int, int, str]
"""Sort key: the most important pod sorts first."""


def microseconds(moment: datetime | None) -> int:
    """Return a time as microseconds since 1970; no time is NOT_STARTED. Exact, no floating point."""
    return NOT_STARTED if moment is None else (moment - _EPOCH) // _MICROSECOND


def moment_of(micros: int) -> datetime:
    """Return microseconds since 1970 as a time in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def importance(priority: int, start_micros: int, uid: str) -> Importance:
    """Return the sort key of a pod: higher priority, then earlier start, then lower UID comes first."""
    return -priority, start_micros, uid
