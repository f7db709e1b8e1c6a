"""The evictor's edge to the bus: what other orders came to, and this one's outcome.

What NATS does not answer is a `TemporaryError`, so that it is retried by the same rules as the API
server's failures.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from typing import Protocol, TypeVar

import structlog

from makeway.bus.client import Bus
from makeway.bus.errors import BusError, Malformed
from makeway.bus.messages import Begun, EvictionOrder, Outcome
from makeway.bus.nats.jetstream import JetStreamError
from makeway.bus.nats.publishing import AlreadyExists, PublishRefused
from makeway.bus.records import Last
from makeway.bus.streams.quarantine import QuarantinedMessage
from makeway.evictor.act.awaiting import Awaiting
from makeway.evictor.retry import PermanentError, TemporaryError
from makeway.runtime.shared_reads import SharedReads

T = TypeVar("T")

_log = structlog.get_logger()


class OrderDelivery(Protocol):
    """An order in this process's hands; see `makeway.bus.streams.orders_consumer.OrderDelivery`."""

    @property
    def data(self) -> bytes:
        """The envelope, not decoded."""

    @property
    def subject(self) -> str:
        """Where it was published."""

    @property
    def sequence(self) -> int:
        """In the orders' stream."""

    @property
    def deliveries(self) -> int:
        """How often it was given out, this time included."""

    @property
    def published_at(self) -> datetime:
        """When the stream stored it."""

    @property
    def traceparent(self) -> str:
        """The span that wrote it; empty for none."""

    async def ack_sync(self) -> None:
        """Done with."""

    async def in_progress(self) -> None:
        """Not done yet."""

    async def nak(self, delay_seconds: float = 0.0) -> None:
        """Have it delivered again."""

    async def term(self, reason: str) -> None:
        """Never deliver it again."""


class OrderRecords:
    """What one evictor needs of the streams besides the orders that it is handed."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._epochs = SharedReads(self._epoch)
        self.awaiting = Awaiting()

    async def outcome(self, order_id: str) -> Outcome | None:
        """The order's outcome; one of a version this process does not know is a `PermanentError`."""
        last = await _translated(self._bus.outcome(order_id))
        return last.message if last is not None else None

    async def last_order(self, order: EvictionOrder) -> EvictionOrder | None:
        """The latest order of the same preemptor, group or queue, None where that is a void; as `outcome`."""
        last = await _translated(self._bus.last_like(order))
        return last.message if isinstance(last, Last) and last.message.void is None else None

    async def epoch(self, name: str) -> int:
        """The epoch on the bus, read once for all who ask before the read begins; 0 before the first.

        A name that is no key is a `PermanentError`.
        A bucket that is gone (NATS was set up anew) counts as empty: no newer writer is known.
        """
        return await _translated(self._epochs(name))

    async def _epoch(self, name: str) -> int:
        try:
            return await self._bus.epochs.current(name)
        except JetStreamError as error:
            if error.not_found:
                return 0
            raise

    async def begun(self, order_id: str) -> Begun | None:
        """What was written; what is not understood was not written by an evictor of this version."""
        try:
            return await _translated(self._bus.begun(order_id))
        except PermanentError as error:
            _log.warning("begun_not_understood", error=str(error))
            return None

    async def begin(self, begun: Begun) -> None:
        """Write it, in at most some 10 s."""
        await _translated(self._bus.publish_begun(begun))

    async def publish(self, outcome: Outcome) -> Outcome:
        """Write the outcome, or return the one that was there first."""
        stands = await _translated(self._publish(outcome))
        self.awaiting.tell(outcome.order_id)
        return stands

    async def quarantine(self, delivery: OrderDelivery, reason: str, detail: str) -> None:
        """Store a copy in the quarantine; one that is not known to be stored is a `TemporaryError`."""
        await _translated(
            self._bus.quarantine(
                QuarantinedMessage(
                    component="evictor",
                    subject=delivery.subject,
                    stream=self._bus.subjects.orders_stream,
                    sequence=delivery.sequence,
                    reason=reason,
                    detail=detail,
                    deliveries=delivery.deliveries,
                    published_at=delivery.published_at,
                    data=delivery.data,
                )
            )
        )

    async def _publish(self, outcome: Outcome) -> Outcome:
        answer = await self._bus.publish_outcome(outcome)
        if isinstance(answer, AlreadyExists) and answer.existing is not None:
            subject = self._bus.subjects.outcome(outcome.order_id)
            return self._bus.signatures.outcome(answer.existing.data, subject)
        return outcome


async def _translated(call: Awaitable[T]) -> T:
    """Sort the bus's errors: what was not understood or taken never will be, everything else may pass."""
    try:
        return await call
    except (Malformed, ValueError) as error:
        raise PermanentError("not-understood", str(error)) from error
    except PublishRefused as error:
        raise PermanentError("refused", str(error)) from error
    except BusError as error:
        raise TemporaryError("bus", str(error)) from error
