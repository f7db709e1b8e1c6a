"""Kubernetes Events about any object, queued and written by a task of their own; best effort."""

from __future__ import annotations

import asyncio
import secrets
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, Protocol

import structlog
from prometheus_client import Counter

from makeway.core.k8s.event import EventType, Regarding, event
from makeway.runtime.kube import ApiError, ApiUnavailable, TypedApis

CLUSTER_NAMESPACE: Final = "default"
"""Where Events about objects without a namespace are kept, as Kubernetes' own."""

_TIMEOUT_SECONDS: Final = 5.0

_log = structlog.get_logger()


class EventSink(Protocol):
    """What is used of `EventRecorder`."""

    def record(self, about: Regarding, event_type: EventType, reason: str, action: str, note: str) -> None:
        """Queue an Event."""


class EventRecorder:
    """Takes Events without waiting; `write_forever` writes them."""

    def __init__(
        self,
        api: TypedApis,
        controller: str,
        instance: str,
        *,
        limit: int = 100,
        dropped: Counter | None = None,
    ) -> None:
        """`controller`: as makeway.dev/planner. `limit`: Events that may wait; more are dropped.

        `dropped`: counts by `reason` what is not written; without it each is a warning in the log.
        """
        self._api = api
        self._controller = controller
        self._instance = instance
        self._queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(limit)
        self._counter = dropped

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
            self._dropped("queue-full", f"{about.kind} {about.name}")

    async def write_forever(self) -> NoReturn:
        """Write what is queued, one after the other, each once."""
        while True:
            namespace, body = await self._queue.get()
            create = self._api.events.create_namespaced_event
            try:
                await self._api.call(create, namespace, body, timeout_seconds=_TIMEOUT_SECONDS)
            except (ApiError, ApiUnavailable) as error:
                about = body["regarding"]
                self._dropped("refused", f"{about['kind']} {about['name']}", str(error))

    def _dropped(self, reason: str, about: str, error: str = "") -> None:
        if self._counter is None:
            _log.warning("event_dropped", reason=reason, about=about, error=error)
        else:
            self._counter.labels(reason=reason).inc()
            _log.debug("event_dropped", reason=reason, about=about, error=error)
