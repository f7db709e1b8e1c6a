"""Messages as streams hold them: written behind the one that is expected, and read by their subject."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

from makeway.bus import codec, metrics
from makeway.bus.comparison import Comparison
from makeway.bus.control import ControlState
from makeway.bus.decisions import DecisionRecord
from makeway.bus.errors import BusUnavailable, Malformed
from makeway.bus.messages import Begun, EvictionOrder, OrderKind, Outcome
from makeway.bus.nats.jetstream import JetStream, JetStreamError, StoredMessage
from makeway.bus.nats.publishing import AlreadyExists, Publication, Published, publish
from makeway.bus.signing.keys import SigningKind
from makeway.bus.signing.signatures import FAILURES, Signatures
from makeway.bus.streams import quarantine
from makeway.bus.streams.quarantine import QuarantinedMessage
from makeway.bus.subjects import Subjects

_FORGERIES: Final = 4
"""So many times an outcome is written where others that count for nothing are in its place."""

_M = TypeVar("_M", EvictionOrder, Begun, Outcome)


@dataclass(frozen=True)
class Last(Generic[_M]):
    """The last message of a subject: what it says, its sequence in the stream, when it was stored."""

    message: _M
    sequence: int
    time: datetime


@dataclass(frozen=True)
class Unverified:
    """The last message of a subject where its signature does not hold: it says nothing."""

    sequence: int


class Records:
    """The streams under one subject prefix. `source`: of what is published; see `codec.source`.

    What publishes raises as `makeway.bus.nats.publishing`; what reads raises `Malformed` where a message is
    not understood, and `BusUnavailable` where it could not be read.
    """

    def __init__(
        self, jetstream: JetStream, subjects: Subjects, *, source: str, signatures: Signatures | None = None
    ) -> None:
        self.jetstream = jetstream
        self.subjects = subjects
        self.source = source
        self.signatures = signatures or Signatures()

    # ------------------------------------------------------------------------------- publishing

    async def publish_order(
        self, order: EvictionOrder, expected_last_sequence: int
    ) -> Published | AlreadyExists:
        """Commit an order, where the last one of its pod, group or queue is the one the writer has read.

        `expected_last_sequence`: of that order, 0 for none. Raises ValueError where it names none.
        """
        subject = self.subjects.order(order)
        if not subject:
            raise ValueError("an order needs a preemptor; of kind group, a group; of kind quota, a queue")
        data = self.signatures.wrap(order, self.source, subject)
        stream = self.subjects.orders_stream
        return await publish(
            self.jetstream,
            Publication("order", stream, subject, order.order_id, data, expected_last_sequence),
        )

    async def publish_begun(self, begun: Begun) -> None:
        """Say that an order has begun, once or again."""
        stream, subject = self.subjects.begun_stream, self.subjects.begun(begun.order_id)
        data = self.signatures.wrap(begun, self.source, subject)
        await publish(self.jetstream, Publication("begun", stream, subject, codec.envelope_id(begun), data))

    async def publish_outcome(self, outcome: Outcome) -> Published | AlreadyExists:
        """Write the one outcome of an order. `AlreadyExists` holds the other writer's.

        What is stored under no good signature is no outcome, and is replaced, whatever it is.
        """
        subject, id_ = self.subjects.outcome(outcome.order_id), codec.envelope_id(outcome)
        data = self.signatures.wrap(outcome, self.source, subject)
        message_id, expected = id_, 0
        for _ in range(_FORGERIES):
            answer = await publish(
                self.jetstream,
                Publication("outcome", self.subjects.outcomes_stream, subject, message_id, data, expected),
            )
            if not isinstance(answer, AlreadyExists) or not self._counts_for_nothing(answer.existing):
                return answer
            # Within the duplicate window the stream takes no second message of an id, on whatever subject
            # the first one is: this one cannot be foreseen.
            expected = answer.existing.sequence if answer.existing else 0
            message_id = f"{id_}-{secrets.token_hex(8)}"
        raise BusUnavailable(f"{subject} is written again and again by one who cannot sign")

    def _counts_for_nothing(self, stored: StoredMessage | None) -> bool:
        """Report whether an outcome may be written in place of what is stored, or of nothing."""
        if stored is None:
            return True
        return self.signatures.refuses(stored.data, stored.subject, SigningKind.OUTCOME)

    async def publish_decision(self, record: DecisionRecord) -> None:
        """Write a decision record, at least once."""
        to = self.subjects.decisions_stream, self.subjects.decision(record)
        await publish(
            self.jetstream, Publication("decision", *to, record.decision_id, codec.wrap(record, self.source))
        )

    async def publish_comparison(self, comparison: Comparison) -> None:
        """Write a comparison beside the decision it is about."""
        to = self.subjects.decisions_stream, self.subjects.comparison(comparison.preemptor.uid)
        id_, data = codec.envelope_id(comparison), codec.wrap(comparison, self.source)
        await publish(self.jetstream, Publication("comparison", *to, id_, data))

    async def publish_recording(self, name: str, number: int, data: bytes, after: int) -> int:
        """Write a part of a recording, `number` from 0, and return its sequence. Reads nothing.

        name: of the recording, to which no other writes. after: the sequence of the part before; 0 for the
        first. Raises BusUnavailable also where that is not the last one stored, as after NATS has lost it.
        """
        to = self.subjects.recordings_stream, self.subjects.recording(name)
        published = await publish(
            self.jetstream, Publication("recording", *to, f"{name}.{number}", data, after, only_writer=True)
        )
        if isinstance(published, AlreadyExists):
            raise BusUnavailable(f"part {number - 1} of recording {name} is not the last one stored")
        return published.sequence

    async def publish_control(
        self, state: ControlState, expected_last_sequence: int, at: datetime
    ) -> Published | AlreadyExists:
        """Say what is effective, where the last word is the one that the writer has read.

        `expected_last_sequence`: of that, 0 for none. `AlreadyExists`: another leader has spoken.
        """
        stream, subject = self.subjects.control_stream, self.subjects.control
        data = self.signatures.wrap(state, self.source, subject, at=at)
        id_ = codec.envelope_id(state)
        return await publish(
            self.jetstream, Publication("control", stream, subject, id_, data, expected_last_sequence)
        )

    async def quarantine(self, message: QuarantinedMessage) -> None:
        """Put a message aside, once however often it is called."""
        headers, data = quarantine.encode(message)
        to = self.subjects.quarantine_stream, self.subjects.quarantined(message.component)
        await publish(
            self.jetstream,
            Publication("quarantine", *to, quarantine.message_id(message), data, headers=headers),
        )

    # ---------------------------------------------------------------------------------- reading

    async def last_order(
        self, about: str, kind: OrderKind = "pod"
    ) -> Last[EvictionOrder] | Unverified | None:
        """The last order about something, as `orders_of` names it: live or not, or a void."""
        return await self._last_order(self.subjects.orders_of(kind, about))

    async def last_like(self, order: EvictionOrder) -> Last[EvictionOrder] | Unverified | None:
        """The last order for the same pod, PodGroup or queue; as `last_order`."""
        return await self._last_order(self.subjects.order(order))

    async def _last_order(self, subject: str) -> Last[EvictionOrder] | Unverified | None:
        return await self._last(
            self.subjects.orders_stream, subject, self.signatures.order, SigningKind.ORDER
        )

    async def outcome(self, order_id: str) -> Last[Outcome] | None:
        """The outcome of an order, None while it is live; one whose signature does not hold is none."""
        stream, subject = self.subjects.outcomes_stream, self.subjects.outcome(order_id)
        last = await self._last(stream, subject, self.signatures.outcome, SigningKind.OUTCOME)
        return last if isinstance(last, Last) else None

    async def begun(self, order_id: str) -> Begun | None:
        """What an order's evictor knew when it began; None where none has, or its signature does not hold.

        A stream that does not exist yet holds none.
        """
        stream, subject = self.subjects.begun_stream, self.subjects.begun(order_id)
        last = await self._last(
            stream, subject, self.signatures.begun, SigningKind.OUTCOME, missing_is_empty=True
        )
        return last.message if isinstance(last, Last) else None

    async def control(self) -> tuple[ControlState | None, int]:
        """The last control state, of whatever cluster, and its sequence; 0 where nothing was ever said.

        The state is None too where it is not understood, or of a time that cannot be.
        """
        stored = await self._stored(self.subjects.control_stream, self.subjects.control)
        if stored is None:
            return None, 0
        try:
            state = self.signatures.control(stored.data, self.subjects.control, datetime.now(UTC))
        except Malformed as error:
            metrics.MALFORMED.labels("control", error.reason).inc()
            return None, stored.sequence
        return state, stored.sequence

    async def _last(
        self,
        stream: str,
        subject: str,
        decode: Callable[[bytes, str], _M],
        kind: SigningKind,
        *,
        missing_is_empty: bool = False,
    ) -> Last[_M] | Unverified | None:
        stored = await self._stored(stream, subject, missing_is_empty=missing_is_empty)
        if stored is None:
            return None
        try:
            message = decode(stored.data, subject)
        except Malformed as error:
            if error.reason not in FAILURES and not self.signatures.refuses(stored.data, subject, kind):
                raise
            return Unverified(stored.sequence)
        return Last(message, stored.sequence, stored.time)

    async def _stored(
        self, stream: str, subject: str, *, missing_is_empty: bool = False
    ) -> StoredMessage | None:
        try:
            return await self.jetstream.last_message(stream, subject)
        except JetStreamError as error:
            if missing_is_empty and error.not_found:
                return None
            raise BusUnavailable(str(error)) from error
