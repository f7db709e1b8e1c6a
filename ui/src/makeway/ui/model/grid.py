"""The cluster as a grid of nodes in groups, and one node in full. Pure, but for reading the snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from heapq import nsmallest
from typing import Final

import msgspec

from makeway.core.k8s.resources import CPU, MEMORY
from makeway.core.queues.amounts import text_of
from makeway.planner.snapshot.records import NodeRecord, PodRecord
from makeway.planner.snapshot.state import Snapshot

MOST_NODES: Final = 10_000
MOST_PENDING: Final = 500
MOST_PODS: Final = 500
_MOST_LABEL_VALUES: Final = 100

ZONE: Final = "topology.kubernetes.io/zone"
_LABELS: Final = (
    ZONE,
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
    "node-role.kubernetes.io/control-plane",
)
"""Labels by which nodes are grouped, where some node has them; the first is the default."""


class Grid(msgspec.Struct, frozen=True, rename="camel"):
    """All nodes by columns: one place each in names, groups, cpu, memory, pods and marks.

    label: by which nodes are grouped, one of labels; empty for none. group_names: groups has places in it.
    cpu, memory: percent of what is allocatable that pods request. marks: 1 cordoned, 2 tainted, added up.
    nodes_total: also those beyond what is listed. pending: pods without a node, the most important first.
    """

    at: datetime
    label: str
    labels: tuple[str, ...]
    group_names: tuple[str, ...]
    names: tuple[str, ...]
    groups: tuple[int, ...]
    cpu: tuple[int, ...]
    memory: tuple[int, ...]
    pods: tuple[int, ...]
    marks: tuple[int, ...]
    nodes_total: int
    pending: tuple[str, ...]
    pending_total: int
    warnings: tuple[str, ...]


class PodOnNode(msgspec.Struct, frozen=True, rename="camel"):
    """A pod of one node, with what it requests."""

    namespace: str
    name: str
    priority: int
    cpu: str
    memory: str
    terminating: bool


class NodeView(msgspec.Struct, frozen=True, rename="camel"):
    """One node: its pods, the least important first, as preemption meets them."""

    name: str
    allocatable: dict[str, str]
    requested: dict[str, str]
    taints: tuple[str, ...]
    cordoned: bool
    pods: tuple[PodOnNode, ...]
    pods_total: int


def grid_of(snapshot: Snapshot, at: datetime, label: str = "", warnings: tuple[str, ...] = ()) -> Grid:
    """Return the grid. `label`: by which nodes are grouped; empty: the one that splits them best. O(pods)."""
    names = snapshot.node_names()[:MOST_NODES]
    labels = _labels(snapshot.nodes)
    chosen = label if label in labels else next(iter(labels), "")
    values = [_value(snapshot.nodes[name], chosen) for name in names]
    group_names = sorted(set(values))
    places = {value: place for place, value in enumerate(group_names)}
    rows = [snapshot.rows[name] for name in names]
    pending = [pod for pod in snapshot.pods.values() if not pod.node]
    first = nsmallest(
        MOST_PENDING,
        pending,
        key=lambda pod: (-pod.priority, pod.facts.created_micros, pod.namespace, pod.name),
    )
    return Grid(
        at=at,
        label=chosen,
        labels=labels,
        group_names=tuple(group_names),
        names=names,
        groups=tuple(places[value] for value in values),
        cpu=_shares(snapshot, rows, CPU),
        memory=_shares(snapshot, rows, MEMORY),
        pods=tuple(len(snapshot.slots[row]) for row in rows),
        marks=tuple(_marks(snapshot.nodes[name]) for name in names),
        nodes_total=snapshot.node_count,
        pending=tuple(f"{pod.namespace}/{pod.name}" for pod in first),
        pending_total=len(pending),
        warnings=warnings[:20],
    )


def node_of(snapshot: Snapshot, name: str) -> NodeView | None:
    """Return one node in full; None where there is none of that name. O(its pods)."""
    node = snapshot.nodes.get(name)
    if node is None:
        return None
    row = snapshot.rows[name]
    pods = snapshot.slots[row]
    requested: Counter[str] = Counter()
    for pod in pods:
        requested.update({key: amount for key, amount in pod.requests.items() if key in node.allocatable})
    return NodeView(
        name=name,
        allocatable=_texts(node.allocatable),
        requested=_texts(requested),
        taints=tuple(f"{one.key}={one.value or ''}:{one.effect}" for one in node.taints),
        cordoned=node.unschedulable,
        pods=tuple(_pod(pod) for pod in reversed(pods[-MOST_PODS:])),
        pods_total=len(pods),
    )


def _labels(nodes: Mapping[str, NodeRecord]) -> tuple[str, ...]:
    """Return the labels that some node has and that make groups, not one for each node."""
    found = []
    for label in _LABELS:
        values = {node.labels[label] for node in nodes.values() if label in node.labels}
        if values and len(values) <= _MOST_LABEL_VALUES:
            found.append(label)
    return tuple(found)


def _value(node: NodeRecord, label: str) -> str:
    if not label:
        return ""
    return node.labels.get(label, "") or ("yes" if label in node.labels else "")


def _shares(snapshot: Snapshot, rows: list[int], resource: str) -> tuple[int, ...]:
    layer = snapshot.columns.resources[resource]
    allocatable = snapshot.columns.allocatable[layer, rows].tolist()
    requested = snapshot.columns.requested[layer, rows].tolist()
    return tuple(
        min(999, 100 * used // most) if most > 0 else 0
        for used, most in zip(requested, allocatable, strict=True)
    )


def _marks(node: NodeRecord) -> int:
    tainted = any(one.effect in ("NoSchedule", "NoExecute") for one in node.taints)
    return int(node.unschedulable) + 2 * int(tainted)


def _pod(pod: PodRecord) -> PodOnNode:
    return PodOnNode(
        namespace=pod.namespace,
        name=pod.name,
        priority=pod.priority,
        cpu=text_of(CPU, pod.requests.get(CPU, 0)),
        memory=text_of(MEMORY, pod.requests.get(MEMORY, 0)),
        terminating=pod.terminating,
    )


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: text_of(name, amounts[name]) for name in sorted(amounts)[:32]}
