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


async def keep_to_control(
    bus: Bus,
    cluster_uid: str,
    mode_guard: ModeGuard,
    metrics: EvictorMetrics,
    *,
    caught_up: asyncio.Event,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Keep a `ModeGuard` to the last good control state, until the process ends. One refused changes nothing.

    `caught_up`: set when what had been said before this process began has been read.
    """

    def take(state: ControlState) -> None:
        metrics.control.labels(result="taken").inc()
        metrics.control_revision.set(state.revision)
        _log.info(
            "control_in_force",
            revision=state.revision,
            mode=state.mode,
            namespace_modes=len(state.namespace_modes),
            policy_revision=state.policy_revision,
        )
        mode_guard.put_control(state)

    refused = metrics.control.labels(result="refused").inc
    await follow_control(bus, cluster_uid, take=take, refused=refused, caught_up=caught_up, now=now)
