"""JetStream's API as requests and answers: publish with expectations, read a subject's last message, manage.

The requests are written here rather than through nats-py's managers because an update must keep
every field of a stream that makeway does not own, which their typed configurations drop.
Every call is bounded in time; every error comes out as one of `makeway.bus.errors`.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from makeway.bus.errors import BusError, BusUnavailable
from makeway.bus.reasons import reason_of

API: Final = "$JS.API"
API_TIMEOUT_SECONDS: Final = 5.0

MSG_ID: Final = "Nats-Msg-Id"
EXPECTED_LAST_SUBJECT_SEQUENCE: Final = "Nats-Expected-Last-Subject-Sequence"

_WRONG_LAST_SEQUENCE: Final = 10071
# Replicated streams only: a message of this id (10158), or another of this subject (10164), is being
# agreed on and is not stored yet, so who comes first is still open. Or a consumer was asked for while the
# server deletes the one that had its name (10149).
_IN_PROCESS: Final = frozenset({10158, 10164, 10149})
_TOO_LARGE: Final = 10054
_NOT_FOUND: Final = 404


class JetStreamError(BusError):
    """JetStream's refusal: `code` is like an HTTP status, `err_code` says exactly what."""

    def __init__(self, what: str, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{what}: {description} (code {code}, error {err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description

    @property
    def temporary(self) -> bool:
        """Whether the server may take it later.

        It is overloaded, electing a leader, short of resources, agreeing on a message before this one, or
        still deletes the consumer that had the name.
        """
        return self.code >= 500 or self.err_code in _IN_PROCESS

    @property
    def too_large(self) -> bool:
        """The message is larger than the stream or the server takes."""
        return self.err_code == _TOO_LARGE

    @property
    def not_found(self) -> bool:
        """The stream, consumer or message does not exist."""
        return self.code == _NOT_FOUND

    @property
    def wrong_last_sequence(self) -> bool:
        """A compare-and-set publish came second."""
        return self.err_code == _WRONG_LAST_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """The sequence of the subject's last message, where that is the wrong one; 0 where there is none.

        It stands in the description alone: "wrong last sequence: 4" (`JSStreamWrongLastSequenceErrF`).
        """
        digits = self.description.rpartition(":")[2].strip()
        return int(digits) if self.wrong_last_sequence and digits.isascii() and digits.isdigit() else 0


@dataclass(frozen=True)
class Ack:
    """A stored message's sequence; `duplicate` where its `Nats-Msg-Id` had been stored before."""

    sequence: int
    duplicate: bool


@dataclass(frozen=True)
class StoredMessage:
    """A message as a stream holds it."""

    subject: str
    sequence: int
    time: datetime
    data: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class JetStream:
    """JetStream over one NATS client."""

    def __init__(self, client: Client, prefix: str = API) -> None:
        self._client = client
        self._prefix = prefix

    @property
    def max_payload(self) -> int:
        """What the server takes of one message, in bytes."""
        return self._client.max_payload

    def subject(self, operation: str) -> str:
        """Return the subject on which the server takes an operation, as this login may ask."""
        return f"{self._prefix}.{operation}"

    async def api(self, operation: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call `$JS.API.<operation>`.

        Raises:
            JetStreamError: the server's refusal.
            BusUnavailable: no answer.
        """
        body = msgspec.json.encode(request) if request else b""
        with translated(f"JetStream {operation.split('.', 1)[0]}"):
            answer = await self._client.request(self.subject(operation), body, timeout=API_TIMEOUT_SECONDS)
        return _checked(operation, answer.data)

    async def publish(
        self, subject: str, data: bytes, *, headers: Mapping[str, str], timeout_seconds: float
    ) -> Ack:
        """Publish one message into the stream of its subject and wait for the acknowledgement. One attempt.

        Raises:
            JetStreamError: the stream refused it; it is not stored.
            BusUnavailable: whether it was stored is unknown.
        """
        with translated(f"publish to {subject}"):
            try:
                answer = await self._client.request(
                    subject, data, timeout=timeout_seconds, headers=dict(headers)
                )
            except nats.errors.MaxPayloadError as error:
                # The client knows what the server takes, and says what it would.
                refusal = f"{len(data)} bytes are more than the server takes"
                raise JetStreamError(f"publish to {subject}", 400, _TOO_LARGE, refusal) from error
        ack = _checked(f"publish to {subject}", answer.data)
        return Ack(sequence=int(ack["seq"]), duplicate=bool(ack.get("duplicate")))

    async def last_message(self, stream: str, subject: str) -> StoredMessage | None:
        """The last message of a subject, as the stream's leader has it (a direct get may be behind).

        Raises:
            JetStreamError, BusUnavailable: as `api`.
        """
        return await self._message(stream, {"last_by_subj": subject})

    async def first_message(self, stream: str, subject: str, after: int) -> StoredMessage | None:
        """The first message of a subject behind a sequence; as `last_message`."""
        return await self._message(stream, {"seq": after + 1, "next_by_subj": subject})

    async def _message(self, stream: str, which: Mapping[str, Any]) -> StoredMessage | None:
        try:
            answer = await self.api(f"STREAM.MSG.GET.{stream}", which)
        except JetStreamError as error:
            if error.not_found and error.err_code == _NO_MESSAGE:
                return None
            raise
        message = answer["message"]
        return StoredMessage(
            subject=message["subject"],
            sequence=int(message["seq"]),
            time=parse_time(message["time"]),
            data=base64.b64decode(message.get("data", "")),
            headers=_parse_headers(base64.b64decode(message.get("hdrs", ""))),
        )


_NO_MESSAGE: Final = 10037


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn nats-py's errors into `BusUnavailable`, with what was tried."""
    try:
        yield
    except nats.errors.NoRespondersError as error:
        raise BusUnavailable(f"{what}: no answer; is JetStream on, and does the stream exist?") from error
    except nats.errors.OutboundBufferLimitError as error:
        raise BusUnavailable(f"{what}: not connected to NATS") from error
    except nats.errors.TimeoutError as error:
        raise BusUnavailable(f"{what}: no answer in time") from error
    except (nats.errors.Error, OSError) as error:
        raise BusUnavailable(f"{what}: {reason_of(error)}") from error


async def unsubscribed(subscription: Subscription | None) -> None:
    """End a subscription, where there is one. Without a connection the server has none to take back."""
    if subscription is not None:
        with contextlib.suppress(nats.errors.Error, OSError):
            await subscription.unsubscribe()


def parse_time(text: str) -> datetime:
    """Read a time as the server writes it, RFC 3339 with up to nine digits of fraction."""
    return msgspec.convert(text, datetime)


def written_time(moment: datetime) -> str:
    """Write a time as the server reads it."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _checked(what: str, data: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise BusUnavailable(f"{what}: an answer that is not JetStream's: {error}") from error
    if refusal := answer.get("error"):
        raise JetStreamError(
            what, int(refusal["code"]), int(refusal.get("err_code", 0)), str(refusal.get("description", ""))
        )
    return answer


def _parse_headers(raw: bytes) -> dict[str, str]:
    """Read a header block: `NATS/1.0`, then a `Name: value` a line."""
    lines = raw.decode("utf-8", "replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name.strip(): value.strip() for name, _, value in pairs}
