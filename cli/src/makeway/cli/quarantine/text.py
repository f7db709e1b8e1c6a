"""Parked messages as text and as JSON. Pure. Nothing in them reaches a terminal unescaped."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final

from makeway.bus.quarantine import QuarantinedMessage, QuarantineEntry
from makeway.core.k8s.times import api_time

HEAD_BYTES: Final = 4096
"""How much of a payload is shown unless all is asked for."""


def headers(entry: QuarantineEntry) -> Iterator[tuple[str, str]]:
    """What is known of a message, by name."""
    message = entry.message
    yield "Number", str(entry.number)
    yield "Put aside", f"{api_time(entry.parked_at)} by {message.component}"
    yield "Reason", message.reason
    yield "Detail", message.detail
    yield "Subject", message.subject
    yield "Stream", f"{message.stream}, sequence {message.sequence}"
    yield "Published", api_time(message.published_at)
    if message.deliveries:
        yield "Deliveries", str(message.deliveries)
    if entry.replayed_as:
        yield "Replayed", f"as sequence {entry.replayed_as}"
    yield "Payload", f"{message.cut_from or len(message.data)} bytes"


def payload(message: QuarantinedMessage, *, full: bool) -> str:
    """The payload with all but printable text escaped, cut unless `full`, with a note of what is missing."""
    data = message.data if full else message.data[:HEAD_BYTES]
    text = escaped(data)
    if left := len(message.data) - len(data):
        text += f"\n... {left} more bytes; --full shows them"
    if message.cut_from:
        text += f"\n... only the first {len(message.data)} of {message.cut_from} bytes were kept"
    return text


def escaped(data: bytes) -> str:
    """Text as it is, line feeds too; control characters, invisible ones and what is no UTF-8 as escapes."""
    text = data.decode("utf-8", "backslashreplace")
    return "".join(c if c == "\n" or c.isprintable() else ascii(c)[1:-1] for c in text)


def as_json(entry: QuarantineEntry, *, payload_too: bool = False) -> dict[str, Any]:
    """All of it for a program; the payload in base64, since it may be anything."""
    message = entry.message
    fields: dict[str, Any] = {
        "number": entry.number,
        "parkedAt": api_time(entry.parked_at, "microseconds"),
        "component": message.component,
        "reason": message.reason,
        "detail": message.detail,
        "subject": message.subject,
        "stream": message.stream,
        "sequence": message.sequence,
        "deliveries": message.deliveries,
        "publishedAt": api_time(message.published_at, "microseconds"),
        "bytes": message.cut_from or len(message.data),
        "whole": not message.cut_from,
        "replayedAs": entry.replayed_as or None,
    }
    if payload_too:
        fields["payload"] = base64.b64encode(message.data).decode()
    return fields
