"""What a shell offers for names in the cluster: pods, namespaces, queues, orders.

Whoever presses a key must not wait, and must see no error: what cannot be had within the time is not offered.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import typer

from makeway.bus.client import Bus
from makeway.bus.codec import unwrap_decision, unwrap_order
from makeway.bus.errors import BusError
from makeway.bus.following import past_messages
from makeway.bus.queue_report import QueueQuery, QueueReport
from makeway.cli.connect.objects import METADATA_LIST, Bare, listed
from makeway.cli.connect.session import Installation, installation_of
from makeway.cli.text import safe
from makeway.runtime import logs
from makeway.runtime.kube import ApiError, ApiUnavailable, ConfigurationError

_SECONDS: Final = 3.0
_MOST: Final = 500
_RECENT: Final = timedelta(hours=24)
"""How far back orders are offered."""
_LATEST: Final = timedelta(hours=1)
"""How far back decisions are offered."""


def namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer namespaces."""
    return _offered(ctx, incomplete, lambda installation: _names(installation, "/api/v1/namespaces"))


def pods(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer pods of the namespace that was given, or of the one before the slash; else what an id begins."""
    if incomplete.startswith(("ord-", "dec-")):
        return records(ctx, incomplete)
    kind = "pod/" if incomplete.startswith("pod/") else ""
    space, slash, _ = incomplete.removeprefix(kind).rpartition("/")

    async def found(installation: Installation) -> list[str]:
        namespace = space or installation.namespace(ctx.params.get("namespace") or "")
        names = await _names(installation, f"/api/v1/namespaces/{namespace}/pods")
        return [f"{kind}{space}{slash}{name}" for name in names]

    return _offered(ctx, incomplete, found)


def queues(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer queues by their path."""

    async def found(installation: Installation) -> list[str]:
        async with installation.bus() as bus:
            answer = await bus.request_queues(msgspec.json.encode(QueueQuery()), _SECONDS)
        return [one.path for one in msgspec.json.decode(answer, type=QueueReport).queues]

    return _offered(ctx, incomplete, found)


def records(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the orders of the last day; after `dec-` the decisions of the last hour, which are more."""
    of_decisions = incomplete.startswith("dec-")

    async def found(installation: Installation) -> list[str]:
        async with installation.bus() as bus:
            names = bus.subjects
            if of_decisions:
                where = names.decisions_stream, names.decisions
                return await _ids(bus, *where, _LATEST, lambda data: unwrap_decision(data).decision_id)
            where = names.orders_stream, names.orders
            return await _ids(bus, *where, _RECENT, lambda data: unwrap_order(data).order_id)

    return _offered(ctx, incomplete, found)


async def _ids(
    bus: Bus, stream: str, subject: str, back: timedelta, read: Callable[[bytes], str]
) -> list[str]:
    """Return the ids of a stream's messages, the newest few; what is no such message is left out."""
    since = datetime.now(UTC) - back
    ids = past_messages(bus, stream, read, since=since, subjects=(subject,))
    return [one async for one in ids][-_MOST:]


async def _names(installation: Installation, path: str) -> list[str]:
    async with installation.api() as api:
        found = await listed(api, path, Bare, query={"limit": str(_MOST)}, accept=METADATA_LIST)
    return [one.metadata.name for one in found]


def _offered(
    ctx: typer.Context, incomplete: str, find: Callable[[Installation], Coroutine[Any, Any, list[str]]]
) -> list[str]:
    """Return what was found and begins so; nothing where it cannot be found in time."""
    logs.configure("text", "error", "completion", "")

    async def found() -> list[str]:
        async with asyncio.timeout(_SECONDS):
            return await find(installation_of(ctx.params))

    try:
        with contextlib.redirect_stderr(io.StringIO()):
            names = asyncio.run(found())
    except (ApiError, ApiUnavailable, BusError, ConfigurationError, OSError, ValueError, typer.BadParameter):
        return []
    # A shell would act on what is in a name; the API server allows none such, a stream may.
    return sorted({name for name in names if name.startswith(incomplete) and safe(name) == name})
