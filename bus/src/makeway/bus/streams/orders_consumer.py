"""Taking orders: the evictors' durable consumer, one delivery at a time, whatever happens to the server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final, NoReturn

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from makeway.bus import metrics
from makeway.bus.errors import BusUnavailable, StreamConflict
from makeway.bus.messages import LIVE_LOOK_BACK
from makeway.bus.nats.connection import Connection
from makeway.bus.nats.jetstream import JetStream, JetStreamError, translated
from makeway.bus.nats.pull import Pull, PullBroken
from makeway.bus.streams.configs import ACK_WAIT_SECONDS, evictor_config, told
from makeway.bus.streams.consumer import consumer_drift, ensure_consumer
from makeway.bus.subjects import Subjects
from makeway.bus.tracing import traceparent_of

_ACK_TIMEOUT_SECONDS: Final = 2.0
_ACK_ATTEMPTS: Final = 3
_REBUILD_PAUSE_SECONDS: Final = 0.25
_COMPARE_SECONDS: Final = 5.0
"""Between two looks at the consumer: a change of it holds every order back."""

_log = structlog.get_logger()


class Delivery:
    """An order in this process's hands for `ACK_WAIT_SECONDS`, longer with `in_progress`.

    data: the envelope's bytes, not decoded. Look at `deliveries` first: bytes that end the process
        that decodes them come again and again.
    sequence: in the stream.
    deliveries: how often the order was given out, this time included.
    published_at: when the stream stored it.
    traceparent: the span that wrote it; empty for none.
    """

    def __init__(self, message: Msg, client: Client) -> None:
        facts = message.metadata
        self.data = message.data
        self.subject = message.subject
        self.sequence = facts.sequence.stream
        self.deliveries = facts.num_delivered
        self.published_at = facts.timestamp.astimezone(UTC)
        self.traceparent = traceparent_of(message.headers)
        self._message = message
        self._client = client

    async def ack_sync(self) -> None:
        """Say that the order is done with, and wait until the server knows.

        Raises:
            BusUnavailable: it does not; the order will come again.
        """
        attempts = AsyncRetrying(
            stop=stop_after_attempt(_ACK_ATTEMPTS),
            retry=retry_if_exception_type(BusUnavailable),
            reraise=True,
        )
        await attempts(self._ack)

    async def _ack(self) -> None:
        with translated("acknowledge"):
            await self._message.ack_sync(timeout=_ACK_TIMEOUT_SECONDS)

    async def in_progress(self) -> None:
        """Keep the order for another `ACK_WAIT_SECONDS`; without an answer, so repeat it well before.

        Raises:
            BusUnavailable: not connected.
        """
        with translated("extend"):
            await self._message.in_progress()

    async def nak(self, delay_seconds: float = 0.0) -> None:
        """Have the order delivered again, not before the delay; raises `BusUnavailable`."""
        with translated("have delivered again"):
            await self._message.nak(delay=delay_seconds or None)

    async def term(self, reason: str) -> None:
        """Never deliver this again, to anyone; for what cannot be understood. Raises `BusUnavailable`."""
        with translated("terminate"):
            # nats-py's own term takes no reason and waits for no answer.
            await self._client.request(
                self._message.reply, f"+TERM {reason}".encode(), timeout=_ACK_TIMEOUT_SECONDS
            )


class OrdersConsumer:
    """A share in the evictors' durable consumer. Any number of processes may hold one."""

    def __init__(self, connection: Connection, jetstream: JetStream, subjects: Subjects) -> None:
        self._connection = connection
        self._jetstream = jetstream
        self._stream = subjects.orders_stream
        self._config = evictor_config(subjects)
        self._pull: Pull | None = None
        self._trouble = ""
        self._drift = ""

    def unhealthy(self) -> str:
        """Why no orders are taken at the moment, for readiness; empty where they are."""
        return self._drift or self._trouble

    async def keep_forever(self) -> NoReturn:
        """Compare the consumer with what it should be every few seconds; make it anew where it differs.

        It is unhealthy from the look that finds it until the look that finds it right again. Raises nothing:
        where the server refuses the consumer, it is asked again.
        """
        while True:
            await asyncio.sleep(_COMPARE_SECONDS)
            try:
                await self._keep()
            except (BusUnavailable, StreamConflict, JetStreamError) as error:
                # A pull that the server does not serve says so by itself.
                _log.warning("consumer_not_compared", stream=self._stream, error=str(error))

    async def _keep(self) -> None:
        name = self._config["name"]
        try:
            info = await self._jetstream.api(f"CONSUMER.INFO.{self._stream}.{name}")
        except JetStreamError as error:
            if not error.not_found:
                raise
            self._drift = f"consumer {name} of stream {self._stream} does not exist"
        else:
            different = consumer_drift(self._config, info)
            self._drift = f"consumer {name} of stream {self._stream}: {told(different)}" if different else ""
        if not self._drift:
            return
        metrics.REBUILDS.labels("orders", "changed").inc()
        _log.error("consumer_changed", stream=self._stream, detail=self._drift)
        await ensure_consumer(self._jetstream, self._stream, self._config, datetime.now(UTC) - LIVE_LOOK_BACK)

    async def open(self) -> None:
        """Create or reconcile the consumer and listen.

        One that was lost starts with the orders that may be alive, not with those of a week.

        Raises:
            StreamConflict, JetStreamError, BusUnavailable: it cannot be had.
        """
        start = datetime.now(UTC) - LIVE_LOOK_BACK
        await ensure_consumer(self._jetstream, self._stream, self._config, start)
        pull = Pull(self._connection, self._stream, self._config["name"])
        await pull.open()
        self._pull = pull
        self._trouble = ""

    async def close(self) -> None:
        """Listen no more, and have delivered again at once what had arrived and was not taken."""
        if self._pull is None:
            return
        pull, self._pull = self._pull, None
        for left in await pull.close():
            try:
                await Delivery(left, self._connection.client).nak()
            except BusUnavailable:
                return

    async def next(self, timeout_seconds: float) -> Delivery | None:
        """The next order, or None when the time is over. One caller at a time.

        Raises nothing for what passes: a lost connection, a server that restarts, a consumer someone
        deleted. The consumer is then set up anew, as often as it takes.

        Raises:
            StreamConflict: the server refuses the consumer for good.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_seconds
        while (left := until - loop.time()) > 0:
            try:
                if self._pull is None:
                    await self.open()
                    continue
                pulled = await self._pull.next(left)
            except PullBroken as broken:
                await self._drop(broken.reason, str(broken))
            except (BusUnavailable, JetStreamError) as error:
                await self._drop("unavailable", str(error))
                await asyncio.sleep(min(_REBUILD_PAUSE_SECONDS, max(until - loop.time(), 0)))
            else:
                if pulled and loop.time() - pulled[0] < ACK_WAIT_SECONDS / 2:
                    return Delivery(pulled[1], self._connection.client)
        return None

    async def _drop(self, reason: str, detail: str) -> None:
        metrics.REBUILDS.labels("orders", reason).inc()
        if not self._trouble:
            _log.warning("consumer_rebuilt", stream=self._stream, reason=reason, detail=detail)
        self._trouble = detail
        await self.close()
