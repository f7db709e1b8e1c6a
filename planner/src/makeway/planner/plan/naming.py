"""Pods as messages name them. Pure."""

from __future__ import annotations

from typing import Any

from makeway.bus.messages import Placement, Victim
from makeway.core.k8s.objects import Metadata
from makeway.planner.snapshot.records import PodRecord


def as_victim(pod: PodRecord, rule: str, *, node: str = "", **more: Any) -> Victim:
    """Name a pod that `rule` lets go; `node`: where it counts, else its own; `more`: fields of a victim."""
    return Victim(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        node=node or pod.node,
        priority=pod.priority,
        grace_period_seconds=pod.grace_period_seconds,
        rule=rule,
        **more,
    )


def as_placement(pod: PodRecord | Metadata, node: str) -> Placement:
    """Name a pod that is, or is to be, on a node."""
    return Placement(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=node)
