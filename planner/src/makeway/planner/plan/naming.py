"""Pods as messages name them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from makeway.bus.messages import Placement, Victim
from makeway.core.k8s.objects import Metadata
from makeway.core.text import counted
from makeway.planner.snapshot.records import PodRecord

_MOST_NAMED: Final = 3


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


def full_name(pod: PodRecord) -> str:
    """Return a pod's name with its namespace."""
    return f"{pod.namespace}/{pod.name}"


def named_for(namespace: str, pods: Iterable[PodRecord], name: Callable[[PodRecord], str] = full_name) -> str:
    """Name the first few of some pods that are of a namespace, whose tenants read it, and count the others.

    See docs/visibility.md. Empty without any pod.
    """
    every = list(pods)
    own = [name(pod) for pod in every if pod.namespace == namespace]
    told = own[:_MOST_NAMED]
    if more := len(own) - len(told):
        told.append(f"{counted(more, 'other pod')} of its namespace")
    if others := len(every) - len(own):
        told.append(f"{counted(others, 'pod')} of other namespaces")
    return " and ".join(told)
