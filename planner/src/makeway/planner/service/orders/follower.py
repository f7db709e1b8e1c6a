"""From the streams into the ledger: every order and every outcome, from a while ago until now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

import msgspec
import structlog

from makeway.bus.client import Bus
from makeway.bus.errors import BusError, Malformed
from makeway.bus.messages import LONGEST_NOT_AFTER, EvictionOrder, Outcome, StreamPosition
from makeway.bus.nats.jetstream import StoredMessage
from makeway.bus.signing.signatures import FAILURES
from makeway.bus.streams.quarantine import QuarantinedMessage
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger

LOOK_BACK = timedelta(minutes=30)
"""Orders older than this cannot be live: their `not_after` is a minute or so after they were made."""

UNREAD_SECONDS = 10.0
"""Orders are read every second where NATS answers, its JetStream too."""

_MAX_WAITING = 1000
_RETRY_SECONDS = 5.0

_log = structlog.get_logger()


class MisroutedError(Exception):
    """A message on another subject than its own, or of a time that no writer uses: not to be noted."""


def _nothing(*_: object) -> None:
    """Tell no one."""


class OrderFollower:
    """Two followers that keep a ledger, and a third that quarantines what they cannot read.

    `orders_read`: called whenever all orders have been read. `ended`: called with each outcome, once.
    """

    def __init__(
        self,
        bus: Bus,
        ledger: Ledger,
        metrics: PlannerMetrics,
        now: datetime,
        *,
        orders_read: Callable[[], None] = _nothing,
        ended: Callable[[Outcome], None] = _nothing,
    ) -> None:
        self._bus = bus
        self._told_orders_read = orders_read
        self._told_ended = ended
        self.lost: Callable[[list[EvictionOrder]], None] = _nothing
        """Called with the live orders when their stream was made anew."""
        self._ledger = ledger
        self._metrics = metrics
        self._began = now
        self._skipped: set[str] = set()
        self._orders_read = asyncio.Event()
        self._outcomes_read = asyncio.Event()
        self._aside: asyncio.Queue[QuarantinedMessage] = asyncio.Queue(_MAX_WAITING)

    @property
    def synced(self) -> bool:
        """Whether what was in the streams at the start has been read."""
        return self._orders_read.is_set() and self._outcomes_read.is_set()

    def unhealthy(self) -> str:
        """Return why no order can be stored either: theirs cannot be read; empty where they are."""
        quiet = time.monotonic() - self._ledger.read_until
        return (
            f"orders have not been read for {quiet:.0f} s" if self.synced and quiet > UNREAD_SECONDS else ""
        )

    async def follow_orders(self) -> None:
        """Note every order, and every void. Those that cannot be read are the evictors' to quarantine."""
        stream = self._bus.subjects.orders_stream
        messages = self._bus.follow(
            stream,
            since=LOOK_BACK,
            caught_up=self._orders_read,
            at_end=self._read_orders,
            restarted=lambda: self.lost(self._ledger.forget_live()),
        )
        await self._each(messages, "orders", self._ordered)

    async def follow_outcomes(self) -> None:
        """Note every outcome; quarantine those that cannot be read."""
        stream = self._bus.subjects.outcomes_stream
        messages = self._bus.follow(
            stream, since=LOOK_BACK, caught_up=self._outcomes_read, reached=self._read_outcomes
        )
        await self._each(messages, "outcomes", self._ended, aside=stream)

    async def quarantine_forever(self) -> None:
        """Put messages aside, beside the following, which never waits for it.

        No loop for tenacity: without a back-off or an end it would take more lines for the same.
        """
        while True:
            message = await self._aside.get()
            while True:
                try:
                    await self._bus.quarantine(message)
                except BusError as error:
                    _log.warning("message_not_parked", sequence=message.sequence, error=str(error))
                    await asyncio.sleep(_RETRY_SECONDS)
                else:
                    break

    def _read_orders(self, until: float) -> None:
        self._ledger.read_until = until
        self._told_orders_read()

    def _read_outcomes(self, position: StreamPosition) -> None:
        self._ledger.outcomes_read = position

    def _ordered(self, message: StoredMessage) -> None:
        order = self._bus.signatures.order(message.data, message.subject)
        if message.subject != (self._bus.subjects.order(order) or message.subject):
            raise MisroutedError(f"order {order.order_id} is on another subject than its own")
        if order.not_after > message.time + LONGEST_NOT_AFTER:
            raise MisroutedError(f"order {order.order_id} would live until {order.not_after.isoformat()}")
        if order.void is None:
            self._ledger.ordered(order)
        else:
            self._ledger.voided(order, order.void)

    def _ended(self, message: StoredMessage) -> None:
        outcome = self._bus.signatures.outcome(message.data, message.subject)
        if message.subject != self._bus.subjects.outcome(outcome.order_id):
            raise MisroutedError(f"an outcome of {outcome.order_id}")
        # A time to come would be remembered until then.
        outcome = msgspec.structs.replace(outcome, finished_at=min(outcome.finished_at, message.time))
        if self._ledger.ended(outcome):
            self._told_ended(outcome)

    async def _each(
        self,
        messages: AsyncIterator[StoredMessage],
        source: str,
        note: Callable[[StoredMessage], None],
        aside: str = "",
    ) -> None:
        async for message in messages:
            try:
                note(message)
            except Malformed as error:
                if error.reason in FAILURES and message.time < self._began:
                    self._skip(source, error.reason)
                else:
                    self._complain(message, source, error.reason, error.detail, aside)
            except MisroutedError as error:
                self._complain(message, source, "wrong-subject", str(error), aside)

    def _skip(self, source: str, reason: str) -> None:
        """Pass over what was stored before this process began: half an hour of it after a key was retired.

        It counts for nothing, and is told of once, so that it drives nothing out of the quarantine.
        """
        self._metrics.decode_errors.labels(source).inc()
        if source not in self._skipped:
            self._skipped.add(source)
            _log.warning("old_messages_unverified", source=source, reason=reason)

    def _complain(self, message: StoredMessage, source: str, reason: str, detail: str, aside: str) -> None:
        self._metrics.decode_errors.labels(source).inc()
        _log.warning("message_malformed", source=source, sequence=message.sequence, reason=reason)
        # Full only in a flood; the stream keeps the message, and the next planner meets it again.
        if aside and not self._aside.full():
            self._aside.put_nowait(
                QuarantinedMessage(
                    component="planner",
                    subject=message.subject,
                    stream=aside,
                    sequence=message.sequence,
                    reason=reason,
                    detail=detail,
                    deliveries=0,
                    published_at=message.time,
                    data=message.data,
                )
            )
