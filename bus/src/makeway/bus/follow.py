"""Reading a stream as it grows, from any point, each message once and in order, across reconnections.

For readers that keep their own state (the planner's ledger, audit): an ephemeral consumer without
acknowledgements, which lives in the server's memory and is set up anew from the last sequence
read whenever anything is in doubt. nats-py's ordered consumer is not used: it does not notice lost
heartbeats (nats.py#510).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import structlog

from makeway.bus import metrics
from makeway.bus.connection import Connection
from makeway.bus.errors import BusUnavailable
from makeway.bus.jetstream import JetStream, JetStreamError, written_time
from makeway.bus.pull import Pull, PullBroken

_SECOND: Final = 1_000_000_000
_BATCH: Final = 256
_WAIT_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.5
# The end of a process should not wait for a server that is away.
_CLOSE_SECONDS: Final = 1.0
# The server forgets the consumer of a reader that has been silent for so long.
_INACTIVE_SECONDS: Final = 60

_log = structlog.get_logger()


@dataclass(frozen=True)
class Start:
    """Where to begin: everything still there, what comes from now on, from a time, or from a sequence."""

    policy: str
    time: datetime | None = None
    sequence: int = 0

    @classmethod
    def beginning(cls) -> Start:
        """From the oldest message the stream still holds."""
        return cls("all")

    @classmethod
    def new(cls) -> Start:
        """From the first message after now."""
        return cls("new")

    @classmethod
    def at_time(cls, time: datetime) -> Start:
        """From the first message stored at `time` or later."""
        return cls("by_start_time", time=time)

    @classmethod
    def at_sequence(cls, sequence: int) -> Start:
        """From the first message with this sequence or a higher one."""
        return cls("by_start_sequence", sequence=max(sequence, 1))


@dataclass(frozen=True)
class StreamMessage:
    """A message of a stream. `pending`: how many that the reader asked for come after it, just now."""

    subject: str
    sequence: int
    time: datetime
    data: bytes
    pending: int
    headers: Mapping[str, str] = field(default_factory=dict)


class Follower:
    """One reader of one stream; see `follow`."""

    def __init__(
        self,
        connection: Connection,
        jetstream: JetStream,
        stream: str,
        subjects: Sequence[str],
        start: Start,
        *,
        restarted: Callable[[], None] | None = None,
    ) -> None:
        self._connection = connection
        self._jetstream = jetstream
        self._stream = stream
        self._subjects = list(subjects)
        self._start = start
        self._restarted = restarted
        self._last = 0
        self._created = ""
        self._pull: Pull | None = None
        self._consumer = ""
        self._consumer_sequence = 0
        self._trouble = ""

    async def open(self) -> int:
        """Set up a consumer behind the last message read; returns how many messages wait."""
        info = await self._jetstream.api(f"STREAM.INFO.{self._stream}")
        self._notice_another_stream(info)
        if self._start.policy == "new" and not self._last:
            # Pinned down now, so that nothing is missed should the consumer have to be made again.
            self._start = Start.at_sequence(int(info["state"]["last_seq"]) + 1)
        # Named in the subject, which permissions see, as well as in the request, which they do not.
        self._consumer = f"reader-{secrets.token_hex(8)}"
        created = await self._jetstream.api(
            f"CONSUMER.CREATE.{self._stream}.{self._consumer}",
            {"stream_name": self._stream, "config": {"name": self._consumer, **self._config()}},
        )
        self._consumer_sequence = 0
        pull = Pull(self._connection, self._stream, self._consumer, batch=_BATCH)
        await pull.open()
        self._pull = pull
        self._trouble = ""
        return int(created.get("num_pending", 0))

    async def next(self) -> StreamMessage | None:
        """The next message, or None when there was none for a while.

        Raises:
            PullBroken, BusUnavailable, JetStreamError: `drop`, then `open` again.
        """
        if self._pull is None:
            raise PullBroken("gone", "not open")
        pulled = await self._pull.next(_WAIT_SECONDS)
        if pulled is None:
            return None
        if pulled.consumer_sequence != self._consumer_sequence + 1:
            raise PullBroken("gap", f"{pulled.consumer_sequence} after {self._consumer_sequence}")
        self._consumer_sequence = pulled.consumer_sequence
        self._last = pulled.stream_sequence
        return StreamMessage(
            subject=pulled.message.subject,
            sequence=pulled.stream_sequence,
            time=pulled.time,
            data=pulled.message.data,
            pending=pulled.pending,
            headers=pulled.message.headers or {},
        )

    async def drop(self, reason: str, detail: str) -> None:
        """Let go of a consumer that is in doubt."""
        metrics.REBUILDS.labels("follow", reason).inc()
        if not self._trouble:
            _log.warning("consumer_rebuilt", stream=self._stream, reason=reason, detail=detail)
        self._trouble = detail
        await self._let_go()

    async def close(self) -> None:
        """Let go, and take the consumer off the server where it can be reached."""
        await self._let_go()
        if self._consumer:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._jetstream.api(f"CONSUMER.DELETE.{self._stream}.{self._consumer}")
            except (BusUnavailable, JetStreamError, TimeoutError):
                # The server forgets it by itself.
                self._consumer = ""

    async def _let_go(self) -> None:
        if self._pull:
            pull, self._pull = self._pull, None
            await pull.close()

    def _config(self) -> dict[str, Any]:
        start = Start.at_sequence(self._last + 1) if self._last else self._start
        config: dict[str, Any] = {
            "deliver_policy": start.policy,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": _INACTIVE_SECONDS * _SECOND,
            "mem_storage": True,
            "num_replicas": 1,
        }
        if start.sequence:
            config["opt_start_seq"] = start.sequence
        if start.time:
            config["opt_start_time"] = written_time(start.time)
        if self._subjects:
            config["filter_subjects"] = self._subjects
        return config

    def _notice_another_stream(self, info: Mapping[str, Any]) -> None:
        """Begin anew where the stream was made anew, or has lost what was read from it."""
        created, last = str(info["created"]), int(info["state"]["last_seq"])
        if (self._created and created != self._created) or last < self._last:
            _log.warning("stream_restarted", stream=self._stream, read_up_to=self._last, last=last)
            self._last = 0
            self._start = Start.beginning()
            if self._restarted:
                self._restarted()
        self._created = created


async def follow(
    follower: Follower, *, caught_up: asyncio.Event | None = None, stop_at_end: bool = False
) -> AsyncIterator[StreamMessage]:
    """Every message from the start on, for ever, or until there is none left.

    `caught_up` is set when all that was there at the beginning has been yielded *and* the caller has
    come back for more, so that what it made of the last one is complete.

    Raises nothing for what passes; a stream that does not exist is waited for.
    """
    try:
        while True:
            try:
                at_end = await follower.open() == 0
                while True:
                    if at_end:
                        if caught_up:
                            caught_up.set()
                        if stop_at_end:
                            return
                    message = await follower.next()
                    if message:
                        yield message
                        at_end = message.pending == 0
            except PullBroken as broken:
                await follower.drop(broken.reason, str(broken))
            except (BusUnavailable, JetStreamError) as error:
                await follower.drop("unavailable", str(error))
                await asyncio.sleep(_RETRY_SECONDS)
    finally:
        await follower.close()
