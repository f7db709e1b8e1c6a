"""Pulling messages from a consumer, and noticing when it has stopped giving.

A pull asks the server for messages within a time, and for a heartbeat in between. Silence longer
than two heartbeats, a consumer that is gone, or a new connection means that the pull the server had
is worth nothing: `PullBroken` says so, and the owner sets its consumer up anew. (nats-py's own pull
may not resume after a restart of the server, nats.py#504.)
"""

from __future__ import annotations

import asyncio
from typing import Final, Literal

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from makeway.bus.errors import BusError
from makeway.bus.nats.connection import Connection
from makeway.bus.nats.jetstream import API, translated, unsubscribed

_SECOND: Final = 1_000_000_000
_HEARTBEAT_SECONDS: Final = 2.0
_EXPIRES_SECONDS: Final = 10.0

BrokenReason = Literal["heartbeat", "reconnected", "gone", "gap", "unavailable"]

_GONE: Final = (
    "consumer deleted",
    "leadership change",
    "server shutdown",
    "consumer is push based",
    "no responders",
)


class PullBroken(BusError):  # noqa: N818 - a state, like the bus's other errors
    """The consumer has to be set up anew; `reason` is a bounded metric label."""

    def __init__(self, reason: BrokenReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: BrokenReason = reason


class Pull:
    """Messages of one consumer, one after the other. One caller at a time.

    One is asked for at once, so that nothing is held here that another replica could have worked on.
    """

    def __init__(self, connection: Connection, stream: str, consumer: str) -> None:
        self._connection = connection
        self._next_subject = f"{API}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = connection.client.new_inbox()
        self._queue: asyncio.Queue[tuple[float, Msg | None]] = asyncio.Queue()
        self._subscription: Subscription | None = None
        self._pulls = 0
        self._asked = False  # the server has a pull, as far as is known
        self._silent_at = 0.0
        self._loop = asyncio.get_running_loop()

    async def open(self) -> None:
        """Listen for answers. Nothing is asked for before `next`."""
        with translated("subscribe to a pull's inbox"):
            self._subscription = await self._connection.client.subscribe(
                f"{self._inbox}.*", cb=self._on_message
            )
        self._connection.add_listener(self._on_reconnected)

    async def close(self) -> list[Msg]:
        """Listen no more; returns what had arrived and was not taken, so that it can be delivered again."""
        self._connection.remove_listener(self._on_reconnected)
        await unsubscribed(self._subscription)
        left = []
        while not self._queue.empty():
            _, message = self._queue.get_nowait()
            if message is not None and not _status(message):
                left.append(message)
        return left

    async def next(self, timeout_seconds: float) -> tuple[float, Msg] | None:
        """The next message and when it arrived, on the event loop's clock; None when the time is over.

        A pull may outlast the call; what it brings then is what the next call returns.

        Raises:
            PullBroken: set the consumer up anew.
            BusUnavailable: the pull could not be sent.
        """
        until = self._loop.time() + timeout_seconds
        while True:
            if self._queue.empty():
                now = self._loop.time()
                if now >= until:
                    return None
                if not self._asked:
                    await self._ask(min(_EXPIRES_SECONDS, max(until - now, 2 * _HEARTBEAT_SECONDS)))
                elif now >= self._silent_at:
                    raise PullBroken("heartbeat", f"nothing heard for {2 * _HEARTBEAT_SECONDS:.0f} s")
            try:
                async with asyncio.timeout_at(min(until, self._silent_at)):
                    received_at, message = await self._queue.get()
            except TimeoutError:
                continue
            if message is None:
                raise PullBroken("reconnected", "the server may not have the pull any more")
            if status := _status(message):
                self._on_status(message, status)
                continue
            self._asked = False
            self._heard()
            return received_at, message

    async def _ask(self, expires_seconds: float) -> None:
        self._pulls += 1
        request = {
            "batch": 1,
            "expires": int(expires_seconds * _SECOND),
            "idle_heartbeat": int(_HEARTBEAT_SECONDS * _SECOND),
        }
        with translated("pull"):
            await self._connection.client.publish(
                self._next_subject, msgspec.json.encode(request), reply=f"{self._inbox}.{self._pulls}"
            )
        self._asked = True
        self._heard()

    def _on_status(self, message: Msg, status: str) -> None:
        if message.subject != f"{self._inbox}.{self._pulls}":
            return
        description = (message.headers or {}).get("Description", "").strip()
        if status == "100":
            self._heard()
        elif status == "503":
            raise PullBroken("gone", "the consumer does not answer")
        elif description.lower().startswith(_GONE):
            raise PullBroken("gone", description)
        else:
            self._asked = False

    def _heard(self) -> None:
        self._silent_at = self._loop.time() + 2 * _HEARTBEAT_SECONDS

    async def _on_message(self, message: Msg) -> None:
        self._queue.put_nowait((self._loop.time(), message))

    def _on_reconnected(self) -> None:
        self._queue.put_nowait((self._loop.time(), None))


def _status(message: Msg) -> str:
    """The status of an inline status message, or empty for one of the stream.

    Those have a subject to acknowledge on; without looking at it, anyone could store a message that is
    taken for a status.
    """
    if message.reply or message.data or not message.headers:
        return ""
    return message.headers.get("Status", "")
