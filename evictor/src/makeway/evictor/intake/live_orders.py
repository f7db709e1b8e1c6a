"""Which orders of the stream are live, read from it when it is asked."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from makeway.bus.client import Bus
from makeway.bus.errors import BusError, Malformed
from makeway.bus.messages import LIVE_LOOK_BACK, PAST_DEADLINE
from makeway.evictor.judge import decide
from makeway.evictor.retry import TemporaryError
from makeway.runtime.shared_reads import SharedReads

READ_SECONDS = 10.0
"""How long reading may take; a read is not doubled by one that waits for it for so long."""


class StreamOrders:
    """`makeway.evictor.intake.repair.LiveOrders` over the bus.

    One read of the orders of the last minutes, O(orders), for all questions that wait while another is under
    way; a question costs one look-up of each outcome.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._reads = SharedReads(self._read, READ_SECONDS)

    async def name(self, victim_uid: str, now: datetime) -> bool:
        """Whether an order that has neither ended nor run out names this victim.

        Raises:
            TemporaryError: NATS did not answer in time, or the streams are not there.
        """
        try:
            async with asyncio.timeout(2 * READ_SECONDS):
                naming = (await self._reads(self._bus.subjects.orders_stream)).get(victim_uid, ())
                live = [order_id for order_id, not_after in naming if not_after > now - PAST_DEADLINE]
                return any([await self._bus.outcome(order_id) is None for order_id in live])
        except (TimeoutError, BusError, Malformed) as error:
            raise TemporaryError("bus", str(error) or "the streams could not be read in time") from error

    async def _read(self, stream: str) -> Mapping[str, Sequence[tuple[str, datetime]]]:
        """Return ids and ends of the orders that may be live, by the UIDs of their victims."""
        async with asyncio.timeout(READ_SECONDS):
            return await self._by_victim(stream)

    async def _by_victim(self, stream: str) -> Mapping[str, Sequence[tuple[str, datetime]]]:
        found: defaultdict[str, list[tuple[str, datetime]]] = defaultdict(list)
        messages = self._bus.follow(stream, since=LIVE_LOOK_BACK, stop_at_end=True)
        async for message in messages:
            try:
                order = self._bus.signatures.order(message.data, message.subject)
            except Malformed:
                continue  # no evictor carries it out
            if decide.misrouted(order, message.subject, self._bus.subjects):
                continue  # nor that
            for victim in order.victims:
                found[victim.uid].append((order.order_id, order.not_after))
        return found
