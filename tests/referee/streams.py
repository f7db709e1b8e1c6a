"""What the streams of a test's cluster hold, kept in a file: recordings, decisions and orders.

`MAKEWAY_KEEP_STREAMS=DIRECTORY make integration` keeps them of every cluster, just before it is stopped.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from integration.cluster import RunningCluster
from makeway.bus.subjects import Subjects

VARIABLE = "MAKEWAY_KEEP_STREAMS"


class Streams(msgspec.Struct, frozen=True):
    """Messages as they were stored, oldest first. `recordings`: the parts of each, by subject."""

    recordings: dict[str, list[bytes]]
    decisions: list[bytes]
    orders: list[bytes]


def keep(cluster: RunningCluster) -> None:
    """Write the streams of a cluster into a file of the directory in `MAKEWAY_KEEP_STREAMS`, if that is set.

    A cluster whose NATS a test has stopped for good is passed over.
    """
    directory = os.environ.get(VARIABLE, "")
    if not directory:
        return
    with ThreadPoolExecutor(1) as pool:  # a loop may run here already
        try:
            found = pool.submit(lambda: asyncio.run(_read(cluster))).result()
        except (NatsError, OSError, TimeoutError) as error:
            print(f"streams not kept: {type(error).__name__}: {error}")
            return
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{secrets.token_hex(8)}.msgpack").write_bytes(msgspec.msgpack.encode(found))


async def _read(cluster: RunningCluster) -> Streams:
    names = Subjects(cluster.owned.options.subject_prefix)
    recordings: dict[str, list[bytes]] = {}
    async with cluster.jetstream() as jetstream:
        async for subject, data in _messages(jetstream, names.recordings_stream):
            recordings.setdefault(subject, []).append(data)
        decisions = [data async for _, data in _messages(jetstream, names.decisions_stream)]
        orders = [data async for _, data in _messages(jetstream, names.orders_stream)]
    return Streams(recordings, decisions, orders)


async def _messages(jetstream: JetStreamContext, stream: str) -> AsyncIterator[tuple[str, bytes]]:
    """Read every message of a stream with its subject; none where the stream is not there."""
    sequence = 1
    while True:
        try:
            message = await jetstream.get_msg(stream, seq=sequence, subject=">", next=True)
        except NotFoundError:
            return
        yield message.subject or "", message.data or b""
        sequence = (message.seq or 0) + 1
