"""A clock that stands still while a part of the cluster is away, for promises with a bound in time.

Outages that tests make are told. Those of the scheduler show by themselves: it renews its Lease every half
second, so a long silence means that none was leading.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from makeway.dev.audit_log import AuditEvent

SILENCE = timedelta(seconds=3)
"""Renewals come every 0.5 s in this project's clusters; so long a gap is an outage, from its beginning."""

Interval = tuple[datetime, datetime]


class Outages:
    """Merged intervals in which time does not count."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        merged: list[Interval] = []
        for begin, end in sorted(intervals):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        self._intervals = merged

    def due(self, begin: datetime, allowed: timedelta) -> datetime:
        """The moment at which `allowed` has passed since `begin`, outages not counted."""
        due = begin + allowed
        for start, end in self._intervals:
            if end <= begin:
                continue
            if start >= due:
                break
            due += end - max(start, begin)
        return due


def scheduler_silences(requests: Sequence[AuditEvent], scheduler: str, now: datetime) -> list[Interval]:
    """When no scheduler renewed its Lease, from its first renewal on."""
    renewals = [
        event.answered_at
        for event in requests
        if event.user == scheduler and event.resource == "leases" and event.accepted and event.verb != "get"
    ]
    ends = [*renewals[1:], now]
    return [(a, b) for a, b in zip(renewals, ends, strict=False) if b - a > SILENCE]
