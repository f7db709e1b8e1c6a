"""What the planner keeps of a pod and of a node: only what a plan needs, already counted."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from makeway.core.k8s.budget import READY, Health, health_of
from makeway.core.k8s.importance import Importance, importance, microseconds
from makeway.core.k8s.names import is_subdomain
from makeway.core.k8s.objects import Node, Pod, Taint
from makeway.core.k8s.pod_groups import group_of
from makeway.core.k8s.requests import KnownRequests, is_resize_infeasible, pod_requests
from makeway.core.k8s.resources import allocatable
from makeway.core.policy.facts import PodFacts, annotations_read, facts_of, scheduled_since
from makeway.core.policy.lost_work import checkpointed_at
from makeway.core.recent import BoundedBytes
from makeway.planner.snapshot.signatures.table import PodSignature, signature_of

DEFAULT_GRACE_PERIOD_SECONDS = 30
"""terminationGracePeriodSeconds where the pod does not say, as in Kubernetes."""


_REMEMBERED_BYTES = 8 * 2**20
"""Of workloads whose last record is kept: some 3 kB each. A list comes workload by workload."""

_SIGNED_BYTES = 16 * 2**20
"""The same of pods whose signature others share: of some 8,000."""

_BESIDES = 1024
"""Bytes that either takes besides those by which a pod is compared with others."""

_LARGEST_CACHED = 32 * 1024
"""Bytes of a pod that is compared with others; nothing of a larger one is kept for those that come after."""

LARGEST_LASTING: Final = 6 * 1024
"""Bytes (`PodRecord.size`) of a pod that may be remembered when it is gone; most have 1 to 2 kB."""

_LONGEST_KIND: Final = 63
"""Characters of an owner's kind."""


class PodRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One incarnation of a pod.

    `node` is empty while it is pending. `requests`: by column (milli-CPU, bytes, units, one of `pods`), as it
    counts on a node. `start_micros`: status.startTime in microseconds, or NOT_STARTED.
    `grace_period_seconds`: how long the kubelet lets it end. `terminating`: it has a deletionTimestamp, and
    `ends_micros` is that, when its grace period ends, in microseconds. `facts`: what rules look at.
    `signature`: what other pods' constraints look at. `health`: as the eviction API has it, for hard
    disruption budgets. `group`: the name of its PodGroup; `priority` is that of its groups then, here and in
    `facts`, once the snapshot has entered it. `scheduler_name`: whose pod it is; `controller`: what made it,
    as `ReplicaSet shop/web-1`. Both are empty in recordings that do not say.
    """

    namespace: str
    name: str
    uid: str
    node: str
    priority: int
    start_micros: int
    grace_period_seconds: int
    terminating: bool
    requests: Mapping[str, int]
    labels: Mapping[str, str]
    facts: PodFacts
    signature: PodSignature = msgspec.field(name="kind")  # as recordings have it
    ends_micros: int = 0
    health: Health = READY
    group: str = ""
    scheduler_name: str = ""
    controller: str = ""

    @property
    def importance(self) -> Importance:
        """The key that puts the most important pod of a node first."""
        return importance(self.priority, self.start_micros, self.uid)

    @property
    def size(self) -> int:
        """How many bytes it is when it is written down; its author decides that."""
        return len(_encode(self))


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node: its name, what it can hold, by column, and what constraints look at.

    `unschedulable`: it is cordoned.
    """

    name: str
    allocatable: dict[str, int]
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


def pod_record(pod: Pod) -> PodRecord:
    """Count a pod as the scheduler's NodeInfo does. Raises QuantityError."""
    return _counted(pod, signature_of(pod), pod_requests(pod, placed=True))


class PodRecords:
    """Records of pods that are read one after the other: alike pods share what they can, which changes none.

    Pods of one workload differ in little more than name, node and times. The last record of each controller's
    pods (of each namespace's, for pods without one) is kept with all that it depended on; where that is the
    same, the new record shares what was counted then. It is kept as bytes: objects lie scattered over the
    memory, and to look at those of a pod read long ago takes longer than to write down those just read.
    Other pods that ask for the same, or have one signature, share that.
    """

    def __init__(self) -> None:
        self._requests = KnownRequests()
        self._signatures = BoundedBytes[PodSignature, tuple[PodSignature, Mapping[str, str]]](_SIGNED_BYTES)
        self._alike = BoundedBytes[str, tuple[bytes, PodRecord]](_REMEMBERED_BYTES)

    def record(self, pod: Pod) -> PodRecord:
        """Return what `pod_record` does. Raises QuantityError."""
        metadata, spec, status = pod.metadata, pod.spec, pod.status
        owners = metadata.owner_references
        workload = owners[0].uid if owners else metadata.namespace
        look = _encode(
            (
                metadata.namespace,
                metadata.labels,
                annotations_read(metadata),
                owners,
                metadata.deletion_timestamp is None,
                metadata.deletion_grace_period_seconds,
                spec.priority,
                spec.priority_class_name,
                spec.termination_grace_period_seconds,
                spec.containers,
                spec.init_containers,
                spec.overhead,
                spec.resources,
                spec.affinity,
                spec.volumes,
                status.container_statuses,
                status.init_container_statuses,
                status.allocated_resources,
                status.resources,
                is_resize_infeasible(pod),
                spec.scheduling_group,
                spec.scheduler_name,
            )
        )
        if len(look) > _LARGEST_CACHED:
            return pod_record(pod)
        known = self._alike.get(workload)
        if known is None or known[0] != look:
            size = len(look) + _BESIDES
            return self._alike.remember(workload, (look, self._count(pod, size)), size)[1]
        return replace(
            known[1],
            name=metadata.name,
            uid=metadata.uid,
            node=spec.node_name or "",
            start_micros=microseconds(status.start_time),
            ends_micros=microseconds(metadata.deletion_timestamp) if metadata.deletion_timestamp else 0,
            health=health_of(pod),
            facts=replace(
                known[1].facts,
                scheduled_micros=scheduled_since(pod),
                created_micros=microseconds(metadata.creation_timestamp),
                checkpointed_micros=checkpointed_at(metadata),
            ),
        )

    def requests(self, pod: Pod, *, placed: bool) -> Mapping[str, int]:
        """Return what `pod_requests` does. Raises QuantityError."""
        return self._requests.of(pod, placed=placed)

    def _count(self, pod: Pod, size: int) -> PodRecord:
        signature = signature_of(pod)
        known = self._signatures.get(signature)
        if known is None:
            known = self._signatures.remember(signature, (signature, dict(signature.labels)), size)
        return _counted(pod, known[0], self.requests(pod, placed=True), known[1])


_encode = msgspec.json.Encoder().encode


def _counted(
    pod: Pod, signature: PodSignature, requests: Mapping[str, int], labels: Mapping[str, str] | None = None
) -> PodRecord:
    metadata, spec = pod.metadata, pod.spec
    grace = metadata.deletion_grace_period_seconds
    if grace is None:
        grace = spec.termination_grace_period_seconds
    return PodRecord(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        node=spec.node_name or "",
        priority=spec.priority or 0,
        start_micros=microseconds(pod.status.start_time),
        grace_period_seconds=DEFAULT_GRACE_PERIOD_SECONDS if grace is None else grace,
        terminating=metadata.deletion_timestamp is not None,
        requests=requests,
        labels=dict(signature.labels) if labels is None else labels,
        facts=facts_of(pod),
        signature=signature,
        ends_micros=microseconds(metadata.deletion_timestamp) if metadata.deletion_timestamp else 0,
        health=health_of(pod),
        group=sys.intern(group_of(pod)),
        scheduler_name=sys.intern(spec.scheduler_name or ""),
        controller=sys.intern(_controller_of(pod)),
    )


def _controller_of(pod: Pod) -> str:
    """Return what made a pod, as it says itself; empty where that can be nothing that is there."""
    owners = pod.metadata.owner_references or ()
    found = next((one for one in owners if one.controller), None)
    if found is None or len(found.kind) > _LONGEST_KIND or not is_subdomain(found.name):
        return ""
    return f"{found.kind} {pod.metadata.namespace}/{found.name}"


def node_record(node: Node) -> NodeRecord:
    """Count a node's allocatable. Raises QuantityError."""
    return NodeRecord(
        name=node.metadata.name,
        allocatable=allocatable(node.status.allocatable),
        labels=node.metadata.labels or {},
        taints=node.spec.taints or (),
        unschedulable=bool(node.spec.unschedulable),
    )


class Departure:
    """A pod that left, or began to, and the revision at which the watch saw it."""

    __slots__ = ("pod", "revision")

    def __init__(self, pod: PodRecord, revision: int) -> None:
        self.pod = pod
        self.revision = revision
