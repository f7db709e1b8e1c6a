"""The bodies of the evictor's writes, as JSON. Pure.

Every patch of a pod carries UID and resourceVersion of the pod as it was read: the API server answers
409 where the pod has changed, and 422 ("field is immutable") where the pod under that name is another
one. The UID alone is not enough. A patch that meets a pod in the last moment of its deletion (grace
period 0, no finalizers) makes kube-apiserver delete by name whatever has that name by then, though
the patch was for the pod before (registry/generic/registry/store.go, Update: a patch brings no
preconditions to `deleteWithoutFinalizers`). So no pod that was read in that state is patched at all.
Conditions merge by `type` under a strategic merge patch (`patchMergeKey` of v1.PodStatus.conditions).
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from makeway.bus.messages import EvictionOrder
from makeway.core.k8s.disruption import (
    DISRUPTION_TARGET,
    PREEMPTION_BY_SCHEDULER,
    QUOTA_MESSAGE,
    preemption_message,
)
from makeway.core.k8s.times import api_time

STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"

_encode = msgspec.json.encode


def mark_message(order: EvictionOrder) -> str:
    """DisruptionTarget's message, as kube-scheduler words it where it has a word for it; it names no pod."""
    if order.kind == "quota":
        return QUOTA_MESSAGE
    scheduler = order.room_for.scheduler_name if order.room_for is not None else "makeway"
    return preemption_message(scheduler, for_group=order.kind == "group")


def set_mark(uid: str, resource_version: str, message: str, now: datetime) -> bytes:
    """Set DisruptionTarget on a pod as it was read (strategic merge, /status)."""
    condition = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": PREEMPTION_BY_SCHEDULER,
        "message": message,
        "lastTransitionTime": api_time(now, "seconds"),
    }
    return _encode(
        {
            "metadata": {"uid": uid, "resourceVersion": resource_version},
            "status": {"conditions": [condition]},
        }
    )


def clear_mark(uid: str, resource_version: str) -> bytes:
    """Remove DisruptionTarget from a pod as it was read (strategic merge, /status)."""
    condition = {"type": DISRUPTION_TARGET, "$patch": "delete"}
    return _encode(
        {
            "metadata": {"uid": uid, "resourceVersion": resource_version},
            "status": {"conditions": [condition]},
        }
    )


def clear_nomination(uid: str, resource_version: str) -> bytes:
    """Remove `nominatedNodeName` from a pod as it was read (merge patch, /status)."""
    return _encode(
        {
            "metadata": {"uid": uid, "resourceVersion": resource_version},
            "status": {"nominatedNodeName": None},
        }
    )


def delete_options(uid: str, resource_version: str, *, dry_run: bool = False) -> bytes:
    """Delete a pod as it was read, and no other; its own grace period stands, as none is given."""
    options = _as_read(uid, resource_version, dry_run=dry_run)
    return _encode({"kind": "DeleteOptions", "apiVersion": "v1", **options})


def eviction(namespace: str, name: str, uid: str, resource_version: str, *, dry_run: bool = False) -> bytes:
    """Evict a pod as it was read, and no other (policy/v1 Eviction); grace as with `delete_options`."""
    return _encode(
        {
            "kind": "Eviction",
            "apiVersion": "policy/v1",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": _as_read(uid, resource_version, dry_run=dry_run),
        }
    )


def _as_read(uid: str, resource_version: str, *, dry_run: bool) -> dict[str, object]:
    """`dry_run`: the API server reads it here of a delete, and of an eviction in the query."""
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    return {"preconditions": preconditions, **({"dryRun": ["All"]} if dry_run else {})}
