"""The body of a Kubernetes Event (events.k8s.io/v1). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from makeway.core.times import api_time

NOTE_LIMIT: Final = 1024
"""Bytes of a note that the API server takes."""

_NAME_LIMIT: Final = 200
"""Characters of an object's name in its Events' names, so that the random end always fits in 253."""

_INSTANCE_LIMIT: Final = 128
_CUT: Final = " …"


def event(
    regarding: Mapping[str, str],
    *,
    namespace: str,
    event_type: str,
    reason: str,
    action: str,
    note: str,
    controller: str,
    instance: str,
    now: datetime,
    unique: str,
) -> bytes:
    """Write an Event as JSON; a long `note` is cut.

    `regarding`: an ObjectReference with at least a name. `namespace`: the Event's own. `reason`, `action`:
    constants in CamelCase. `controller`: as makeway.dev/planner. `unique`: the end of the Event's name.
    """
    return msgspec.json.encode(
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{regarding['name'][:_NAME_LIMIT].rstrip('-.')}.{unique}",
                "namespace": namespace,
            },
            "eventTime": api_time(now, "microseconds"),
            "reportingController": controller,
            "reportingInstance": instance[:_INSTANCE_LIMIT],
            "action": action,
            "reason": reason,
            "regarding": dict(regarding),
            "note": cut(note),
            "type": event_type,
        }
    )


def cut(note: str) -> str:
    """Shorten a note to what the API server takes, at a line's end where that loses little."""
    data = note.encode()
    if len(data) <= NOTE_LIMIT:
        return note
    kept = data[: NOTE_LIMIT - len(_CUT.encode())].decode(errors="ignore")
    lines, _, rest = kept.rpartition("\n")
    return (lines if lines and len(rest) < NOTE_LIMIT // 4 else kept) + _CUT
