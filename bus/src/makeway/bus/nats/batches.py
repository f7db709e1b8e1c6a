"""Fetching many messages of a stream with one request: batched direct gets (nats-server ADR-31)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from makeway.bus.errors import BusError, BusUnavailable
from makeway.bus.nats.connection import Connection
from makeway.bus.nats.jetstream import JetStream, StoredMessage, parse_time, translated, unsubscribed

_BATCH: Final = 256
_MAX_BYTES: Final = 4 << 20
_SILENCE_SECONDS: Final = 5.0

_SEQUENCE: Final = "Nats-Sequence"
_BEFORE: Final = "Nats-Last-Sequence"
_PENDING: Final = "Nats-Num-Pending"
_ADDED: Final = ("Nats-Stream", "Nats-Subject", _SEQUENCE, "Nats-Time-Stamp", _PENDING, _BEFORE)
"""Headers that the server puts before a message's own."""

_END: Final = "204"
_NOT_FOUND: Final = "404"


class GapError(BusError):
    """A message of a batch did not arrive."""


class Batches:
    """Batches of one stream's messages. One caller at a time."""

    def __init__(self, connection: Connection, jetstream: JetStream, stream: str) -> None:
        self._connection = connection
        self._subject = jetstream.subject(f"DIRECT.GET.{stream}")
        self._stream = stream
        self._inbox = ""
        self._asked = 0
        self._queue: asyncio.Queue[Msg] = asyncio.Queue()
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Listen for answers; raises `BusUnavailable`."""
        if self._subscription is not None:
            return
        self._inbox = self._connection.client.new_inbox()
        with translated("subscribe to an inbox"):
            self._subscription = await self._connection.client.subscribe(
                f"{self._inbox}.*", cb=self._on_message, pending_bytes_limit=-1
            )

    async def close(self) -> None:
        """Listen no more."""
        subscription, self._subscription = self._subscription, None
        await unsubscribed(subscription)

    async def get(self, request: Mapping[str, Any]) -> tuple[list[StoredMessage], bool]:
        """Return the messages that answer a direct get, oldest first, and whether there are more behind them.

        Raises:
            BusUnavailable: not connected, or the server fell silent.
            GapError: one of them is missing.
        """
        self._asked += 1
        reply = f"{self._inbox}.{self._asked}"
        body = msgspec.json.encode({**request, "batch": _BATCH, "max_bytes": _MAX_BYTES})
        with translated(f"read {self._stream}"):
            await self._connection.client.publish(self._subject, body, reply=reply)
        found: list[StoredMessage] = []
        while True:
            try:
                async with asyncio.timeout(_SILENCE_SECONDS):
                    message = await self._queue.get()
            except TimeoutError as error:
                raise BusUnavailable(f"read {self._stream}: no answer in time") from error
            if message.subject != reply:
                continue
            headers = message.headers or {}
            last = found[-1].sequence if found else 0
            if _SEQUENCE not in headers:
                return found, self._ended(headers, last)
            if found and int(headers.get(_BEFORE, last)) != last:
                raise GapError(f"{self._stream}: {headers[_SEQUENCE]} does not follow {last}")
            found.append(_stored(message.data, headers))

    def _ended(self, headers: Mapping[str, str], last: int) -> bool:
        status = headers.get("Status", "")
        if status == _END:
            if last and int(headers.get(_BEFORE, last)) != last:
                raise GapError(f"{self._stream}: the batch ends at {headers[_BEFORE]}, not at {last}")
            return int(headers.get(_PENDING, 0)) > 0
        if status == _NOT_FOUND:
            return False
        raise BusUnavailable(f"read {self._stream}: {status} {headers.get('Description', 'no answer')}")

    async def _on_message(self, message: Msg) -> None:
        self._queue.put_nowait(message)


def _stored(data: bytes, headers: Mapping[str, str]) -> StoredMessage:
    return StoredMessage(
        subject=headers.get("Nats-Subject", ""),
        sequence=int(headers[_SEQUENCE]),
        time=parse_time(headers["Nats-Time-Stamp"]),
        data=data,
        headers={key: value for key, value in headers.items() if key not in _ADDED},
    )
