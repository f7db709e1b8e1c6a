"""The golden files: one message of every kind and shape, and what is made of them.

`minimal` has the required fields alone, `full` every field, with text that encoders differ about. They are
written by hand, in any form of JSON; `make reference` writes them as `codec.encode` does. `MALFORMED` is what
both sides must refuse, each for the first of its reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, cast

import msgspec

from makeway.bus import codec
from makeway.bus.commit import CommitReply, CommitRequest, Offer
from makeway.bus.comparison import Comparison
from makeway.bus.component_status import ComponentStatus
from makeway.bus.control import ControlState
from makeway.bus.decisions import DecisionRecord
from makeway.bus.envelope import Envelope
from makeway.bus.messages import MOST_MEMBERS, Begun, EvictionOrder, Message, Outcome
from makeway.bus.plan import MOST_TOPOLOGY_KEYS, PlanReply, PlanRequest
from makeway.bus.repairs import RepairProposal
from makeway.dev.paths import CHECKOUT

GOLDEN: Final = "bus/testdata"

KINDS: Final[Mapping[str, type[Message]]] = {
    "plan-request": PlanRequest,
    "plan-reply": PlanReply,
    "commit": CommitRequest,
    "commit-reply": CommitReply,
    "offer": Offer,
    "order": EvictionOrder,
    "begun": Begun,
    "outcome": Outcome,
    "decision": DecisionRecord,
    "comparison": Comparison,
    "control": ControlState,
    "component-status": ComponentStatus,
    "repair-proposal": RepairProposal,
}
"""Every kind of message, and the struct that defines it."""

MESSAGES: Final[Mapping[str, Message]] = {
    path.stem: msgspec.json.decode(path.read_bytes(), type=KINDS[path.stem.split(".")[0]])
    for path in sorted((CHECKOUT / GOLDEN).glob("*.json"))
    if "-envelope." not in path.stem
}
"""By kind and variant."""

_ORDER: Final = "ord-01kg9w8000zzzzzzzzzzzzzzzz"
_REQUEST: Final = "req-01kg9w8000xxxxxxxxxxxxxxxx"
_URGENT: Final = "0c4a3c1e-6a0f-4a55-8d0b-53a6d9b4c001"
_AT: Final = datetime(2026, 1, 31, 12, 0, 0, 250_040, tzinfo=UTC)
_PLANNER: Final = "planner-0_1_3f2a9c10"
_EVICTOR: Final = "evictor-0_1_77b0aa42"
_SCHEDULER: Final = "control-plane-1_1_a0b1c2d3"


def _envelope(name: str, component: str, identity: str) -> Envelope:
    message = cast("codec.StreamMessage", MESSAGES[name])
    return codec.envelope_of(message, codec.source(component, identity), at=_AT)


_ORDER_EVENT: Final = _envelope("order.full", "scheduler", _SCHEDULER)
_ORDER_GROUP_EVENT: Final = _envelope("order.group", "scheduler", _SCHEDULER)

ENVELOPES: Final[Mapping[str, Envelope]] = {
    "order-envelope.full": _ORDER_EVENT,
    "order-envelope.group": _ORDER_GROUP_EVENT,
    "order-envelope.minimal": _envelope("order.minimal", "planner", _PLANNER),
    "order-envelope.signed": msgspec.structs.replace(
        _ORDER_EVENT, keyid="UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4", signature="c2lnbmVk"
    ),
    "begun-envelope.full": _envelope("begun.full", "evictor", _EVICTOR),
    "outcome-envelope.full": _envelope("outcome.full", "evictor", _EVICTOR),
    "outcome-envelope.group": _envelope("outcome.group", "evictor", _EVICTOR),
    "decision-envelope.full": _envelope("decision.full", "planner", _PLANNER),
    "comparison-envelope.full": _envelope("comparison.full", "planner", _PLANNER),
    "control-envelope.full": _envelope("control.full", "planner", _PLANNER),
}
"""By kind and variant."""

_POD: Final = bytes(cast("PlanRequest", MESSAGES["plan-request.full"]).classes[0].pod)
_REQUEST_BYTES: Final = codec.encode(MESSAGES["plan-request.full"])
_REPLY_BYTES: Final = codec.encode(MESSAGES["plan-reply.candidates"])
_GROUP_REQUEST_BYTES: Final = codec.encode(MESSAGES["plan-request.group"])
_GROUP_REPLY_BYTES: Final = codec.encode(MESSAGES["plan-reply.group"])
_EVENT_BYTES: Final = codec.encode(_ORDER_EVENT)
_GROUP_EVENT_BYTES: Final = codec.encode(_ORDER_GROUP_EVENT)
_CONTROL_EVENT: Final = codec.encode(ENVELOPES["control-envelope.full"])
_TOO_DEEP: Final = b"[" * (codec.MAX_DEPTH + 1) + b"]" * (codec.MAX_DEPTH + 1)

MALFORMED: Final[Mapping[str, bytes]] = {
    "plan-request.not-json.empty": b"",
    "plan-request.not-json.cut": _REQUEST_BYTES[:-1],
    "plan-request.not-json.two-values": _REQUEST_BYTES + b"{}",
    "plan-request.invalid.a-list": b"[]",
    "plan-request.invalid.null": b"null",
    "plan-request.invalid.no-version": _REQUEST_BYTES.replace(b'"apiVersion"', b'"apiVersions"'),
    "plan-request.invalid.no-pod": _REQUEST_BYTES.replace(b'"pod":', b'"pods":'),
    "plan-request.invalid.number-for-text": _REQUEST_BYTES.replace(f'"{_REQUEST}"'.encode(), b"7"),
    "plan-request.unknown-version.v2": _REQUEST_BYTES.replace(b"makeway.dev/v1", b"makeway.dev/v2"),
    "plan-request.too-deep.pod": _REQUEST_BYTES.replace(_POD, _TOO_DEEP),
    "plan-reply.unknown-version.v2": b'{"apiVersion":"makeway.dev/v2","answer":42}',
    "plan-reply.invalid.empty-node": _REPLY_BYTES.replace(b'"node-1"', b'""'),
    "plan-reply.invalid.text-for-list": b'{"apiVersion":"makeway.dev/v1","requestId":"r","planner":"p",'
    b'"status":"candidates","candidates":"node-1"}',
    "plan-reply.invalid.empty-group-node": _GROUP_REPLY_BYTES.replace(b'"node-1"', b'""'),
    "plan-request.invalid.no-classes": _GROUP_REQUEST_BYTES.replace(b'"classes":', b'"class":'),
    "plan-request.invalid.negative-count": _GROUP_REQUEST_BYTES.replace(b'"count":6', b'"count":-6'),
    "plan-request.invalid.too-many-members": _GROUP_REQUEST_BYTES.replace(
        b'"mustPlace":5', b'"mustPlace":' + str(MOST_MEMBERS + 1).encode()
    ),
    "plan-request.invalid.too-many-topology-keys": _GROUP_REQUEST_BYTES.replace(
        b'"topology":[', b'"topology":[' + b'"x",' * MOST_TOPOLOGY_KEYS
    ),
    "order-envelope.not-json.cut": _EVENT_BYTES[:40],
    "order-envelope.invalid.no-data": _EVENT_BYTES.replace(b'"data":', b'"date":'),
    "order-envelope.invalid.no-id": _EVENT_BYTES.replace(f'"id":"{_ORDER}",'.encode(), b""),
    "order-envelope.invalid.empty-source": _EVENT_BYTES.replace(
        f'"source":"makeway/scheduler/{_SCHEDULER}"'.encode(), b'"source":""'
    ),
    "order-envelope.invalid.no-time-zone": _EVENT_BYTES.replace(
        b'"time":"2026-01-31T12:00:00.250040Z"', b'"time":"2026-01-31T12:00:00.250040"'
    ),
    "order-envelope.invalid.data-without-time-zone": _EVENT_BYTES.replace(
        b'"notAfter":"2026-01-31T12:01:00.250040Z"', b'"notAfter":"2026-01-31 12:01:00"'
    ),
    "order-envelope.invalid.another-content": _EVENT_BYTES.replace(b"application/json", b"text/plain"),
    "order-envelope.invalid.data-without-order-id": _EVENT_BYTES.replace(b'"orderId"', b'"orderID_"'),
    "order-envelope.invalid.group-without-uid": _GROUP_EVENT_BYTES.replace(
        f'"uid":"{_URGENT}"'.encode(), b'"uid":""'
    ),
    "order-envelope.invalid.negative-must-place": _GROUP_EVENT_BYTES.replace(
        b'"mustPlace":2', b'"mustPlace":-2'
    ),
    "order-envelope.invalid.member-without-node": _GROUP_EVENT_BYTES.replace(b',"node":"node-2"}]', b"}]"),
    "order-envelope.unknown-version.v2": _EVENT_BYTES.replace(b"order.v1", b"order.v2"),
    "order-envelope.unknown-version.cloudevents-2": _EVENT_BYTES.replace(
        b'"specversion":"1.0"', b'"specversion":"2.0"'
    ),
    "order-envelope.unknown-type.someone-elses": _EVENT_BYTES.replace(
        b"dev.makeway.order.v1", b"com.example.a"
    ),
    "order-envelope.unknown-type.an-outcome": codec.encode(ENVELOPES["outcome-envelope.full"]),
    "control-envelope.invalid.no-mode": _CONTROL_EVENT.replace(b'"mode":', b'"modes":'),
    "control-envelope.invalid.another-mode": _CONTROL_EVENT.replace(b'"observe"', b'"watch"'),
    "control-envelope.invalid.negative-limit": _CONTROL_EVENT.replace(
        b'"victimsPerOrder":100', b'"victimsPerOrder":-1'
    ),
    "control-envelope.invalid.negative-quota": _CONTROL_EVENT.replace(b'"cpu":64000', b'"cpu":-64000'),
    "control-envelope.invalid.quota-beyond-64-bits": _CONTROL_EVENT.replace(
        b'"memory":9223372036854775807', b'"memory":9223372036854775808'
    ),
    "control-envelope.invalid.quota-as-a-quantity": _CONTROL_EVENT.replace(b'"cpu":64000', b'"cpu":"64"'),
    "control-envelope.invalid.queue-without-path": _CONTROL_EVENT.replace(b'"path":"root"', b'"path":""'),
}
"""By kind, the reason for which it is refused, and what is wrong."""
