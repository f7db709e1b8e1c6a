"""Messages put aside: what could not be read or carried out, kept where people can see it. Pure.

A message is put into quarantine before it is taken out of the way, under one id for one message, so that a
second evictor, a restart, or a planner that reads the stream again adds no second copy. A replay is noted
by a small message of its own beside the one in quarantine: what is in the stream is never changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from makeway.bus.jetstream import MSG_ID

SUBJECT: Final = "Makeway-Subject"
STREAM: Final = "Makeway-Stream"
SEQUENCE: Final = "Makeway-Sequence"
REASON: Final = "Makeway-Reason"
DETAIL: Final = "Makeway-Detail"
DELIVERIES: Final = "Makeway-Deliveries"
PUBLISHED: Final = "Makeway-Published"
CUT_FROM: Final = "Makeway-Cut-From"
REPLAY_OF: Final = "Makeway-Replay-Of"
REPLAYED_AS: Final = "Makeway-Replayed-As"

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
    replayed_as: the sequence of the copy that a replay has put into the original stream, 0 for none.
    marks: the sequences of the notes about replays.
    """

    number: int
    parked_at: datetime
    message: QuarantinedMessage
    replayed_as: int = 0
    marks: tuple[int, ...] = ()


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


def encode_mark(number: int, replayed_as: int) -> dict[str, str]:
    """The headers of the note that entry `number` was replayed; it has no payload."""
    return {MSG_ID: f"replayed-{number}-{replayed_as}", REPLAY_OF: str(number), REPLAYED_AS: str(replayed_as)}


def safe(text: str, limit: int = _MAX_TEXT) -> str:
    """Text that can stand in a header: one line of printable ASCII, all else escaped; cut at `limit`."""
    escaped = "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in text[:limit])
    return escaped[:limit].strip()


@dataclass(frozen=True)
class RawMessage:
    """A message of the quarantine's stream as it is read."""

    subject: str
    sequence: int
    time: datetime
    headers: Mapping[str, str]
    data: bytes


def entries(messages: Iterable[RawMessage]) -> list[QuarantineEntry]:
    """What the quarantine holds, oldest first; O(messages). What is not of makeway's making is left out."""
    found: dict[int, QuarantineEntry] = {}
    marks: dict[int, list[tuple[int, int]]] = {}
    for raw in messages:
        if REPLAY_OF in raw.headers:
            marks.setdefault(_number(raw, REPLAY_OF), []).append((raw.sequence, _number(raw, REPLAYED_AS)))
        elif STREAM in raw.headers:
            found[raw.sequence] = QuarantineEntry(
                number=raw.sequence, parked_at=raw.time, message=_parked(raw)
            )
    return [_marked(entry, marks.get(entry.number, ())) for entry in found.values()]


def _marked(entry: QuarantineEntry, marks: Iterable[tuple[int, int]]) -> QuarantineEntry:
    marks = tuple(marks)
    if not marks:
        return entry
    return QuarantineEntry(
        entry.number, entry.parked_at, entry.message, marks[-1][1], tuple(m for m, _ in marks)
    )


def _parked(raw: RawMessage) -> QuarantinedMessage:
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


def _number(raw: RawMessage, header: str) -> int:
    text = raw.headers.get(header, "")
    return int(text) if text.isdecimal() and len(text) < 20 else 0
