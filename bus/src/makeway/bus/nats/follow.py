"""Reading a stream as it grows, from any point, each message once and in order, across reconnections.

For readers that keep their own state (the planner's ledger, audit). They fetch batches with direct gets, and
look for more when a message passes, and several times a second: see `makeway.bus.nats.wakeup`. No consumer is
made, so a login that only reads needs no right to make one. A consumer's messages go to whatever subject its
maker names, which may be one of a stream's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from makeway.bus import metrics
from makeway.bus.errors import BusUnavailable
from makeway.bus.messages import StreamPosition
from makeway.bus.nats.batches import Batches, GapError
from makeway.bus.nats.connection import Connection
from makeway.bus.nats.jetstream import JetStream, JetStreamError, StoredMessage, written_time
from makeway.bus.nats.wakeup import WakeUp
from makeway.bus.subjects import matches

_RETRY_SECONDS: Final = 0.5
_PIECE: Final = 32
"""So many messages in a row, then others have their turn: each is decoded and verified, in 0.1 ms or so."""
_LOOK_AT_STREAM_SECONDS: Final = 1.0
"""Between two looks whether it is still the same stream."""

_log = structlog.get_logger()


class Follower:
    """One reader of one stream; see `follow`. `passing`: subject that it may subscribe to as a wake-up.

    It begins with the first message stored at `since` or later, or so long ago, by the clock of NATS, or the
    first behind the sequence `after`; by default with the oldest that the stream still holds. `reached`:
    called with how far the stream has been read, whenever that is further.
    """

    def __init__(
        self,
        connection: Connection,
        jetstream: JetStream,
        stream: str,
        subjects: Sequence[str],
        *,
        since: datetime | timedelta | None = None,
        after: int = 0,
        restarted: Callable[[], None] | None = None,
        reached: Callable[[StreamPosition], None] | None = None,
        passing: str = "",
    ) -> None:
        self._jetstream = jetstream
        self._stream = stream
        self._subjects = list(subjects)
        self._since = since if isinstance(since, datetime) else None
        self._ago = since if isinstance(since, timedelta) else None
        self._restarted = restarted
        self._reached = reached
        self._batches = Batches(connection, jetstream, stream)
        self._wake_up = WakeUp(connection, passing)
        self._found = 0
        self._last = after
        self._end = 0
        self._created = ""
        self._looked_at = 0.0
        self._trouble = ""

    async def open(self) -> None:
        """Listen for answers, and see which stream it is.

        Raises:
            BusUnavailable, JetStreamError: `drop`, then `open` again.
        """
        await self._batches.open()
        await self._wake_up.open()
        await self._look_at_stream()
        self._trouble = ""

    async def read(self) -> tuple[list[StoredMessage], bool]:
        """Return the next messages that were asked for, and whether there are no more at the moment.

        Raises:
            BusUnavailable, JetStreamError, GapError: `drop`, then `open` again.
        """
        if asyncio.get_running_loop().time() - self._looked_at > _LOOK_AT_STREAM_SECONDS:
            await self._look_at_stream()
        batch, more = await self._batches.get(self._request())
        self._found += len(batch)
        return [one for one in batch if self._wanted(one)], not more

    async def wait(self) -> None:
        """Wait until there may be more."""
        found, self._found = self._found, 0
        await self._wake_up.wait(found)

    def read_up_to(self, sequence: int) -> None:
        """Note that all up to here was worked on."""
        self._last = max(self._last, sequence)
        self._reach(self._last)

    def read_all(self) -> None:
        """Note that there are no more: what the stream had at the last look is read, or was not asked for."""
        self._reach(max(self._last, self._end))

    def _reach(self, sequence: int) -> None:
        if self._reached:
            self._reached(StreamPosition(created=self._created, sequence=sequence))

    async def drop(self, reason: str, detail: str) -> None:
        """Begin afresh behind what was read, as something is in doubt."""
        metrics.REBUILDS.labels("follow", reason).inc()
        if not self._trouble:
            _log.warning("follower_restarted", stream=self._stream, reason=reason, detail=detail)
        self._trouble = detail
        await self.close()

    async def close(self) -> None:
        """Listen no more."""
        await self._batches.close()
        await self._wake_up.close()

    def _request(self) -> dict[str, Any]:
        request: dict[str, Any] = {"seq": self._last + 1}
        if self._since and not self._last:
            request = {"start_time": written_time(self._since)}
        if len(self._subjects) == 1:
            request["next_by_subj"] = self._subjects[0]
        return request

    def _wanted(self, message: StoredMessage) -> bool:
        if len(self._subjects) < 2:
            return True
        if any(matches(message.subject, pattern) for pattern in self._subjects):
            return True
        self.read_up_to(message.sequence)
        return False

    async def _look_at_stream(self) -> None:
        """Begin anew where the stream was made anew, or has lost what was read from it."""
        info = await self._jetstream.api(f"STREAM.INFO.{self._stream}")
        self._looked_at = asyncio.get_running_loop().time()
        created, last = str(info["created"]), int(info["state"]["last_seq"])
        if (self._created and created != self._created) or last < self._last:
            _log.warning("stream_restarted", stream=self._stream, read_up_to=self._last, last=last)
            self._last, self._since, self._ago = 0, None, None
            if self._restarted:
                self._restarted()
        self._created, self._end = created, last
        if self._ago is not None:
            self._since, self._ago = datetime.fromisoformat(info["ts"]) - self._ago, None


async def follow(
    follower: Follower,
    *,
    caught_up: asyncio.Event | None = None,
    at_end: Callable[[float], None] | None = None,
    stop_at_end: bool = False,
) -> AsyncGenerator[StoredMessage]:
    """Every message from the start on, for ever, or until there is none left.

    `caught_up` is set when all that was there at the beginning has been yielded *and* the caller has
    come back for more, so that what it made of the last one is complete. `at_end` is called whenever that is
    so again, with a time of the monotonic clock: all that was stored before it has been yielded.

    Raises nothing for what passes; a stream that does not exist is waited for.
    """
    try:
        while True:
            try:
                await follower.open()
                while True:
                    began = time.monotonic()
                    messages, ended = await follower.read()
                    for number, message in enumerate(messages, 1):
                        yield message
                        follower.read_up_to(message.sequence)
                        if number % _PIECE == 0:
                            await asyncio.sleep(0)
                    if ended:
                        follower.read_all()
                        if caught_up:
                            caught_up.set()
                        if at_end:
                            at_end(began)
                        if stop_at_end:
                            return
                        await follower.wait()
            except GapError as error:
                await follower.drop("gap", str(error))
            except (BusUnavailable, JetStreamError) as error:
                await follower.drop("unavailable", str(error))
                await asyncio.sleep(_RETRY_SECONDS)
    finally:
        await follower.close()
