"""Writing orders: what is stored behind a message of the subject is the answer, and only that is believed.

An order is published behind the last message of its subject that its writer knows of, by compare-and-set. So
the first message behind that one decides what became of the order: the order itself, a void of it, or
another's message, and every writer that is asked about the order finds the same. That nothing is found there
decides nothing: a publish may be under way still, or the server that answers is behind. So where it is not
known whether an order is stored, a void of it is published behind the same message until the stream has taken
it or names the message that came first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import structlog
from msgspec import structs

from makeway.bus import tracing
from makeway.bus.client import Bus
from makeway.bus.commit import TOO_LARGE
from makeway.bus.errors import BusUnavailable, KeyNotPublished, Malformed
from makeway.bus.messages import EvictionOrder, Void
from makeway.bus.nats.jetstream import JetStreamError
from makeway.bus.nats.publishing import MessageTooLarge, Published, PublishRefused
from makeway.bus.records import Last, Unverified

PAUSE_SECONDS: Final = 1.0
"""Between two attempts at what has to be known."""

LOOKS: Final = 2
"""So many looks in a row have to show that the expected message is gone: then the stream was made anew."""

NOT_ACKNOWLEDGED: Final = "not-acknowledged"
TAKEN_BY_NO_STREAM: Final = "publish-refused"
"""Reasons of voids that the writer finds."""

_log = structlog.get_logger()


def voided(order: EvictionOrder, why: Void) -> EvictionOrder:
    """Return the message that is stored in place of an order: its names, and nothing to evict."""
    return structs.replace(
        order,
        not_after=order.created_at,
        victims=(),
        awaited=(),
        nominations_to_clear=(),
        members=(),
        pdb_violations=0,
        void=why,
    )


class OrderStore(Protocol):
    """Who stores orders."""

    async def store(self, order: EvictionOrder, after: int) -> EvictionOrder:
        """Store an order behind a message of its subject; see `OrderWriter.store`."""


class OrderWriter:
    """One process's. `sleep`: of its clock."""

    def __init__(
        self,
        bus: Bus,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._bus = bus
        self._sleep = sleep

    async def store(self, order: EvictionOrder, after: int) -> EvictionOrder:
        """Store an order or a void behind a message of its subject; return what is stored there.

        That is the order, a void of it, or another's message, which came first: then the order is not stored
        and never will be. Goes on until that is known.

        Args:
            order: as it is to be stored.
            after: the sequence of the subject's last message as the writer knows it, 0 for none.

        Raises:
            PublishRefused: the stream takes neither the order nor a void of it.
            KeyNotPublished: nothing is signed now.
            ValueError: the order does not name what it is for.
        """
        looks = 0
        with tracing.span("publish", order_id=order.order_id):
            while True:
                try:
                    answer = await self._bus.publish_order(order, after)
                    if isinstance(answer, Published):
                        return order
                    found = await self._read(self._bus.subjects.order(order), after)
                except (KeyNotPublished, PublishRefused) as error:
                    if isinstance(error, KeyNotPublished) or order.void is not None:
                        raise
                    reason = TOO_LARGE if isinstance(error, MessageTooLarge) else TAKEN_BY_NO_STREAM
                    why = Void(reason=reason, message=f"{len(order.victims)} victims: {error}")
                    order = voided(order, why)
                    continue
                except BusUnavailable as error:
                    _log.warning("order_publish_ambiguous", order_id=order.order_id, reason=str(error))
                    if order.void is None:
                        order = voided(order, Void(reason=NOT_ACKNOWLEDGED, message=str(error)))
                    else:
                        await self._sleep(PAUSE_SECONDS)
                    continue
                if isinstance(found, Last):
                    return found.message
                if isinstance(found, Unverified):
                    after = found.sequence
                    continue
                last = answer.existing.sequence if answer.existing is not None else 0
                looks = looks + 1 if last < after else 0
                if looks == LOOKS:
                    _log.warning("orders_stream_made_anew", order_id=order.order_id, expected=after)
                    after, looks = max(0, last - 1), 0
                await self._sleep(PAUSE_SECONDS)

    async def first(self, subject: str, after: int) -> EvictionOrder | None:
        """Return the first message of a subject behind another; that there is none decides nothing.

        Raises BusUnavailable.
        """
        while isinstance(found := await self._read(subject, after), Unverified):
            after = found.sequence
        return found.message if found is not None else None

    async def _read(self, subject: str, after: int) -> Last[EvictionOrder] | Unverified | None:
        bus = self._bus
        try:
            stored = await bus.jetstream.first_message(bus.subjects.orders_stream, subject, after)
        except JetStreamError as error:
            raise BusUnavailable(str(error)) from error
        if stored is None:
            return None
        try:
            return Last(bus.signatures.order(stored.data, subject), stored.sequence, stored.time)
        except Malformed:
            return Unverified(stored.sequence)
