"""How far the named consumers have read: programs of others, which are not looked at otherwise."""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

import structlog

from makeway.bus import metrics
from makeway.bus.client import Bus
from makeway.bus.errors import BusUnavailable
from makeway.bus.nats.jetstream import JetStreamError
from makeway.bus.streams.named_consumers import STREAMS, stream_of, unread

LOOK_SECONDS: Final = 60.0
"""Between two looks."""

_log = structlog.get_logger()


async def watch_forever(bus: Bus) -> NoReturn:
    """Look now and then; a login that may not ask is none the worse, and the metric is empty."""
    for kind in STREAMS:
        bus.connection.tolerate(bus.jetstream.subject(f"CONSUMER.LIST.{stream_of(bus.subjects, kind)}"))
    while True:
        await look_once(bus)
        await asyncio.sleep(LOOK_SECONDS)


async def look_once(bus: Bus) -> None:
    """Set the metric, of consumers that are there alone."""
    try:
        found = await unread(bus.jetstream, bus.subjects)
    except (JetStreamError, BusUnavailable) as error:
        _log.debug("named_consumers_not_seen", error=str(error))
        found = {}
    metrics.CONSUMER_UNREAD.clear()
    for (consumer, stream), count in found.items():
        metrics.CONSUMER_UNREAD.labels(consumer, stream).set(count)
