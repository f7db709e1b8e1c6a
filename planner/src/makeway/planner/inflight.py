"""From the streams into the ledger: every order and every outcome, from a while ago until now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

import structlog

from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.errors import Malformed
from makeway.bus.follow import Start, StreamMessage
from makeway.planner.ledger import Ledger
from makeway.planner.metrics import Metrics

LOOK_BACK = timedelta(minutes=30)
"""Orders older than this cannot be live: their `not_after` is a minute or so after they were made."""

_log = structlog.get_logger()


class InFlight:
    """Two followers that keep a ledger; each is a part of the process."""

    def __init__(self, bus: Bus, ledger: Ledger, metrics: Metrics, now: datetime) -> None:
        self._bus = bus
        self._ledger = ledger
        self._metrics = metrics
        self._start = Start.at_time(now - LOOK_BACK)
        self._orders_read = asyncio.Event()
        self._outcomes_read = asyncio.Event()

    @property
    def synced(self) -> bool:
        """Whether what was in the streams at the start has been read."""
        return self._orders_read.is_set() and self._outcomes_read.is_set()

    async def follow_orders(self) -> None:
        """Note every order."""
        stream = self._bus.subjects.orders_stream
        messages = self._bus.follow(stream, start=self._start, caught_up=self._orders_read)
        await self._each(messages, "orders", lambda data: self._ledger.ordered(codec.unwrap_order(data)))

    async def follow_outcomes(self) -> None:
        """Note every outcome."""
        stream = self._bus.subjects.outcomes_stream
        messages = self._bus.follow(stream, start=self._start, caught_up=self._outcomes_read)
        await self._each(messages, "outcomes", lambda data: self._ledger.ended(codec.unwrap_outcome(data)))

    async def _each(
        self, messages: AsyncIterator[StreamMessage], source: str, note: Callable[[bytes], None]
    ) -> None:
        async for message in messages:
            try:
                note(message.data)
            except Malformed as error:
                self._metrics.decode_errors.labels(source).inc()
                _log.warning(
                    "message_malformed", source=source, sequence=message.sequence, reason=error.reason
                )
