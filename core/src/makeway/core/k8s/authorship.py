"""Who wrote a field of a pod's status, by metadata.managedFields. Pure.

Source: Kubernetes' server-side apply, which notes the writer of every field, of patches and updates too. Only
the two fields are read that are asked for, and only where there are few entries: a pod with more of them is
one of which the writer is not known.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Final

import msgspec

from makeway.core.k8s.disruption import DISRUPTION_TARGET, is_disrupted
from makeway.core.k8s.objects import Metadata, Pod, View

EVICTOR: Final = "makeway-evictor"
"""Field manager of what makeway's evictor writes."""

NOMINATOR: Final = "makeway-nominator"
"""Field manager of what makeway's nominator writes."""

MOST_ENTRIES: Final = 64
"""Entries of managedFields that are read, and conditions of each. The API server keeps ten of updates."""

_MARK: Final = f'k:{{"type":"{DISRUPTION_TARGET}"}}'


class _Owned(View, frozen=True, gc=False):
    """A field that has an owner; what is below it is not looked at."""


class _Status(View, frozen=True, gc=False):
    conditions: Annotated[dict[str, _Owned], msgspec.Meta(max_length=MOST_ENTRIES)] = msgspec.field(
        default_factory=dict, name="f:conditions"
    )
    nominated_node_name: _Owned | None = msgspec.field(default=None, name="f:nominatedNodeName")


class _Fields(View, frozen=True, gc=False):
    status: _Status = msgspec.field(default=_Status(), name="f:status")


class ManagedFields(View, frozen=True, gc=False):
    """One entry of metadata.managedFields."""

    manager: str = ""
    subresource: str = ""
    fields: _Fields = msgspec.field(default=_Fields(), name="fieldsV1")


class ManagedMetadata(Metadata, frozen=True, gc=False):
    """metadata, with managedFields; one with more than `MOST_ENTRIES` cannot be decoded."""

    managed_fields: Annotated[tuple[ManagedFields, ...], msgspec.Meta(max_length=MOST_ENTRIES)] = ()


class ManagedPod(Pod, frozen=True, gc=False):
    """A pod, with who wrote what of its status."""

    metadata: ManagedMetadata


class _Event(View, frozen=True, gc=False):
    object: ManagedPod


_decode_event = msgspec.json.Decoder(_Event).decode


def with_writers(pod: Pod, event: bytes) -> Pod:
    """Return a pod of a watch event as a `ManagedPod` where it carries a DisruptionTarget, and as it is else.

    `event`: the event's text. A pod with more entries than are read stays as it is.
    """
    if is_disrupted(pod):
        with suppress(msgspec.DecodeError):
            return _decode_event(event).object
    return pod


def writers_of_mark(pod: Pod) -> frozenset[str]:
    """Return the field managers that wrote a pod's DisruptionTarget; empty where they were not read."""
    return frozenset(entry.manager for entry in _of_status(pod) if _MARK in entry.fields.status.conditions)


def writers_of_nomination(pod: Pod) -> frozenset[str]:
    """Return the field managers that wrote a pod's `nominatedNodeName`; empty where they were not read."""
    return frozenset(entry.manager for entry in _of_status(pod) if entry.fields.status.nominated_node_name)


def _of_status(pod: Pod) -> list[ManagedFields]:
    entries = pod.metadata.managed_fields if isinstance(pod, ManagedPod) else ()
    return [entry for entry in entries if entry.subresource == "status"]
