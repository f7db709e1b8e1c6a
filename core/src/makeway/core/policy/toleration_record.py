"""The record of tolerations: what PriorityClasses that tolerate preemption say, kept beyond their deletion.

A class that is gone says nothing of its running pods any more. ConfigMap `makeway-tolerations` keeps the
classes that tolerate preemption as they were last seen, each under its name as a PriorityClass in JSON. The
leading planner writes it; planner, evictor and scheduler read it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from makeway.core.k8s.objects import PriorityClass
from makeway.core.k8s.times import api_time

CONFIGMAP: Final = "makeway-tolerations"

MOST: Final = 1_000
"""How many classes the record holds: with the longest names and values a ConfigMap has room for them."""

ANNOTATION_PREFIX: Final = "preemption-toleration.scheduling.x-k8s.io/"

_LONGEST_VALUE: Final = 80
"""Characters of an annotation that are kept: what is longer is no number, and neither is its beginning."""

_decode = msgspec.json.Decoder(PriorityClass).decode


@dataclass(frozen=True, slots=True)
class TolerationRecord:
    """The classes on record by name. `known`: it has been read; otherwise any class may be on it."""

    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    known: bool = True


NO_RECORD: Final = TolerationRecord()
"""Nothing is on record: a class that is gone tolerates nothing."""

UNREAD_RECORD: Final = TolerationRecord(known=False)
"""The record has never been read: a class that is gone exempts its pods."""


class RecordError(ValueError):
    """A record that cannot be used; the message names the class whose entry cannot be read."""


def parse_record(data: Mapping[str, str]) -> TolerationRecord:
    """Read the data of the ConfigMap. Raises RecordError where an entry is no PriorityClass."""
    classes = {}
    for name, text in data.items():
        try:
            found = _decode(text)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise RecordError(f"the entry {name} is no PriorityClass in JSON: {error}") from error
        metadata = msgspec.structs.replace(found.metadata, name=name)
        classes[name] = msgspec.structs.replace(found, metadata=metadata)
    return TolerationRecord(classes)


def entry_of(priority_class: PriorityClass) -> str:
    """Return what is kept of a class: its value, the annotations that say what it tolerates, and its age."""
    metadata = priority_class.metadata
    kept: dict[str, object] = {
        "annotations": {
            name: text[:_LONGEST_VALUE]
            for name, text in sorted((metadata.annotations or {}).items())
            if name.startswith(ANNOTATION_PREFIX)
        }
    }
    if metadata.creation_timestamp is not None:
        kept["creationTimestamp"] = api_time(metadata.creation_timestamp)
    return msgspec.json.encode({"metadata": kept, "value": priority_class.value}).decode()
