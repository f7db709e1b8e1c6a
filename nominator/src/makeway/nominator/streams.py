"""The control state and the outcomes of orders, as the nominator follows them on the bus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from makeway.bus.client import Bus
from makeway.bus.control import ControlState
from makeway.bus.following import follow_control, follow_outcomes
from makeway.bus.messages import LIVE_LOOK_BACK, Outcome, StreamPosition
from makeway.bus.nats.follow import Start
from makeway.core.policy.mode import Mode, more_restrictive
from makeway.nominator.metrics import NominatorMetrics


class ControlFollower:
    """The last good control state of this cluster; `state` is None before the first."""

    def __init__(self, bus: Bus, cluster_uid: str, own_mode: Mode, metrics: NominatorMetrics) -> None:
        self._bus = bus
        self._cluster_uid = cluster_uid
        self._metrics = metrics
        self.own_mode: Mode = own_mode
        self.state: ControlState | None = None
        self.read = asyncio.Event()
        """Set when what had been said before has been read."""

    def mode(self, namespace: str) -> Mode:
        """Return the mode for a namespace; off before anything was said."""
        if self.state is None:
            return "off"
        return more_restrictive(self.own_mode, self.state.namespace_modes.get(namespace, self.state.mode))

    def modes(self) -> dict[str, Mode]:
        """Return the mode of each namespace that one of its own is said of."""
        told = self.state.namespace_modes if self.state is not None else {}
        return {name: self.mode(name) for name in sorted(told)}

    async def follow_forever(self) -> None:
        """Follow until the process ends."""
        await follow_control(
            self._bus,
            self._cluster_uid,
            take=self._take,
            refused=self._metrics.decode_errors.labels("control").inc,
            caught_up=self.read,
        )

    def _take(self, state: ControlState) -> None:
        self.state = state


class OutcomeFollower:
    """The outcomes of this cluster's orders; `read`: how far their stream has been read, None before that."""

    def __init__(self, bus: Bus, cluster_uid: str, metrics: NominatorMetrics) -> None:
        self._bus = bus
        self._cluster_uid = cluster_uid
        self._metrics = metrics
        self._start = Start.at_time(datetime.now(UTC) - LIVE_LOOK_BACK)
        self.read: StreamPosition | None = None

    async def follow_forever(self, take: Callable[[Outcome], None]) -> None:
        """Have each outcome taken, until the process ends."""
        refused = self._metrics.decode_errors.labels("outcomes").inc
        await follow_outcomes(
            self._bus, self._cluster_uid, self._start, take=take, refused=refused, reached=self._reached
        )

    def _reached(self, position: StreamPosition) -> None:
        self.read = position
