"""Following the control state: what the leading planner says is in force."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from makeway.bus.client import Bus
from makeway.bus.errors import Malformed
from makeway.bus.nats.follow import Start
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.metrics import EvictorMetrics

_log = structlog.get_logger()


class FollowingControl:
    """Keeps a `ModeGuard` to the last good control state. One that is refused changes nothing.

    They are taken in the order of the stream, in which a planner puts one only if it has read the one before.
    One that is older than the one in force is a copy. Only a stream that was made anew begins at a lower
    sequence, and may go on with a lower revision.
    """

    def __init__(
        self,
        bus: Bus,
        cluster_uid: str,
        mode_guard: ModeGuard,
        metrics: EvictorMetrics,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._bus = bus
        self._cluster_uid = cluster_uid
        self._mode_guard = mode_guard
        self._metrics = metrics
        self._now = now
        self._taken = (0, 0)  # sequence and revision of the one in force
        self.read = asyncio.Event()
        """Set when what had been said before this process began has been read."""

    async def follow_forever(self) -> None:
        """Follow until the process ends."""
        stream = self._bus.subjects.control_stream
        async for message in self._bus.follow(stream, start=Start.beginning(), caught_up=self.read):
            try:
                state = self._bus.signatures.control(message.data, message.subject, self._now())
            except Malformed as error:
                self._refuse(message.sequence, error.reason)
                continue
            if state.cluster_uid != self._cluster_uid:
                self._refuse(message.sequence, "other-cluster")
                continue
            sequence, revision = self._taken
            if message.sequence > sequence and state.revision < revision:
                self._refuse(message.sequence, "old-revision")
                continue
            self._taken = message.sequence, state.revision
            self._metrics.control.labels(result="taken").inc()
            self._metrics.control_revision.set(state.revision)
            _log.info(
                "control_in_force",
                revision=state.revision,
                mode=state.mode,
                namespace_modes=len(state.namespace_modes),
                policy_revision=state.policy_revision,
            )
            self._mode_guard.put_control(state)

    def _refuse(self, sequence: int, reason: str) -> None:
        self._metrics.control.labels(result="refused").inc()
        _log.warning("message_malformed", source="control", sequence=sequence, reason=reason)
