"""The three streams as one: what is past in the order in which it was stored, then what comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.errors import Malformed, StreamConflict
from makeway.bus.nats.jetstream import JetStreamError, StoredMessage

_WAITING = 1000

_CLOSING_SECONDS = 2.0
"""How long an end waits for the readers: a cancellation that meets an answer may be swallowed on its way."""


@dataclass(frozen=True)
class StreamEntry:
    """One message of a stream, decoded where that was possible.

    kind: what its stream holds: decision, order or outcome. at: when it was written, by its writer.
    """

    stored: StoredMessage
    kind: str
    at: datetime
    content: codec.StreamMessage | Malformed

    def plain(self) -> dict[str, Any]:
        """Return it for a program: where it stood, and the event as it was, or what is wrong with it."""
        found: dict[str, Any] = {
            "kind": self.kind,
            "subject": self.stored.subject,
            "sequence": self.stored.sequence,
            "storedAt": self.stored.time,
        }
        if isinstance(self.content, Malformed):
            found["malformed"] = {"reason": self.content.reason, "detail": self.content.detail}
            found["data"] = self.stored.data.decode("utf-8", "replace")
        else:
            found["event"] = msgspec.json.decode(self.stored.data)
        return found


def entry_of(kind: str, stored: StoredMessage) -> StreamEntry:
    """Decode a message; never raises for what is in it. Pure."""
    try:
        envelope, content = codec.unwrap(stored.data)
    except Malformed as malformed:
        return StreamEntry(stored, kind, stored.time, malformed)
    return StreamEntry(stored, kind, envelope.time, content)


async def everything(
    bus: Bus, *, since: datetime | None, follow: bool, past_read: Callable[[], None] = lambda: None
) -> AsyncGenerator[StreamEntry]:
    """Every message from `since` on, or from the oldest where it is not to follow, or from now.

    `past_read` is called when what was there at first has been read. A decision may come after its order.

    Raises:
        StreamConflict: a stream does not exist.
        BusError: NATS does not answer; or, while following, the connection is beyond repair.
    """
    last = await _last_sequences(bus)
    if since or not follow:
        past = {
            kind: bus.follow(stream, since=since, stop_at_end=True) for kind, stream in _streams(bus).items()
        }
        async for kind, message in _merged(past):
            last[kind] = max(last[kind], message.sequence)
            yield entry_of(kind, message)
    past_read()
    if follow:
        async with aclosing(_as_they_come(bus, last)) as coming:
            async for entry in coming:
                yield entry


async def must_exist(bus: Bus) -> None:
    """Raise as `everything` where a stream does not exist, or NATS does not answer."""
    await _last_sequences(bus)


def _streams(bus: Bus) -> dict[str, str]:
    """The streams by what they hold; of equal times, the first comes first."""
    return {
        "decision": bus.subjects.decisions_stream,
        "order": bus.subjects.orders_stream,
        "outcome": bus.subjects.outcomes_stream,
    }


async def _last_sequences(bus: Bus) -> dict[str, int]:
    """Where each stream ends now."""
    last = {}
    for kind, stream in _streams(bus).items():
        try:
            last[kind] = int((await bus.jetstream.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])
        except JetStreamError as error:
            if not error.not_found:
                raise
            raise StreamConflict(
                f"there is no stream {stream} on this NATS; is --subject-prefix right, and has a planner or "
                "an evictor run there yet?"
            ) from error
    return last


async def _merged(
    iterators: Mapping[str, AsyncIterator[StoredMessage]],
) -> AsyncIterator[tuple[str, StoredMessage]]:
    """Merge iterators that are each ordered by time, holding one message of each."""
    heads = {kind: await anext(iterator, None) for kind, iterator in iterators.items()}
    while waiting := {kind: head for kind, head in heads.items() if head is not None}:
        first = min(waiting, key=lambda kind: waiting[kind].time)
        yield first, waiting[first]
        heads[first] = await anext(iterators[first], None)


async def _as_they_come(bus: Bus, last: Mapping[str, int]) -> AsyncGenerator[StreamEntry]:
    queue: asyncio.Queue[StreamEntry] = asyncio.Queue(_WAITING)

    async def read(kind: str, stream: str) -> None:
        async for message in bus.follow(stream, after=last[kind]):
            await queue.put(entry_of(kind, message))

    async def read_all() -> None:
        await asyncio.gather(bus.until_lost(), *(read(*pair) for pair in _streams(bus).items()))

    reading = asyncio.create_task(read_all())
    item = asyncio.create_task(queue.get())
    try:
        while True:
            await asyncio.wait({item, reading}, return_when=asyncio.FIRST_COMPLETED)
            if not item.done():
                reading.result()
                return
            yield item.result()
            item = asyncio.create_task(queue.get())
    finally:
        item.cancel()
        reading.cancel()
        await asyncio.wait({reading}, timeout=_CLOSING_SECONDS)
