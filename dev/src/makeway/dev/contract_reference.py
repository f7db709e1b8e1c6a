"""The generated side of the contract: golden files, JSON Schemas, the AsyncAPI document, the structs in Go.

`generated` returns every file's content by its path in the repository; writing and checking them is
the caller's. The same messages give the same bytes.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

import msgspec
import yaml

from makeway.bus import codec
from makeway.bus.comparison import TYPE_COMPARISON
from makeway.bus.control import TYPE_CONTROL
from makeway.bus.decisions import TYPE_DECISION
from makeway.bus.envelope import Envelope
from makeway.bus.messages import (
    API_VERSION,
    TYPE_BEGUN,
    TYPE_ORDER,
    TYPE_OUTCOME,
    Message,
)
from makeway.bus.streams import configs as streams
from makeway.bus.streams import quarantine
from makeway.bus.subjects import Subjects
from makeway.dev import go_messages
from makeway.dev.samples import ENVELOPES, GOLDEN, MALFORMED, MESSAGES
from makeway.dev.samples import KINDS as MESSAGE_KINDS

SCHEMAS: Final = "docs/reference/schemas"
GO: Final = "plugin/wire"
ASYNCAPI: Final = "docs/reference/asyncapi.yaml"

_SCHEMA_BASE: Final = "https://makeway.dev/schemas/v1"

KINDS: Final[dict[str, type[Message | Envelope]]] = {**MESSAGE_KINDS, "envelope": Envelope}
"""Every kind of message, and what those in streams are wrapped in."""

NOT_IN_GO: Final = ("begun", "comparison", "decision", "repair-proposal", "offer")
"""Kinds that the scheduler neither reads nor writes."""

GO_CONSTANTS: Final = {
    "APIVersion": API_VERSION,
    "TypeOrder": TYPE_ORDER,
    "TypeOutcome": TYPE_OUTCOME,
    "TypeControl": TYPE_CONTROL,
}
"""What Go takes of the contract besides the schemas: the version of bare JSON and the types of events."""


def generated() -> dict[str, bytes]:
    """Every generated file, by its path from the root of the repository."""
    files: dict[str, bytes] = {}
    messages: dict[str, Message | Envelope] = {**MESSAGES, **ENVELOPES}
    for name, message in messages.items():
        files[f"{GOLDEN}/{name}.json"] = codec.encode(message) + b"\n"
    for name, data in MALFORMED.items():
        files[f"{GOLDEN}/malformed/{name}.json"] = data + b"\n"
    for kind, struct in KINDS.items():
        files[f"{SCHEMAS}/{kind}.json"] = _pretty(schema(kind, struct))
    definitions = go_messages.structs([schema(kind, KINDS[kind]) for kind in KINDS if kind not in NOT_IN_GO])
    files[f"{GO}/messages_gen.go"] = go_messages.messages_file(definitions, GO_CONSTANTS).encode()
    files[ASYNCAPI] = (
        _ASYNCAPI_HEAD + yaml.safe_dump(asyncapi(), sort_keys=False, allow_unicode=True, width=110).encode()
    )
    return files


def schema(kind: str, struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of one kind, complete in itself."""
    (root,), definitions = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    definitions = {name: _readable(definition) for name, definition in definitions.items()}
    own = definitions.pop(struct.__name__, root)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{_SCHEMA_BASE}/{kind}.json",
        **own,
        **({"$defs": dict(sorted(definitions.items()))} if definitions else {}),
    }


_SNAKE: Final = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")


def _readable(definition: dict[str, Any]) -> dict[str, Any]:
    """A struct's docstring as the description: without its indentation, fields named as on the wire."""
    if description := definition.get("description"):
        text = _SNAKE.sub(lambda found: f"`{_camel(found[1])}`", inspect.cleandoc(description))
        return {**definition, "description": text}
    return definition


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


_ASYNCAPI_HEAD: Final = b"# Generated from makeway.bus; run `make reference` after a change.\n"


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI 3.0 document of everything that goes over the bus, under the default prefix."""
    subjects = Subjects()
    limits = {config["name"]: config for config in streams.stream_configs(subjects)}

    def kept(stream: str) -> str:
        config = limits[stream]
        days, mebibytes = config["max_age"] // 86_400_000_000_000, config["max_bytes"] >> 20
        each = config["max_msgs_per_subject"]
        if not days:
            return f"Kept in stream {stream}: the last message."
        time = f"{days} days" if days > 1 else "a day"
        return f"Kept in stream {stream} for {time}, at most {mebibytes} MiB and {each} of each subject."

    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "makeway",
            "version": "1.0.0",
            "description": "How makeway's scheduler plugin, planner and evictors speak to one another over "
            "NATS. Plan request and reply are bare JSON; everything in a stream is a CloudEvent in "
            "structured JSON. Unknown fields are ignored, an unknown major version is refused.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {
            "plan": _channel(
                subjects.plan, "Questions to the leading planner; the first answer counts.", "planRequest"
            ),
            "planReply": _reply_channel("planReply"),
            "verifiedPlan": _channel(
                subjects.verify,
                "The same questions to a shadow scheduler, which answers what its filters have verified.",
                "planRequest",
            ),
            "groupPlan": _channel(
                subjects.plan_group,
                "Questions about pod groups to the leading planner; the first answer counts.",
                "planRequest",
            ),
            "commits": _channel(
                subjects.commit,
                "Bridges' questions to the leading planner to store an order; every planner has one answer.",
                "commit",
            ),
            "commitReply": _reply_channel("commitReply"),
            "podOrders": _channel(
                f"{subjects.prefix}.v1.orders.pod.{{preemptorUid}}",
                "Eviction orders of a pod. One is live at a time: published with "
                "`Nats-Expected-Last-Subject-Sequence` of the last, whose outcome the writer has read. "
                + kept(subjects.orders_stream),
                "order",
                "UID of the pod that room is made for.",
            ),
            "groupOrders": _channel(
                f"{subjects.prefix}.v1.orders.group.{{groupUid}}",
                "Eviction orders of a PodGroup, one live at a time as those of a pod. "
                + kept(subjects.orders_stream),
                "order",
                "UID of the PodGroup that room is made for.",
            ),
            "quotaOrders": _channel(
                f"{subjects.prefix}.v1.orders.quota.{{queueHash}}",
                "Eviction orders of a queue whose quota was lowered. " + kept(subjects.orders_stream),
                "order",
                "Hash of the queue's path.",
            ),
            "begun": _channel(
                f"{subjects.prefix}.v1.begun.{{orderId}}",
                "That an order begins to delete pods of units, which go whole. "
                + kept(subjects.begun_stream),
                "begun",
                "Id of the order.",
            ),
            "outcomes": _channel(
                f"{subjects.prefix}.v1.outcomes.{{orderId}}",
                "The one outcome of an order: published with `Nats-Expected-Last-Subject-Sequence: 0`. "
                + kept(subjects.outcomes_stream),
                "outcome",
                "Id of the order.",
            ),
            "decisions": _channel(
                f"{subjects.prefix}.v1.decisions.pod.{{preemptorUid}}",
                "Decision records. " + kept(subjects.decisions_stream),
                "decision",
                "UID of the pod that was asked about.",
            ),
            "groupDecisions": _channel(
                f"{subjects.prefix}.v1.decisions.group.{{groupUid}}",
                "Decision records of kind group. " + kept(subjects.decisions_stream),
                "decision",
                "UID of the PodGroup that was asked about.",
            ),
            "comparisons": _channel(
                f"{subjects.prefix}.v1.decisions.comparison.{{preemptorUid}}",
                "What DefaultPreemption did beside what makeway would have done, in mode observe. "
                + kept(subjects.decisions_stream),
                "comparison",
                "UID of the pod that both were asked about.",
            ),
            "recordings": {
                "address": f"{subjects.prefix}.v1.recordings.{{recording}}",
                "description": "What the leading planner saw while it decided, in parts: the snapshot, its "
                "changes and the plan requests, as compressed MessagePack of one version of makeway; see "
                "`makeway replay`. " + kept(subjects.recordings_stream),
                "parameters": {"recording": {"description": "Name of the recording, as decisions have it."}},
                "messages": {"recording": {"contentType": "application/octet-stream"}},
            },
            "quarantine": _channel(
                f"{subjects.prefix}.v1.quarantine.{{component}}",
                "Messages that a component could not read or carry out, with the original's bytes as "
                "payload; see `makeway history --unreadable`. " + kept(subjects.quarantine_stream),
                "parked",
                "Who put them aside: evictor or planner.",
            ),
            "control": _channel(
                subjects.control,
                "Modes, limits and queues in force, as the leading planner says. Published with "
                "`Nats-Expected-Last-Subject-Sequence` of the last. " + kept(subjects.control_stream),
                "control",
            ),
            "status": _channel(
                subjects.status,
                "Asks every component how it is; the question is empty, and all answer. Not stored.",
                "statusQuestion",
            ),
            "statusReply": _reply_channel("componentStatus", ": an answer from each component"),
            "repairs": _channel(
                subjects.repairs,
                "Pods that may carry a mark left behind; queue group `evictor`. Neither stored nor answered.",
                "repairProposal",
            ),
        },
        "operations": {
            "askPlanner": _ask("plan", "planReply", "The scheduler plugin asks which pods would make room."),
            "askShadow": _ask(
                "verifiedPlan",
                "planReply",
                "The nominator asks which pods would make room, with a scheduler's filters.",
            ),
            "askPlannerAboutGroup": _ask(
                "groupPlan",
                "planReply",
                "The scheduler plugin asks which pods would make room for a pod group.",
            ),
            "askForOrder": _ask(
                "commits",
                "commitReply",
                "A bridge asks for the order of a pod or group that it has nominated.",
            ),
            "commitPodOrder": _send("podOrders", "The planner stores an order for a pod."),
            "commitGroupOrder": _send("groupOrders", "The planner stores an order for a PodGroup."),
            "commitQuotaOrder": _send("quotaOrders", "The planner stores an order of a quota."),
            "carryOutOrders": _receive(
                "podOrders", "An evictor takes an order (durable consumer `evictor`)."
            ),
            "beginUnits": _send("begun", "An evictor begins to delete pods of units."),
            "takeOverUnits": _receive("begun", "An evictor that takes the order over learns of it."),
            "reportOutcome": _send("outcomes", "An evictor ends an order."),
            "learnOutcome": _receive("outcomes", "The scheduler plugin and the planner learn of the end."),
            "recordDecision": _send("decisions", "The planner records a plan or a refusal."),
            "recordComparison": _send("comparisons", "The planner records how the two choices compare."),
            "askStatus": _ask(
                "status", "statusReply", "`makeway mode` and `makeway check` ask every component."
            ),
            "putAside": _send("quarantine", "An evictor or a planner puts a message aside."),
            "setControl": _send("control", "The leading planner says what is in force."),
            "followControl": _receive("control", "The scheduler plugin and the evictors follow it."),
            "proposeRepair": _send("repairs", "A planner proposes to look at a mark left behind."),
            "repair": _receive("repairs", "An evictor looks again, and clears the mark."),
        },
        "components": {
            "messages": {
                "planRequest": _bare("plan-request", "Plan request"),
                "planReply": _bare("plan-reply", "Plan reply"),
                "commit": _bare("commit", "Commit"),
                "commitReply": _bare("commit-reply", "Commit reply"),
                "repairProposal": _bare("repair-proposal", "Repair proposal"),
                "order": _event("order", "Eviction order", TYPE_ORDER),
                "begun": _event("begun", "Begun", TYPE_BEGUN),
                "outcome": _event("outcome", "Outcome", TYPE_OUTCOME),
                "decision": _event("decision", "Decision record", TYPE_DECISION),
                "comparison": _event("comparison", "Comparison", TYPE_COMPARISON),
                "componentStatus": _bare("component-status", "Status of a component"),
                "statusQuestion": {
                    "name": "status-question",
                    "title": "Question for the status",
                    "payload": {"type": "string", "maxLength": 0},
                },
                "control": _event("control", "Control state", TYPE_CONTROL),
                "parked": _PARKED,
            }
        },
    }


def _channel(address: str | None, description: str, message: str, parameter: str = "") -> dict[str, Any]:
    """`parameter`: what the one in the address is, where it has one."""
    channel: dict[str, Any] = {"address": address, "description": description}
    for name in re.findall(r"\{(\w+)\}", address or ""):
        channel["parameters"] = {name: {"description": parameter}}
    return {**channel, "messages": {message: _ref("messages", message)}}


def _reply_channel(message: str, more: str = "") -> dict[str, Any]:
    return _channel(None, f"The reply subject of the question{more}.", message)


def _ref(section: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{section}/{name}"}


def _channel_ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/channels/{name}"}


def _send(channel: str, summary: str) -> dict[str, Any]:
    return {"action": "send", "channel": _channel_ref(channel), "summary": summary}


def _ask(channel: str, reply: str, summary: str) -> dict[str, Any]:
    return {**_send(channel, summary), "reply": {"channel": _channel_ref(reply)}}


def _receive(channel: str, summary: str) -> dict[str, Any]:
    return {"action": "receive", "channel": _channel_ref(channel), "summary": summary}


def _bare(kind: str, title: str) -> dict[str, Any]:
    return {"name": kind, "title": title, "payload": {"$ref": f"schemas/{kind}.json"}}


def _event(kind: str, title: str, event_type: str) -> dict[str, Any]:
    return {
        "name": event_type,
        "title": title,
        "contentType": "application/cloudevents+json",
        "headers": {
            "type": "object",
            "properties": {"Nats-Msg-Id": {"type": "string", "description": "The event's id."}},
        },
        "payload": {
            "allOf": [
                {"$ref": "schemas/envelope.json"},
                {
                    "type": "object",
                    "properties": {
                        "type": {"const": event_type},
                        "data": {"$ref": f"schemas/{kind}.json"},
                    },
                },
            ]
        },
    }


_PARKED: Final[dict[str, Any]] = {
    "name": "parked",
    "title": "Message put aside",
    "contentType": "application/octet-stream",
    "headers": {
        "type": "object",
        "properties": {
            name: {"type": "string", "description": text}
            for name, text in {
                quarantine.SUBJECT: "The original's subject.",
                quarantine.STREAM: "The original's stream.",
                quarantine.SEQUENCE: "The original's sequence there.",
                quarantine.REASON: "A constant in kebab-case.",
                quarantine.DETAIL: "A sentence.",
                quarantine.DELIVERIES: "How often it was given out.",
                quarantine.PUBLISHED: "When the original was stored.",
                quarantine.CUT_FROM: "The length of a payload that was cut.",
            }.items()
        },
    },
    "payload": {"type": "string", "description": "The original's bytes, whatever they are."},
}


def _pretty(document: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
