"""The quarantine as a person works on it: read it, publish one message again, remove one."""

from __future__ import annotations

from makeway.bus import quarantine
from makeway.bus.client import Bus
from makeway.bus.errors import StreamConflict
from makeway.bus.follow import Start
from makeway.bus.jetstream import EXPECTED_LAST_SUBJECT_SEQUENCE, MSG_ID, JetStreamError
from makeway.bus.quarantine import REPLAY_OF, QuarantineEntry, RawMessage

_PUBLISH_SECONDS = 5.0


class NotReplayable(Exception):  # noqa: N818 - a state, like the bus's own errors
    """The message cannot be published again; the text says why and what to do instead."""


class Store:
    """The quarantine's stream, through one connection."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._stream = bus.subjects.quarantine_stream

    async def entries(self, *, reason: str = "", component: str = "") -> list[QuarantineEntry]:
        """What is in it, oldest first.

        Raises:
            StreamConflict: there is no such stream.
            BusError: NATS does not answer.
        """
        await self._check_stream()
        raws = [
            RawMessage(m.subject, m.sequence, m.time, m.headers, m.data)
            async for m in self._bus.follow(self._stream, start=Start.beginning(), stop_at_end=True)
        ]
        return [
            entry
            for entry in quarantine.entries(raws)
            if reason in ("", entry.message.reason) and component in ("", entry.message.component)
        ]

    async def entry(self, number: int) -> QuarantineEntry:
        """One of them.

        Raises:
            LookupError: it is not there.
            StreamConflict, BusError: as `entries`.
        """
        for entry in await self.entries():
            if entry.number == number:
                return entry
        raise LookupError(f"there is no message {number} in quarantine; see `makeway quarantine list`")

    async def replay(self, number: int) -> tuple[QuarantineEntry, int]:
        """Publish it again on its own subject, as the next after itself; returns the new sequence.

        The subject's last message must still be the original, or none where the stream has forgotten
        it, so that nothing newer is superseded. An interrupted replay is found again by the copy's header.

        Raises:
            NotReplayable: it was replayed, it is not whole, or something newer stands on its subject.
            LookupError, StreamConflict, BusError: as `entry`.
        """
        entry = await self.entry(number)
        message = entry.message
        if entry.replayed_as:
            raise NotReplayable(
                f"message {number} was replayed already, as {entry.replayed_as} of {message.stream}"
            )
        if message.cut_from:
            raise NotReplayable(
                f"message {number} is kept in part only ({len(message.data)} of {message.cut_from} bytes); "
                f"the original is sequence {message.sequence} of {message.stream}"
            )
        own = (self._bus.subjects.orders_stream, self._bus.subjects.outcomes_stream)
        if message.stream not in own:
            raise NotReplayable(
                f"message {number} is not from a stream of makeway's but from {message.stream!r}"
            )
        if not message.subject.isascii() or "\\" in message.subject:
            raise NotReplayable(
                f"message {number} came on a subject that cannot be written: {message.subject}"
            )
        last = await self._bus.jetstream.last_message(message.stream, message.subject)
        if last is not None and last.headers.get(REPLAY_OF) == str(number):
            sequence = last.sequence
        elif last is not None and last.sequence != message.sequence:
            raise NotReplayable(
                f"message {number}: something newer stands on {message.subject} (sequence {last.sequence} of "
                f"{message.stream}), which a replay would supersede"
            )
        else:
            sequence = await self._publish_again(entry, last.sequence if last is not None else 0)
        await self._mark(entry, sequence)
        return entry, sequence

    async def drop(self, entry: QuarantineEntry) -> None:
        """Remove it, with the notes about it; raises `BusError`."""
        for sequence in (*entry.marks, entry.number):
            try:
                await self._bus.jetstream.api(f"STREAM.MSG.DELETE.{self._stream}", {"seq": sequence})
            except JetStreamError as error:
                if not error.not_found:
                    raise

    async def _publish_again(self, entry: QuarantineEntry, expected: int) -> int:
        headers = {
            MSG_ID: f"replay-{entry.number}-{quarantine.message_id(entry.message)}",
            EXPECTED_LAST_SUBJECT_SEQUENCE: str(expected),
            REPLAY_OF: str(entry.number),
        }
        try:
            ack = await self._bus.jetstream.publish(
                entry.message.subject, entry.message.data, headers=headers, timeout_seconds=_PUBLISH_SECONDS
            )
        except JetStreamError as error:
            if not error.wrong_last_sequence:
                raise
            raise NotReplayable(
                f"message {entry.number}: something newer came on {entry.message.subject} just now"
            ) from error
        return ack.sequence

    async def _mark(self, entry: QuarantineEntry, sequence: int) -> None:
        await self._bus.jetstream.publish(
            self._bus.subjects.quarantined(entry.message.component),
            b"",
            headers=quarantine.encode_mark(entry.number, sequence),
            timeout_seconds=_PUBLISH_SECONDS,
        )

    async def _check_stream(self) -> None:
        try:
            await self._bus.jetstream.api(f"STREAM.INFO.{self._stream}")
        except JetStreamError as error:
            if not error.not_found:
                raise
            raise StreamConflict(
                f"there is no stream {self._stream} on this NATS; is --subject-prefix right, and has a "
                "planner or an evictor run there yet?"
            ) from error
