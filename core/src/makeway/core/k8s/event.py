"""The body of a Kubernetes Event (events.k8s.io/v1). Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from makeway.core.k8s.times import api_time

NOTE_LIMIT: Final = 1024
"""Bytes of a note that the API server takes."""

_NAME_LIMIT: Final = 200
"""Characters of an object's name in its Events' names, so that the random end always fits in 253."""

_INSTANCE_LIMIT: Final = 128
_CUT: Final = " …"

EventType = Literal["Normal", "Warning"]


class Regarding(msgspec.Struct, frozen=True, rename="camel"):
    """The object that an Event is about; without a namespace where it has none."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


def event(
    regarding: Regarding,
    *,
    namespace: str,
    event_type: EventType,
    reason: str,
    action: str,
    note: str,
    controller: str,
    instance: str,
    now: datetime,
    unique: str,
) -> dict[str, Any]:
    """Return an Event as JSON has it; a long `note` is cut.

    `namespace`: the Event's own. `reason`, `action`: constants in CamelCase. `controller`: as
    makeway.dev/planner. `unique`: the end of the Event's name.
    """
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{regarding.name[:_NAME_LIMIT].rstrip('-.')}.{unique}",
            "namespace": namespace,
        },
        "eventTime": api_time(now, "microseconds"),
        "reportingController": controller,
        "reportingInstance": instance[:_INSTANCE_LIMIT],
        "action": action,
        "reason": reason,
        "regarding": msgspec.to_builtins(regarding),
        "note": cut(note),
        "type": event_type,
    }


def cut(note: str) -> str:
    """Shorten a note to what the API server takes, at a line's end where that loses little."""
    data = note.encode()
    if len(data) <= NOTE_LIMIT:
        return note
    kept = data[: NOTE_LIMIT - len(_CUT.encode())].decode(errors="ignore")
    lines, _, rest = kept.rpartition("\n")
    return (lines if lines and len(rest) < NOTE_LIMIT // 4 else kept) + _CUT
