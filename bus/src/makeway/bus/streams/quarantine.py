"""Messages put aside: what could not be read or carried out, kept where people can see it. Pure.

A message is put into quarantine before it is taken out of the way, under one id for one message, so that a
second evictor, a restart, or a planner that reads the stream again adds no second copy. Nothing is published
again from here: a preemptor whose order was put aside is planned for again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from makeway.bus.nats.jetstream import MSG_ID, StoredMessage

SUBJECT: Final = "Makeway-Subject"
STREAM: Final = "Makeway-Stream"
SEQUENCE: Final = "Makeway-Sequence"
REASON: Final = "Makeway-Reason"
DETAIL: Final = "Makeway-Detail"
DELIVERIES: Final = "Makeway-Deliveries"
PUBLISHED: Final = "Makeway-Published"
CUT_FROM: Final = "Makeway-Cut-From"

MAX_PAYLOAD: Final = 900 * 1024
"""Headers and payload together must stay below what a NATS server takes, 1 MiB."""

_MAX_TEXT: Final = 500
_MAX_SUBJECT: Final = 4000


@dataclass(frozen=True)
class QuarantinedMessage:
    """A message of a stream that was put aside, and why.

    component: who did: evictor or planner.
    subject, stream, sequence: where it stands; it stays there until the stream forgets it.
    reason: a constant in kebab-case; detail: a sentence.
    deliveries: how often it was given out; 0 where the reader does not know.
    cut_from: the length of the payload where `data` is only its beginning, else 0.
    """

    component: str
    subject: str
    stream: str
    sequence: int
    reason: str
    detail: str
    deliveries: int
    published_at: datetime
    data: bytes
    cut_from: int = 0


@dataclass(frozen=True)
class QuarantineEntry:
    """A message as the quarantine holds it.

    number: its sequence in the quarantine's stream, by which people name it.
    """

    number: int
    parked_at: datetime
    message: QuarantinedMessage


def message_id(message: QuarantinedMessage) -> str:
    """One id for one message, by whatever component and however often; another where a stream began anew."""
    digest = hashlib.sha256(message.published_at.isoformat().encode() + message.data).hexdigest()[:16]
    return f"quarantine-{message.component}-{message.stream}-{message.sequence}-{digest}"


def encode(message: QuarantinedMessage) -> tuple[dict[str, str], bytes]:
    """The headers and the payload of a message in quarantine; long payloads are cut."""
    headers = {
        MSG_ID: message_id(message),
        SUBJECT: safe(message.subject, _MAX_SUBJECT),
        STREAM: message.stream,
        SEQUENCE: str(message.sequence),
        REASON: safe(message.reason),
        DETAIL: safe(message.detail),
        DELIVERIES: str(message.deliveries),
        PUBLISHED: message.published_at.isoformat(),
    }
    if len(message.data) > MAX_PAYLOAD:
        headers[CUT_FROM] = str(len(message.data))
    return headers, message.data[:MAX_PAYLOAD]


def safe(text: str, limit: int = _MAX_TEXT) -> str:
    """Text that can stand in a header: one line of printable ASCII, all else escaped; cut at `limit`."""
    escaped = "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in text[:limit])
    return escaped[:limit].strip()


def entries(messages: Iterable[StoredMessage]) -> list[QuarantineEntry]:
    """What the quarantine holds, oldest first; O(messages). What is not of makeway's making is left out."""
    return [
        QuarantineEntry(number=raw.sequence, parked_at=raw.time, message=_parked(raw))
        for raw in messages
        if STREAM in raw.headers
    ]


def _parked(raw: StoredMessage) -> QuarantinedMessage:
    try:
        published = datetime.fromisoformat(raw.headers.get(PUBLISHED, ""))
    except ValueError:
        published = raw.time
    return QuarantinedMessage(
        component=raw.subject.rpartition(".")[2],
        subject=raw.headers.get(SUBJECT, ""),
        stream=raw.headers[STREAM],
        sequence=_number(raw, SEQUENCE),
        reason=raw.headers.get(REASON, ""),
        detail=raw.headers.get(DETAIL, ""),
        deliveries=_number(raw, DELIVERIES),
        published_at=published,
        data=raw.data,
        cut_from=_number(raw, CUT_FROM),
    )


def _number(raw: StoredMessage, header: str) -> int:
    text = raw.headers.get(header, "")
    return int(text) if text.isdecimal() and len(text) < 20 else 0
