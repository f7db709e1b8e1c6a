"""The fence of a planner's orders: its Lease, or where there is no leader election a counter on the bus."""

from __future__ import annotations

from typing import Final

from makeway.bus.errors import BusUnavailable
from makeway.bus.messages import Fence
from makeway.bus.nats.jetstream import JetStreamError
from makeway.bus.streams.epochs import Epochs
from makeway.runtime.lease import Leadership

COUNTER: Final = "makeway-planner"
"""The key in the bucket of epochs."""


class PlannerFence:
    """One planner's. With a Lease the epoch is the one under which it leads at the moment."""

    def __init__(self, epochs: Epochs, leadership: Leadership | None) -> None:
        self._epochs = epochs
        self._leadership = leadership
        self._counted = 0

    async def get(self) -> Fence:
        """Return the fence; the counter is increased once in a process. Raises BusUnavailable."""
        if self._leadership is not None:
            lease = self._leadership.settings
            return Fence(
                kind="lease", namespace=lease.namespace, name=lease.name, epoch=self._leadership.epoch
            )
        try:
            self._counted = self._counted or await self._epochs.increment(COUNTER)
        except JetStreamError as error:
            raise BusUnavailable(f"the counter of {COUNTER}: {error}") from error
        return Fence(kind="kv", name=COUNTER, epoch=self._counted)
