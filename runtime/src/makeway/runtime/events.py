"""Kubernetes Events about any object, queued and written by a task of their own; best effort."""

from __future__ import annotations

import asyncio
import secrets
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

import structlog

from makeway.core.k8s.event import EventType, Regarding, event
from makeway.runtime.kube import ApiError, ApiUnavailable, TypedApis

QUEUE_LIMIT: Final = 100
"""Events that may wait; more are dropped. They are about configuration, not about every pod."""

CLUSTER_NAMESPACE: Final = "default"
"""Where Events about objects without a namespace are kept, as Kubernetes' own."""

_TIMEOUT_SECONDS: Final = 5.0

_log = structlog.get_logger()


class EventRecorder:
    """Takes Events without waiting; `write_forever` writes them. `controller`: as makeway.dev/planner."""

    def __init__(self, api: TypedApis, controller: str, instance: str) -> None:
        self._api = api
        self._controller = controller
        self._instance = instance
        self._queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(QUEUE_LIMIT)

    def record(self, about: Regarding, event_type: EventType, reason: str, action: str, note: str) -> None:
        """Queue an Event. `reason` and `action` are constants in CamelCase; a long `note` is cut."""
        namespace = about.namespace or CLUSTER_NAMESPACE
        body = event(
            about,
            namespace=namespace,
            event_type=event_type,
            reason=reason,
            action=action,
            note=note,
            controller=self._controller,
            instance=self._instance,
            now=datetime.now(UTC),
            unique=secrets.token_hex(8),
        )
        try:
            self._queue.put_nowait((namespace, body))
        except asyncio.QueueFull:
            _log.warning("event_dropped", reason="queue-full", about=f"{about.kind} {about.name}")

    async def write_forever(self) -> NoReturn:
        """Write what is queued, one after the other, each once."""
        while True:
            namespace, body = await self._queue.get()
            create = self._api.events.create_namespaced_event
            try:
                await self._api.call(create, namespace, body, timeout_seconds=_TIMEOUT_SECONDS)
            except (ApiError, ApiUnavailable) as error:
                _log.warning("event_dropped", reason="refused", error=str(error))
