"""Following the control state: what the leading planner says is in force."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from makeway.bus.client import Bus
from makeway.bus.control import ControlState
from makeway.bus.following import follow_control
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.metrics import EvictorMetrics

_log = structlog.get_logger()


class FollowingControl:
    """Keeps a `ModeGuard` to the last good control state. One that is refused changes nothing."""

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
        self.read = asyncio.Event()
        """Set when what had been said before this process began has been read."""

    async def follow_forever(self) -> None:
        """Follow until the process ends."""
        await follow_control(
            self._bus,
            self._cluster_uid,
            take=self._take,
            refused=self._metrics.control.labels(result="refused").inc,
            caught_up=self.read,
            now=self._now,
        )

    def _take(self, state: ControlState) -> None:
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
