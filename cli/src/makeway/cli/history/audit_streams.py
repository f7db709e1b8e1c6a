"""The three streams as one: what is past in the order of its times, then what comes as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import datetime
from typing import Any

from makeway.bus.client import Bus
from makeway.bus.errors import StreamConflict
from makeway.bus.follow import Start, StreamMessage
from makeway.bus.jetstream import JetStreamError

Item = tuple[str, StreamMessage]
"""What the message's stream holds (decision, order, outcome), and the message."""

_WAITING = 1000

_CLOSING_SECONDS = 2.0
"""How long an end waits for the readers: a cancellation that meets an answer may be swallowed on its way."""


async def everything(bus: Bus, *, since: datetime | None, follow: bool) -> AsyncGenerator[Item]:
    """Every message from `since` on, or from the oldest where it is not to follow, or from now.

    Raises:
        StreamConflict: a stream does not exist.
        BusError: NATS does not answer; or, while following, the connection is beyond repair.
    """
    last = await _last_sequences(bus)
    if since or not follow:
        start = Start.at_time(since) if since else Start.beginning()
        past = {
            kind: bus.follow(stream, start=start, stop_at_end=True) for kind, stream in _streams(bus).items()
        }
        async for kind, message in _merged(past):
            last[kind] = max(last[kind], message.sequence)
            yield kind, message
    if follow:
        async for item in _as_they_come(bus, last):
            yield item


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


async def _merged(iterators: Mapping[str, AsyncIterator[StreamMessage]]) -> AsyncIterator[Item]:
    """Merge iterators that are each ordered by time, holding one message of each."""
    heads = {kind: await anext(iterator, None) for kind, iterator in iterators.items()}
    while waiting := {kind: head for kind, head in heads.items() if head is not None}:
        first = min(waiting, key=lambda kind: waiting[kind].time)
        yield first, waiting[first]
        heads[first] = await anext(iterators[first], None)


async def _as_they_come(bus: Bus, last: Mapping[str, int]) -> AsyncIterator[Item]:
    queue: asyncio.Queue[Item] = asyncio.Queue(_WAITING)

    async def read(kind: str, stream: str) -> None:
        async for message in bus.follow(stream, start=Start.at_sequence(last[kind] + 1)):
            await queue.put((kind, message))

    async def read_all() -> None:
        await asyncio.gather(bus.until_lost(), *(read(*pair) for pair in _streams(bus).items()))

    reading = asyncio.create_task(read_all())
    try:
        while True:
            item = asyncio.create_task(queue.get())
            either: set[asyncio.Task[Any]] = {item, reading}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not item.done():
                item.cancel()
                reading.result()
                return
            yield item.result()
    finally:
        reading.cancel()
        await asyncio.wait({reading}, timeout=_CLOSING_SECONDS)
