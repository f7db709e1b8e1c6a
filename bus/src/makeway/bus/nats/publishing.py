"""Publishing into streams: compare-and-set, repeated while ambiguous, read back before anyone is told.

An attempt that was not answered may have been stored, or may yet be. So it is repeated with the
same id and the same expected sequence, which the stream stores at most once: within the duplicate
window by the id, after it by the sequence. Where the stream then says that a message of this id is
stored already, or another came first, that message is read: it may be our own, or, as all
evictors give an order's outcome the same id, another's. The only writer of a subject reads nothing: what is
stored behind the message that it expected is its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_incrementing

from makeway.bus import metrics, tracing
from makeway.bus.errors import BusError, BusUnavailable
from makeway.bus.nats.jetstream import (
    EXPECTED_LAST_SUBJECT_SEQUENCE,
    MSG_ID,
    Ack,
    JetStream,
    JetStreamError,
    StoredMessage,
)

_ATTEMPTS: Final = 4
_ATTEMPT_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.25

Kind = Literal["order", "begun", "outcome", "decision", "comparison", "control", "quarantine", "recording"]


@dataclass(frozen=True)
class Published:
    """The message is stored, by this publish or an earlier attempt at it."""

    sequence: int


@dataclass(frozen=True)
class AlreadyExists:
    """Another message is the subject's last, or the one that was expected is gone.

    `existing` is the last one, or None where it is gone again already, or nothing was read back.
    """

    existing: StoredMessage | None


@dataclass(frozen=True)
class _Behind:
    """The subject's last message is not the one that was expected; `last`: its sequence, 0 for none."""

    last: int


class PublishRefused(BusError):  # noqa: N818 - a state, like the bus's other errors
    """The stream will not take this message, now or later: too large, or the stream is misconfigured."""


class MessageTooLarge(PublishRefused):
    """The message is too large; the stream takes others."""


@dataclass(frozen=True)
class Publication:
    """One message on its way into a stream.

    Attributes:
        kind: label of the metrics.
        stream: that holds the subject, for reading back.
        subject: that is published to.
        message_id: the envelope's id; the same message always has the same.
        data: the envelope.
        expected: sequence of the subject's last message, 0 for none; None to append without asking.
        headers: further ones.
        only_writer: no other writes to this subject. What is stored behind the expected sequence is an
            earlier attempt then, so nothing is read back, for which a writer may have no permission.
    """

    kind: Kind
    stream: str
    subject: str
    message_id: str
    data: bytes
    expected: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    only_writer: bool = False


async def publish(jetstream: JetStream, one: Publication) -> Published | AlreadyExists:
    """Store one message, in at most `_ATTEMPTS` bounded attempts (about 10 s).

    Raises:
        BusUnavailable: it is unknown whether it is stored.
        PublishRefused: it is not, and never will be; `MessageTooLarge` where that is why.
    """
    started = time.perf_counter()
    result = "unavailable"
    try:
        answer = await _stored(jetstream, one)
        result = "published" if isinstance(answer, Published) else "already_exists"
    except PublishRefused:
        result = "refused"
        raise
    else:
        return answer
    finally:
        metrics.PUBLISHES.labels(one.kind, result).inc()
        metrics.PUBLISH_SECONDS.labels(one.kind).observe(time.perf_counter() - started)


async def _stored(jetstream: JetStream, one: Publication) -> Published | AlreadyExists:
    expected = one.expected
    headers = {**tracing.headers(), **one.headers, MSG_ID: one.message_id}
    if expected is not None:
        headers[EXPECTED_LAST_SUBJECT_SEQUENCE] = str(expected)

    async def attempt() -> Ack | _Behind:
        """Return the acknowledgement; where the subject's last message is another, which one."""
        try:
            return await jetstream.publish(
                one.subject, one.data, headers=headers, timeout_seconds=_ATTEMPT_SECONDS
            )
        except JetStreamError as error:
            if error.wrong_last_sequence:
                return _Behind(error.last_sequence)
            refused = MessageTooLarge if error.too_large else PublishRefused
            raise (BusUnavailable if error.temporary else refused)(str(error)) from error

    ack: Ack | _Behind = await AsyncRetrying(
        retry=retry_if_exception_type(BusUnavailable),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_incrementing(_PAUSE_SECONDS, _PAUSE_SECONDS),
        reraise=True,
    )(attempt)
    if one.only_writer and expected is not None:
        # A single server says so by the subject's last sequence, servers that agree by the duplicate's.
        sequence = ack.sequence if isinstance(ack, Ack) else ack.last
        return Published(sequence) if sequence > expected else AlreadyExists(None)
    if isinstance(ack, _Behind) or (ack.duplicate and expected is not None):
        return await _who_was_first(jetstream, one)
    return Published(ack.sequence)


async def _who_was_first(jetstream: JetStream, one: Publication) -> Published | AlreadyExists:
    """Tell an earlier attempt of ours from another writer: by the bytes, as ids are not the writer's own."""
    try:
        existing = await jetstream.last_message(one.stream, one.subject)
    except JetStreamError as error:
        raise BusUnavailable(f"read back {one.subject}: {error}") from error
    if existing and existing.data == one.data:
        return Published(existing.sequence)
    return AlreadyExists(existing)
