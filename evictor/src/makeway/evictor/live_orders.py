"""Which orders of the stream are live, read from it when it is asked."""

from __future__ import annotations

import asyncio
from datetime import datetime

from makeway.bus.client import Bus
from makeway.bus.errors import BusError, Malformed
from makeway.bus.follow import Start
from makeway.bus.messages import LIVE_LOOK_BACK, PAST_DEADLINE, EvictionOrder
from makeway.evictor import decide
from makeway.evictor.retry import TemporaryError

READ_SECONDS = 10.0
"""How long reading may take."""


class StreamOrders:
    """`makeway.evictor.repair.LiveOrders` over the bus. O(orders of the last minutes) a question."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def name(self, victim_uid: str, now: datetime) -> bool:
        """Whether an order that has neither ended nor run out names this victim.

        Raises:
            TemporaryError: NATS did not answer in time, or the streams are not there.
        """
        try:
            async with asyncio.timeout(READ_SECONDS):
                naming = await self._naming(victim_uid, now)
                return any([await self._bus.outcome(order.order_id) is None for order in naming])
        except (TimeoutError, BusError, Malformed) as error:
            raise TemporaryError("bus", str(error) or "the streams could not be read in time") from error

    async def _naming(self, victim_uid: str, now: datetime) -> list[EvictionOrder]:
        messages = self._bus.follow(
            self._bus.subjects.orders_stream, start=Start.at_time(now - LIVE_LOOK_BACK), stop_at_end=True
        )
        found = []
        async for message in messages:
            try:
                order = self._bus.signatures.order(message.data, message.subject)
            except Malformed:
                continue  # no evictor carries it out
            if decide.misrouted(order, message.subject, self._bus.subjects):
                continue  # nor that
            if order.not_after > now - PAST_DEADLINE and any(v.uid == victim_uid for v in order.victims):
                found.append(order)
        return found
