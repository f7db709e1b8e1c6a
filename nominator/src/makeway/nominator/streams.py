"""What the nominator follows on the bus: the control state, and the outcomes of orders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from makeway.bus.client import Bus
from makeway.bus.control import ControlState
from makeway.bus.errors import Malformed
from makeway.bus.messages import LIVE_LOOK_BACK, Outcome
from makeway.bus.nats.follow import Start
from makeway.core.policy.mode import Mode, more_restrictive
from makeway.nominator.metrics import NominatorMetrics

_log = structlog.get_logger()


class ControlFollower:
    """The last good control state of this cluster; `state` is None before the first."""

    def __init__(self, bus: Bus, cluster_uid: str, own_mode: Mode, metrics: NominatorMetrics) -> None:
        self._bus = bus
        self._cluster_uid = cluster_uid
        self._metrics = metrics
        self._sequence = 0
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
        """Follow until the process ends. One that is older than the one in force is a copy of it."""
        stream = self._bus.subjects.control_stream
        async for message in self._bus.follow(stream, start=Start.beginning(), caught_up=self.read):
            try:
                state = self._bus.signatures.control(message.data, message.subject, datetime.now(UTC))
            except Malformed as error:
                self._refuse(message.sequence, error.reason)
                continue
            if state.cluster_uid != self._cluster_uid:
                self._refuse(message.sequence, "other-cluster")
                continue
            if self.state and message.sequence > self._sequence and state.revision < self.state.revision:
                self._refuse(message.sequence, "old-revision")
                continue
            self.state, self._sequence = state, message.sequence

    def _refuse(self, sequence: int, reason: str) -> None:
        self._metrics.decode_errors.labels("control").inc()
        _log.warning("message_malformed", source="control", sequence=sequence, reason=reason)


class OutcomeFollower:
    """Tells of each outcome of an order, from `LIVE_LOOK_BACK` ago on."""

    def __init__(
        self, bus: Bus, cluster_uid: str, metrics: NominatorMetrics, ended: Callable[[Outcome], None]
    ) -> None:
        self._bus = bus
        self._cluster_uid = cluster_uid
        self._metrics = metrics
        self._ended = ended

    async def follow_forever(self) -> None:
        """Follow until the process ends."""
        bus, stream = self._bus, self._bus.subjects.outcomes_stream
        start = Start.at_time(datetime.now(UTC) - LIVE_LOOK_BACK)
        async for message in bus.follow(stream, start=start):
            try:
                outcome = bus.signatures.outcome(message.data, message.subject)
            except Malformed as error:
                self._metrics.decode_errors.labels("outcomes").inc()
                _log.warning(
                    "message_malformed", source="outcomes", sequence=message.sequence, reason=error.reason
                )
                continue
            if outcome.cluster_uid == self._cluster_uid:
                self._ended(outcome)
