"""What was said on the bus, read back from its streams."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from makeway.bus.codec import unwrap, unwrap_order, unwrap_outcome
from makeway.bus.comparison import Comparison
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.bus.subjects import Subjects, inbox


class BusReader:
    """Reads whole streams; every call starts at their beginning."""

    def __init__(self, jetstream: JetStreamContext, prefix: str) -> None:
        self._jetstream = jetstream
        self._subjects = Subjects(prefix)

    async def orders(self, preemptor_uid: str = "") -> list[EvictionOrder]:
        """All orders for pods, or those for one preemptor, oldest first; no voids."""
        subject = self._subjects.orders_of("pod", preemptor_uid) if preemptor_uid else self._subjects.orders
        read = self._read(self._subjects.orders_stream, subject)
        return [order async for data in read if (order := unwrap_order(data)).void is None]

    async def group_orders(self, group_uid: str) -> list[EvictionOrder]:
        """All orders for one PodGroup but those that its commits were voided by, oldest first."""
        read = self._read(self._subjects.orders_stream, self._subjects.orders_of("group", group_uid))
        return [order async for data in read if (order := unwrap_order(data)).void is None]

    async def outcomes(self, order_id: str = "") -> list[Outcome]:
        """All outcomes, or that of one order, oldest first."""
        subject = self._subjects.outcome(order_id) if order_id else self._subjects.outcomes
        return [unwrap_outcome(data) async for data in self._read(self._subjects.outcomes_stream, subject)]

    async def decisions(self, preemptor_uid: str = "") -> list[DecisionRecord]:
        """All decision records, or those about one preemptor, oldest first."""
        subject = (
            self._subjects.decisions_of("pod", preemptor_uid) if preemptor_uid else self._subjects.decisions
        )
        read = [unwrap(data)[1] async for data in self._read(self._subjects.decisions_stream, subject)]
        return [one for one in read if isinstance(one, DecisionRecord)]

    async def comparisons(self, preemptor_uid: str) -> list[Comparison]:
        """All comparisons with DefaultPreemption about one preemptor, oldest first."""
        subject = self._subjects.comparison(preemptor_uid)
        read = [unwrap(data)[1] async for data in self._read(self._subjects.decisions_stream, subject)]
        return [one for one in read if isinstance(one, Comparison)]

    async def _read(self, stream: str, subject: str) -> AsyncIterator[bytes]:
        """Every message of the stream on the subject; nothing where the stream is not there yet."""
        sequence = 1
        while True:
            try:
                message = await self._jetstream.get_msg(stream, seq=sequence, subject=subject, next=True)
            except NotFoundError:
                return
            yield message.data or b""
            sequence = (message.seq or 0) + 1


@asynccontextmanager
async def read_bus(
    url: str, prefix: str = "makeway", tls: ssl.SSLContext | None = None, api: str = "$JS.API"
) -> AsyncIterator[BusReader]:
    """Connect a reader. `api`: prefix of JetStream's API for this login."""
    connection = await nats.connect(
        url, connect_timeout=5, max_reconnect_attempts=-1, inbox_prefix=inbox("tests"), tls=tls
    )
    try:
        yield BusReader(connection.jetstream(prefix=api, timeout=5), prefix)
    finally:
        await connection.close()
