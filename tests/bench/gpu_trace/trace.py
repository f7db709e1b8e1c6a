"""The GPU trace of Alibaba's cluster as nodes and pods: reading it, and placing its pods.

Pure. The columns are described in the trace's own README.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_high
from typing import Final, Literal

import numpy as np

from makeway.planner.snapshot.columns import Ints

PRIORITIES: Final[Mapping[str, int]] = {"BE": 0, "Burstable": 1_000, "LS": 2_000, "Guaranteed": 3_000}
"""The priority of a pod, by its column `qos`: best effort goes first, guaranteed last."""

MOST_PODS: Final = 110
"""Pods that a node takes, as a kubelet allows by default; the trace does not say."""

Rule = Literal["least-allocated", "first-fit"]
"""How a pod's node is chosen among those with room for it."""


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node: milli-CPU, MiB and GPUs."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int


@dataclass(frozen=True, slots=True)
class TracePod:
    """A pod. `gpus`: whole ones; a share of one counts as one. `created`: seconds since the trace began."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    priority: int
    created: int


def nodes_of(lines: Iterable[str]) -> tuple[TraceNode, ...]:
    """Read a list of nodes, in its order. Raises KeyError and ValueError."""
    return tuple(
        TraceNode(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]))
        for row in csv.DictReader(lines)
    )


def pods_of(lines: Iterable[str]) -> tuple[TracePod, ...]:
    """Read a list of pods, those first that were created first. Raises KeyError and ValueError."""
    pods = (
        TracePod(
            row["name"],
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            PRIORITIES[row["qos"]],
            int(row["creation_time"]),
        )
        for row in csv.DictReader(lines)
    )
    return tuple(sorted(pods, key=lambda pod: pod.created))


def placed(nodes: Sequence[TraceNode], pods: Iterable[TracePod], rule: Rule) -> list[tuple[TracePod, str]]:
    """Place one pod after the other, and return those that found room with their nodes.

    No pod leaves. `first-fit` takes the first node of the list that has room; `least-allocated` the one
    with the largest part of CPU and memory left, as kube-scheduler's NodeResourcesFit scores by default, and
    the first of equal ones. O(nodes) a pod.
    """
    size = np.array([(node.cpu_milli, node.memory_mib, node.gpus, MOST_PODS) for node in nodes], np.int64)
    free = size.copy()
    found = []
    for pod in pods:
        after = free - np.array((pod.cpu_milli, pod.memory_mib, pod.gpus, 1))
        fitting = np.flatnonzero((after >= 0).all(axis=1))
        if not fitting.size:
            continue
        at = int(fitting[0] if rule == "first-fit" else fitting[_score(after, size)[fitting].argmax()])
        free[at] = after[at]
        found.append((pod, nodes[at].name))
    return found


def _score(free: Ints, size: Ints) -> Ints:
    """Return of each node how much of its CPU and memory is left, in hundredths."""
    left = free[:, :2] * 100 // size[:, :2]
    return np.asarray(left.sum(axis=1) // 2)


def member_of(pods: Iterable[TracePod], gpus: int, priority: int) -> TracePod:
    """Return what a member of a gang asks for: CPU and memory of the median pod with as many GPUs.

    Raises statistics.StatisticsError where there is no such pod.
    """
    alike = [pod for pod in pods if pod.gpus == gpus]
    cpu, memory = median_high(pod.cpu_milli for pod in alike), median_high(pod.memory_mib for pod in alike)
    return TracePod("member", cpu, memory, gpus, priority, 0)
