"""A run's history in a file: what the checker reads, so that it can be judged again and falsified."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from makeway.bus.decisions import DecisionRecord
from makeway.dev.checker.history import RecordedHistory
from makeway.dev.checker.pods import MIRROR, NEVER_EVICT

_READ = {
    "metadata": (
        "namespace",
        "name",
        "uid",
        "resourceVersion",
        "annotations",
        "ownerReferences",
        "finalizers",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ),
    "spec": (
        "priority",
        "nodeName",
        "terminationGracePeriodSeconds",
        "preemptionPolicy",
        "affinity",
        "holderIdentity",
        "leaseTransitions",
        "acquireTime",
    ),
    "status": ("nominatedNodeName", "conditions", "phase"),
}
"""What the checker reads of an answer."""


@dataclass(frozen=True)
class Kept:
    """A history and the moment it reaches to."""

    history: RecordedHistory
    now: datetime


def save(path: Path, history: RecordedHistory, now: datetime) -> None:
    """Write a history as compressed JSON, cut down to what the checker reads."""
    requests = tuple(replace(event, uri="", response=_lean(event.response)) for event in history.requests)
    decisions = tuple(replace(stored, message=_short(stored.message)) for stored in history.streams.decisions)
    streams = replace(history.streams, decisions=decisions)
    kept = Kept(replace(history, requests=requests, streams=streams), now)
    path.write_bytes(gzip.compress(msgspec.json.encode(kept), mtime=0))


def load(path: Path) -> Kept:
    """Read what `save` wrote."""
    return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=Kept)


def _lean(shown: dict[str, Any] | None) -> dict[str, Any] | None:
    """A pod of an answer; of what is no pod, its name."""
    if shown is None:
        return None
    if "items" in shown:
        return {"items": [_lean(item) for item in shown["items"]]}
    found: dict[str, Any] = {}
    for part, names in _READ.items():
        values = shown.get(part)
        if isinstance(values, dict):
            found[part] = {name: values[name] for name in names if name in values}
    annotations = (found.get("metadata") or {}).get("annotations")
    if annotations:
        short = {name: value for name, value in annotations.items() if name in (MIRROR, NEVER_EVICT)}
        found["metadata"] = {**found["metadata"], "annotations": short}
    return found


def _short(decision: DecisionRecord) -> DecisionRecord:
    """A decision without its reasons."""
    defaults = {
        field.name: field.default
        for field in msgspec.structs.fields(decision)
        if field.default is not msgspec.NODEFAULT and field.name != "preemptor"
    }
    return msgspec.structs.replace(decision, **defaults)
