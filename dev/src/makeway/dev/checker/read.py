"""Reading a history from a cluster: the audit log's file, and the streams message by message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import TypeVar

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg
from nats.js.errors import NotFoundError

from makeway.bus.codec import unwrap_decision, unwrap_order, unwrap_outcome
from makeway.bus.decisions import DecisionRecord
from makeway.bus.errors import Malformed
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.bus.subjects import Subjects
from makeway.dev.audit_log import AuditEvent, AuditLog
from makeway.dev.checker.history import Accounts, StoredRecord, Streams

M = TypeVar("M", bound=EvictionOrder | Outcome | DecisionRecord)

_LEASES = '"resource":"leases"'


async def connect(url: str) -> Client:
    """Connect to the cluster's NATS, or fail at once."""
    return await nats.connect(url, connect_timeout=5, allow_reconnect=False)


async def read_streams(
    jetstream: JetStreamContext, prefix: str = "makeway", *, since: datetime | None = None
) -> Streams:
    """Read the three streams whole, or what was stored since a time; what cannot be decoded is only named."""
    names = Subjects(prefix)
    unreadable: list[str] = []
    comparisons = names.comparisons.removesuffix(">")

    async def read(stream: str, subject: str, unwrap: Callable[[bytes], M]) -> tuple[StoredRecord[M], ...]:
        stored = []
        async for message in _messages(jetstream, stream, subject, since):
            if (message.subject or "").startswith(comparisons):
                continue
            try:
                decoded = unwrap(message.data or b"")
            except Malformed:
                unreadable.append(message.subject or "")
                continue
            assert message.time is not None  # noqa: S101 - the server stamps every message
            stored.append(
                StoredRecord(message.seq or 0, _aware(message.time), message.subject or "", decoded)
            )
        return tuple(stored)

    return Streams(
        orders=await read(names.orders_stream, names.orders, unwrap_order),
        outcomes=await read(names.outcomes_stream, names.outcomes, unwrap_outcome),
        decisions=await read(names.decisions_stream, names.decisions, unwrap_decision),
        unreadable=tuple(unreadable),
    )


async def _messages(
    jetstream: JetStreamContext, stream: str, subject: str, since: datetime | None
) -> AsyncIterator[RawStreamMsg]:
    """The stream's messages, oldest first; nothing where there is no such stream."""
    try:
        sequence = 1 if since is None else await _first_since(jetstream, stream, subject, since)
        while True:
            message = await jetstream.get_msg(stream, seq=sequence, subject=subject, next=True)
            yield message
            sequence = (message.seq or 0) + 1
    except NotFoundError:
        return


async def _first_since(jetstream: JetStreamContext, stream: str, subject: str, since: datetime) -> int:
    """The sequence from which messages are of that time or later, found by halving; O(log messages)."""
    state = (await jetstream.stream_info(stream)).state
    low, high = state.first_seq, state.last_seq + 1
    while low < high:
        middle = (low + high) // 2
        try:
            message = await jetstream.get_msg(stream, seq=middle, subject=subject, next=True)
        except NotFoundError:
            high = middle
            continue
        if message.time is not None and _aware(message.time) < since:
            low = (message.seq or middle) + 1
        else:
            high = middle
    return low


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def read_requests(log: AuditLog, namespace: str, streams: Streams) -> tuple[AuditEvent, ...]:
    """Read what the rules look at: writes of one namespace, or all, and renewals.

    Also what the evictor read, where the streams have orders for groups: for nothing else is it asked.
    """
    reads = any(stored.message.kind == "group" for stored in streams.orders)
    wanted = ("pods", "events", "leases", "podgroups", "compositepodgroups")
    writes = ("create", "update", "patch", "delete", "deletecollection")
    evictor = Accounts().evictor
    return tuple(
        event
        for event in log.events(about=(f'"namespace":"{namespace}"' if namespace else "", _LEASES))
        if event.resource in wanted
        and (event.verb in writes or (reads and event.verb in ("get", "list") and event.user == evictor))
    )
