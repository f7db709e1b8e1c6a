"""Writing down what the leading planner sees, off the path of replies: the journal, chunk by chunk.

A recording that cannot be written, or of which NATS has lost a part, is given up and another is begun later;
no plan waits for it, and none depends on it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn, Protocol

import structlog

from makeway.bus.errors import BusError
from makeway.bus.ids import recording_id
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.recording import entries
from makeway.planner.recording.entries import AnyEntry
from makeway.planner.recording.journal import Journal, contents
from makeway.planner.snapshot.state import Snapshot

CHUNK_BYTES: Final = 512 * 1024
"""Entries of about so many bytes go into one chunk; compressed it is far below what NATS carries."""

ENTRIES_A_TURN: Final = 100
"""Entries that are encoded before other tasks get a turn: some 0.2 ms, once in a while 5 KiB of a request."""

PAUSE_SECONDS: Final = 0.5
"""How long a decision waits at the most before it is written."""

RETRY_SECONDS: Final = 30.0
"""After a failure; the first chunks of the next recording cost as much as listing the cluster."""

LEAST_GROWTH_BYTES: Final = 1024 * 1024
LONGEST_SECONDS: Final = 6 * 3600.0
"""A recording is as long as its beginning, a mebibyte, or these hours; then another begins. So reading one is
bounded, and the stream, which forgets after a day, always holds whole ones."""

_log = structlog.get_logger()


class RecordingPublisher(Protocol):
    """What is used of the bus."""

    async def publish_recording(self, name: str, number: int, data: bytes, after: int) -> int:
        """Store a chunk behind the one of sequence `after`, and return its own; raises BusError."""


@dataclass(eq=False)
class Recorder:
    """The task that keeps a recording of one snapshot. `unsynced()`: what is missing of that.

    `journal` is told of each change that the snapshot applies, and of each decision.
    """

    bus: RecordingPublisher
    snapshot: Snapshot
    journal: Journal
    metrics: PlannerMetrics
    _: KW_ONLY
    cluster_uid: str
    identity: str
    unsynced: Callable[[], str]

    def __post_init__(self) -> None:
        self._name = ""
        self._number = 0
        self._sequence = 0
        self._written = 0

    async def record_forever(self) -> NoReturn:
        """Keep one recording after the other, until cancelled."""
        try:
            while True:
                try:
                    await self._record()
                    self.metrics.recordings.labels("complete").inc()
                except BusError as error:
                    self.journal.end()
                    self.metrics.recordings.labels("failed").inc()
                    _log.warning("recording_failed", recording=self._name, error=str(error))
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self.journal.end()

    async def _record(self) -> None:
        """Write one recording, from the snapshot as it is now until it is long enough."""
        while self.unsynced():  # noqa: ASYNC110 - nothing signals when this changes
            await asyncio.sleep(PAUSE_SECONDS)
        now = datetime.now(UTC)
        whole = contents(self.snapshot, self.cluster_uid, self.identity, now)
        first = next(whole)
        # In the same turn: what changes from here on is noted for the new recording, the rest for the last.
        rest = self.journal.take(len(self.journal))
        name = recording_id(now)
        self.journal.begin(name)
        if rest:
            await self._write(rest)
        self._name, self._number, self._sequence, self._written = name, 0, 0, 0
        began = time.monotonic()
        await self._write([first])
        await self._write(whole)
        _log.info("recording_began", recording=name, bytes=self._written)
        limit = self._written + max(self._written, LEAST_GROWTH_BYTES)
        while self._written < limit and time.monotonic() - began < LONGEST_SECONDS:
            await asyncio.sleep(PAUSE_SECONDS)
            if self.journal.overflowed:
                self.metrics.recordings.labels("overflowed").inc()
                _log.warning("recording_overflowed", recording=name)
                return
            while len(self.journal):
                await self._write(self.journal.take(ENTRIES_A_TURN * 10))

    async def _write(self, these: Iterable[AnyEntry]) -> None:
        """Write entries in as many chunks as they take. Raises BusError."""
        chunk: list[bytes] = []
        size = 0
        for place, entry in enumerate(these):
            encoded = entries.encode_entry(entry)
            chunk.append(encoded)
            size += len(encoded)
            if size >= CHUNK_BYTES:
                await self._publish(chunk)
                chunk, size = [], 0
            elif place % ENTRIES_A_TURN == ENTRIES_A_TURN - 1:
                await asyncio.sleep(0)
        if chunk:
            await self._publish(chunk)

    async def _publish(self, chunk: list[bytes]) -> None:
        data = await asyncio.to_thread(entries.pack, self._number, chunk)
        self._sequence = await self.bus.publish_recording(self._name, self._number, data, self._sequence)
        self._number += 1
        self._written += len(data)
