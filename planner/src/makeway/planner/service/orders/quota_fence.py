"""The fence of a planner's orders: its Lease, or where there is no leader election a counter on the bus."""

from __future__ import annotations

from typing import Final, Protocol

from makeway.bus.errors import BusUnavailable
from makeway.bus.messages import Fence
from makeway.bus.nats.jetstream import JetStreamError
from makeway.runtime.lease import Leadership

COUNTER: Final = "makeway-planner"
"""The key in the bucket of epochs."""


class EpochCounter(Protocol):
    """What is used of `makeway.bus.streams.epochs.Epochs`."""

    async def increment(self, key: str) -> int:
        """Begin a new epoch; raises JetStreamError or BusUnavailable."""


class PlannerFence:
    """One planner's. With a Lease the epoch is the one under which it leads at the moment."""

    def __init__(self, epochs: EpochCounter, leadership: Leadership | None) -> None:
        self._epochs = epochs
        self._leadership = leadership
        self._counted: int | None = None

    async def get(self) -> Fence:
        """Return the fence; the counter is increased once in a process. Raises BusUnavailable."""
        if self._leadership is not None:
            lease = self._leadership.settings
            return Fence(
                kind="lease", namespace=lease.namespace, name=lease.name, epoch=self._leadership.epoch
            )
        if self._counted is None:
            try:
                self._counted = await self._epochs.increment(COUNTER)
            except JetStreamError as error:
                raise BusUnavailable(f"the counter of {COUNTER}: {error}") from error
        return Fence(kind="kv", name=COUNTER, epoch=self._counted)
