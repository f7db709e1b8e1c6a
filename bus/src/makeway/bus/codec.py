"""Bytes to messages and back. Pure; every byte that enters or leaves makeway's Python parts passes here.

Decoding is bounded in size and depth, ignores fields it does not know, and refuses another major
version with a reason instead of guessing. The Go side of the same rules is `plugin/wire/codec.go`;
the golden files in `bus/testdata` hold the two together.
"""

from __future__ import annotations

import itertools
from datetime import datetime
from functools import lru_cache
from typing import Final, Protocol, TypeVar

import msgspec

from makeway.bus.commit import TYPE_OFFER, Offer
from makeway.bus.comparison import TYPE_COMPARISON, Comparison
from makeway.bus.control import REVISION_AHEAD, TYPE_CONTROL, ControlState
from makeway.bus.decisions import TYPE_DECISION, DecisionRecord
from makeway.bus.envelope import Envelope
from makeway.bus.errors import Malformed
from makeway.bus.messages import (
    API_VERSION,
    TYPE_BEGUN,
    TYPE_ORDER,
    TYPE_OUTCOME,
    Begun,
    EvictionOrder,
    Message,
    Outcome,
)

MAX_BYTES: Final = 1 << 20
"""A NATS server refuses larger messages by default."""

MAX_DEPTH: Final = 100
"""A v1.Pod with its managed fields nests about 20 deep; a decoder recurses once a level."""

UNKNOWN_REQUEST: Final = "unknown"
"""The `request_id` of an answer to a question that had none."""

_MAX_SHOWN: Final = 100

JSON: Final = "application/json"
SPEC_VERSION: Final = "1.0"

StreamMessage = EvictionOrder | Begun | Outcome | DecisionRecord | ControlState | Comparison | Offer
"""What travels in an envelope; an offer in a plan reply, the others in streams."""

_M = TypeVar("_M", bound=Message)

_TYPES: Final[dict[str, type[StreamMessage]]] = {
    TYPE_ORDER: EvictionOrder,
    TYPE_BEGUN: Begun,
    TYPE_OUTCOME: Outcome,
    TYPE_DECISION: DecisionRecord,
    TYPE_CONTROL: ControlState,
    TYPE_COMPARISON: Comparison,
    TYPE_OFFER: Offer,
}

_encoder: Final = msgspec.json.Encoder(order="deterministic")


class _Version(msgspec.Struct, rename="camel"):
    """The version alone: another version's other fields mean nothing here."""

    api_version: str = ""


class _RequestId(msgspec.Struct, rename="camel"):
    """The id alone, of a request whose other fields may be anything."""

    request_id: str = ""


class Versioned(Protocol):
    """A message that says its own version."""

    @property
    def api_version(self) -> str:
        """`API_VERSION`, where it is of this one."""


_V = TypeVar("_V", bound=Versioned)

_decoder: Final = lru_cache(maxsize=None)(msgspec.json.Decoder)

_request_id_decoder: Final = msgspec.json.Decoder(_RequestId)
_version_decoder: Final = msgspec.json.Decoder(_Version)
_envelope_decoder: Final = msgspec.json.Decoder(Envelope)
_data_decoders: Final = {name: msgspec.json.Decoder(type_) for name, type_ in _TYPES.items()}


def encode(message: Message | Envelope) -> bytes:
    """Write a message: compact, fields in the order of their declaration, keys of maps sorted."""
    return _encoder.encode(message)


def request_id_of(data: bytes) -> str:
    """The id of a request that was not understood, so that its asker knows the answer; else `unknown`."""
    try:
        _check_bounds(data)
        return _decode(data, _request_id_decoder).request_id or UNKNOWN_REQUEST
    except Malformed:
        return UNKNOWN_REQUEST


def decode(type_: type[_V], data: bytes) -> _V:
    """Read bare JSON of a type whose `apiVersion` says what it is.

    Raises:
        Malformed: it was not understood.
    """
    _check_bounds(data)
    decoder: msgspec.json.Decoder[_V] = _decoder(type_)
    try:
        message = _decode(data, decoder)
    except Malformed:
        # Of another version that may be the reason, and the version is what to complain of.
        _check_version(_decode(data, _version_decoder))
        raise
    _check_version(message)
    return message


def wrap(message: StreamMessage, source: str, *, at: datetime | None = None) -> bytes:
    """Put a message into an envelope and encode it; as `envelope_of`."""
    return encode(envelope_of(message, source, at=at))


def envelope_of(message: StreamMessage, source: str, *, at: datetime | None = None) -> Envelope:
    """Put a message into an envelope, not signed.

    Args:
        message: an order, its begin or outcome, a decision record, control state or comparison.
        source: `makeway/<component>/<identity>`, see `source`.
        at: the event's time where the message itself has none (control state).
    """
    id_, subject, own_time = _headline(message)
    time = own_time or at
    if time is None:
        raise ValueError("a control state has no time of its own: give `at`")
    return Envelope(
        specversion=SPEC_VERSION,
        id=id_,
        source=source,
        type=event_type(message),
        time=time,
        datacontenttype=JSON,
        subject=subject,
        data=msgspec.Raw(encode(message)),
    )


def unwrap(data: bytes) -> tuple[Envelope, StreamMessage]:
    """Read an envelope and the message in it, whichever it is.

    Raises:
        Malformed: either was not understood; unknown types and versions too.
    """
    envelope = unwrap_envelope(data)
    if not envelope.specversion.startswith("1."):
        raise Malformed(
            "unknown-version", f"CloudEvents {envelope.specversion!r}, this side speaks {SPEC_VERSION}"
        )
    decoder = _data_decoders.get(envelope.type)
    if decoder is None:
        spoken = {_stem(known): known for known in _TYPES}.get(_stem(envelope.type))
        if spoken:
            raise Malformed("unknown-version", f"{envelope.type!r}, this side speaks {spoken}")
        raise Malformed("unknown-type", f"{envelope.type!r}")
    if envelope.datacontenttype != JSON:
        raise Malformed("invalid", f"datacontenttype {envelope.datacontenttype!r}, want {JSON}")
    return envelope, _decode(bytes(envelope.data), decoder)


def unwrap_envelope(data: bytes) -> Envelope:
    """Read an envelope, whatever is in it; raises `Malformed`."""
    _check_bounds(data)
    return _decode(data, _envelope_decoder)


def unwrap_order(data: bytes) -> EvictionOrder:
    """Read an envelope that must hold an order; raises `Malformed`."""
    return unwrap_as(data, EvictionOrder)[1]


def unwrap_outcome(data: bytes) -> Outcome:
    """Read an envelope that must hold an outcome; raises `Malformed`."""
    return unwrap_as(data, Outcome)[1]


def unwrap_decision(data: bytes) -> DecisionRecord:
    """Read an envelope that must hold a decision record; raises `Malformed`."""
    return unwrap_as(data, DecisionRecord)[1]


def timely(state: ControlState, now: datetime | None) -> ControlState:
    """Return a control state whose time can be, by `now`; None where it is not judged. Raises `Malformed`."""
    if now is not None and is_ahead(state.revision, now):
        raise Malformed("future-revision", f"revision {state.revision} is more than {REVISION_AHEAD} ahead")
    return state


def is_ahead(revision: int, now: datetime) -> bool:
    """Report whether no planner can have given a revision by now; see `REVISION_AHEAD`."""
    return revision > int((now + REVISION_AHEAD).timestamp() * 1000)


def source(component: str, identity: str) -> str:
    """Name a writer in an envelope, such as `makeway/evictor/node-1_4711_ab12`."""
    return f"makeway/{component}/{identity}"


def event_type(message: StreamMessage) -> str:
    """The CloudEvents type that a message travels under."""
    return next(name for name, type_ in _TYPES.items() if type_ is type(message))


def envelope_id(message: StreamMessage) -> str:
    """The id of the message's envelope, and of its `Nats-Msg-Id` header."""
    return _headline(message)[0]


def _headline(message: StreamMessage) -> tuple[str, str, datetime | None]:
    """The envelope's id, subject and time, taken from the message."""
    match message:
        case EvictionOrder():
            id_ = message.order_id if message.void is None else f"void-{message.order_id}"
            return id_, message.preemptor_uid, message.created_at
        case Begun():
            return f"beg-{message.order_id}", "", message.at
        case Outcome():
            return f"out-{message.order_id}", message.preemptor_uid, message.finished_at
        case DecisionRecord():
            return message.decision_id, message.preemptor_uid, message.at
        case Comparison():
            return f"cmp-{message.decision_id}", message.preemptor.uid, message.at
        case Offer():
            return f"off-{message.decision_id}", message.preemptor_uid, message.at
        case ControlState():
            return f"ctl-{message.cluster_uid}-{message.revision}", "", None


def _stem(event_type: str) -> str:
    """An event type without its version: `dev.makeway.order` of `dev.makeway.order.v1`."""
    return event_type.rpartition(".v")[0]


def unwrap_as(data: bytes, wanted: type[_M]) -> tuple[Envelope, _M]:
    """Read an envelope that must hold a message of this type; raises `Malformed`."""
    envelope, message = unwrap(data)
    if not isinstance(message, wanted):
        raise Malformed("unknown-type", f"{envelope.type!r} where {wanted.__name__} is expected")
    return envelope, message


def shown(text: str) -> str:
    """Return what another wrote as it can stand in a line: short, and its control characters escaped."""
    return ascii(text[:_MAX_SHOWN])[1:-1]


def _check_version(message: Versioned) -> None:
    version = message.api_version
    if version and version != API_VERSION:
        raise Malformed("unknown-version", f"apiVersion {version!r}, this side speaks {API_VERSION}")


_T = TypeVar("_T")


def _decode(data: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Decode what is within bounds."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise Malformed("invalid", str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed("not-json", str(error)) from error


_NO_MARKS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_STEP: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_USUAL_DEPTH: Final = 16


def _check_bounds(data: bytes) -> None:
    """Look at size, encoding and depth before a decoder does; O(bytes), depth only where it may be high."""
    if len(data) > MAX_BYTES:
        raise Malformed("too-large", f"{len(data)} bytes, at most {MAX_BYTES}")
    try:
        # A decoder looks at the texts that it decodes, and so not into raw fields such as a pod.
        data.decode()
    except UnicodeDecodeError as error:
        raise Malformed("not-json", str(error)) from error
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _deep(data):
        raise Malformed("too-deep", f"nested more than {MAX_DEPTH} deep")


def _deep(data: bytes) -> bool:
    """Report whether brackets are nested more than MAX_DEPTH deep, those in strings left aside. O(bytes)."""
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    marks = unescaped.translate(None, _NO_MARKS).replace(b'""', b"")  # few strings have brackets in them
    brackets = b"".join(marks.split(b'"')[::2])
    outer = brackets
    for _ in range(_USUAL_DEPTH):  # every turn takes off the innermost pairs
        outer = outer.replace(b"[]", b"").replace(b"{}", b"")
        if not outer:
            return False
    return any(depth > MAX_DEPTH for depth in itertools.accumulate(_STEP[b] for b in brackets))
