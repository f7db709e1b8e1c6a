"""`makeway history --unreadable`: messages that no part could read or carry out, as they are kept."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any, Final

from makeway.bus.client import Bus
from makeway.bus.streams import quarantine
from makeway.bus.streams.quarantine import QuarantineEntry
from makeway.cli.ages import age
from makeway.cli.tables import Column
from makeway.core.k8s.times import api_time

COLUMNS: Final = (
    Column("AGE"),
    Column("TIME", wide=True),
    Column("BY"),
    Column("REASON"),
    Column("DELIVERIES", wide=True),
    Column("SUBJECT", kind="text"),
    Column("STREAM", wide=True),
    Column("SEQUENCE", rank=1),
    Column("DETAIL", wide=True, long=True),
)


async def unreadable(bus: Bus, since: datetime | None) -> list[QuarantineEntry]:
    """Return what was put aside since a moment, the oldest first. Raises BusError."""
    followed = bus.follow(bus.subjects.quarantine_stream, since=since, stop_at_end=True)
    return quarantine.entries([message async for message in followed])


def cells(entry: QuarantineEntry, now: datetime) -> tuple[str, ...]:
    """Return an entry as a line of the table, in the order of COLUMNS. Pure."""
    message = entry.message
    return (
        age(now - entry.parked_at),
        api_time(entry.parked_at),
        message.component,
        message.reason,
        str(message.deliveries or "-"),
        message.subject,
        message.stream,
        str(message.sequence),
        message.detail,
    )


def as_json(entry: QuarantineEntry) -> dict[str, Any]:
    """Return all of an entry for a program; the payload in base64, since it may be anything. Pure."""
    message = entry.message
    return {
        "number": entry.number,
        "parkedAt": api_time(entry.parked_at, "microseconds"),
        "component": message.component,
        "reason": message.reason,
        "detail": message.detail,
        "subject": message.subject,
        "stream": message.stream,
        "sequence": message.sequence,
        "deliveries": message.deliveries,
        "publishedAt": api_time(message.published_at, "microseconds"),
        "bytes": message.cut_from or len(message.data),
        "whole": not message.cut_from,
        "payload": base64.b64encode(message.data).decode(),
    }
