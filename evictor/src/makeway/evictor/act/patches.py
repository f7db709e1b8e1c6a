"""The evictor's patches, as JSON has them. Pure.

Every merge patch of a pod carries UID and resourceVersion of the pod as it was read: the API server answers
409 where the pod has changed, and 422 ("field is immutable") where the pod under that name is another
one. The UID alone is not enough. A patch that meets a pod in the last moment of its deletion (grace
period 0, no finalizers) makes kube-apiserver delete by name whatever has that name by then, though
the patch was for the pod before (registry/generic/registry/store.go, Update: a patch brings no
preconditions to `deleteWithoutFinalizers`). So no pod that was read in that state is patched at all.
A mark that names no version, since the pod is written too often for that, is a JSON patch: the API server
applies it to the pod that it then has, where its tests hold, so that it meets no pod that is being deleted.
Conditions merge by `type` under a strategic merge patch (`patchMergeKey` of v1.PodStatus.conditions).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from makeway.bus.messages import EvictionOrder
from makeway.core.k8s.disruption import (
    DISRUPTION_TARGET,
    PREEMPTION_BY_SCHEDULER,
    QUOTA_MESSAGE,
    preemption_message,
)
from makeway.core.k8s.times import api_time


def mark_message(order: EvictionOrder) -> str:
    """DisruptionTarget's message, as kube-scheduler words it where it has a word for it; it names no pod."""
    if order.kind == "quota":
        return QUOTA_MESSAGE
    scheduler = order.room_for.scheduler_name if order.room_for is not None else "makeway"
    return preemption_message(scheduler, for_group=order.kind == "group")


def set_mark(uid: str, resource_version: str, message: str, now: datetime) -> dict[str, Any]:
    """Set DisruptionTarget on a pod as it was read (strategic merge, /status)."""
    return set_condition(uid, resource_version, _mark(message, now))


def set_mark_by_uid(uid: str, conditions: Sequence[Any] | None, message: str, now: datetime) -> list[Any]:
    """Set DisruptionTarget on a pod of any version (JSON patch, /status).

    `conditions`: of the pod, each as the API server has it; None where it has none. They are compared whole:
    where another has written one, as the kubelet does, the patch is refused and no condition is lost.
    """
    others = [one for one in conditions or () if one.get("type") != DISRUPTION_TARGET]
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": "/metadata/deletionTimestamp", "value": None},
        {"op": "test", "path": "/status/conditions", "value": conditions},
        {"op": "add", "path": "/status/conditions", "value": [*others, _mark(message, now)]},
    ]


def _mark(message: str, now: datetime) -> dict[str, Any]:
    return {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": PREEMPTION_BY_SCHEDULER,
        "message": message,
        "lastTransitionTime": api_time(now, "seconds"),
    }


def clear_mark(uid: str, resource_version: str) -> dict[str, Any]:
    """Remove DisruptionTarget from a pod as it was read (strategic merge, /status)."""
    return set_condition(uid, resource_version, {"type": DISRUPTION_TARGET, "$patch": "delete"})


def set_condition(uid: str, resource_version: str, condition: dict[str, Any]) -> dict[str, Any]:
    """Set or remove a condition of a pod as it was read (strategic merge, /status)."""
    return {
        "metadata": {"uid": uid, "resourceVersion": resource_version},
        "status": {"conditions": [condition]},
    }


def clear_nomination(uid: str, resource_version: str) -> dict[str, Any]:
    """Remove `nominatedNodeName` from a pod as it was read (merge patch, /status)."""
    return {
        "metadata": {"uid": uid, "resourceVersion": resource_version},
        "status": {"nominatedNodeName": None},
    }
