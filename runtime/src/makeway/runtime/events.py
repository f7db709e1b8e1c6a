"""Kubernetes Events about any object, queued and written by a task of their own; best effort."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NoReturn, Protocol
from urllib.parse import quote

import msgspec
import structlog

from makeway.core.times import api_time
from makeway.runtime.kube import ApiError, ApiUnavailable

QUEUE_LIMIT: Final = 100
"""Events that may wait; more are dropped. They are about configuration, not about every pod."""

NOTE_LIMIT: Final = 1024
"""Bytes of a note that the API server takes."""

CLUSTER_NAMESPACE: Final = "default"
"""Where Events about objects without a namespace are kept, as Kubernetes' own."""

_NAME_LIMIT: Final = 200
_TIMEOUT_SECONDS: Final = 5.0
_CUT: Final = " …"

_log = structlog.get_logger()

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True)
class Regarding:
    """The object that an Event is about; without a namespace where it has none."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Writes(Protocol):
    """What is used of `makeway.runtime.kube.Api`."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_seconds: float = 10.0,
    ) -> bytes:
        """Send a request; raises ApiError or ApiUnavailable."""


class EventRecorder:
    """Takes Events without waiting; `write_for_ever` writes them. `controller`: as makeway.dev/planner."""

    def __init__(self, api: Writes, controller: str, instance: str) -> None:
        self._api = api
        self._controller = controller
        self._instance = instance
        self._queue: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(QUEUE_LIMIT)

    def record(self, about: Regarding, event_type: EventType, reason: str, action: str, note: str) -> None:
        """Queue an Event. `reason` and `action` are constants in CamelCase; a long `note` is cut."""
        namespace = about.namespace or CLUSTER_NAMESPACE
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "namespace": namespace,
                "name": f"{about.name[:_NAME_LIMIT].rstrip('-.')}.{secrets.token_hex(8)}",
            },
            "eventTime": api_time(datetime.now(UTC), "microseconds"),
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
            "action": action,
            "reason": reason,
            "regarding": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "note": cut(note),
            "type": event_type,
        }
        try:
            self._queue.put_nowait((namespace, msgspec.json.encode(body)))
        except asyncio.QueueFull:
            _log.warning("event_dropped", reason="queue-full", about=f"{about.kind} {about.name}")

    async def write_for_ever(self) -> NoReturn:
        """Write what is queued, one after the other, each once."""
        while True:
            namespace, body = await self._queue.get()
            path = f"/apis/events.k8s.io/v1/namespaces/{quote(namespace, safe='')}/events"
            try:
                await self._api.request("POST", path, body=body, timeout_seconds=_TIMEOUT_SECONDS)
            except (ApiError, ApiUnavailable) as error:
                _log.warning("event_dropped", reason="refused", error=str(error))


def cut(note: str) -> str:
    """Shorten a note to what the API server takes, at a line's end where that loses little."""
    data = note.encode()
    if len(data) <= NOTE_LIMIT:
        return note
    kept = data[: NOTE_LIMIT - len(_CUT.encode())].decode(errors="ignore")
    lines, _, rest = kept.rpartition("\n")
    return (lines if lines and len(rest) < NOTE_LIMIT // 4 else kept) + _CUT
