"""What one nominator has read of the bus: the control state, and how far the outcomes of orders."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from makeway.bus.control import ControlState
from makeway.bus.messages import StreamPosition
from makeway.core.policy.mode import Mode, more_restrictive


@dataclass
class StreamsRead:
    """One process's. `state`: the last good control state of this cluster, None before the first.

    `control_read`: set when what had been said before has been read. `outcomes_read`: None before that.
    """

    own_mode: Mode
    state: ControlState | None = None
    control_read: asyncio.Event = field(default_factory=asyncio.Event)
    outcomes_read: StreamPosition | None = None

    def unsynced(self) -> str:
        """Return what is missing before anything may be planned; empty where nothing is."""
        if self.control_read.is_set() and self.state is not None:
            return ""
        return "no planner has said yet which mode is effective"

    def mode(self, namespace: str) -> Mode:
        """Return the mode for a namespace; off before anything was said."""
        if self.state is None:
            return "off"
        return more_restrictive(self.own_mode, self.state.namespace_modes.get(namespace, self.state.mode))

    def modes(self) -> dict[str, Mode]:
        """Return the mode of each namespace that one of its own is said of."""
        told = self.state.namespace_modes if self.state is not None else {}
        return {name: self.mode(name) for name in sorted(told)}

    def take(self, state: ControlState) -> None:
        """Take a control state."""
        self.state = state

    def reached(self, position: StreamPosition) -> None:
        """Take note how far the outcomes have been read."""
        self.outcomes_read = position
