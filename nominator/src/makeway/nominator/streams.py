"""The control state, as the nominator follows it on the bus."""

from __future__ import annotations

import asyncio

from makeway.bus.client import Bus
from makeway.bus.control import ControlState
from makeway.bus.following import follow_control
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
