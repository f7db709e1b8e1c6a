"""What changes a snapshot, as values: what the watch saw, and what was put in force. Pure.

`Snapshot.apply` takes each of them. Recordings hold them as they are, written by position under their tag, so
that a tag is never given to another, and fields are only added behind those that are there.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from makeway.core.k8s.budget import Budget
from makeway.core.k8s.daemonset_owner import DaemonSetOwner
from makeway.core.k8s.nodes import RequiredNodes
from makeway.core.k8s.objects import Namespace, PriorityClass
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord
from makeway.core.policy.document import Policy
from makeway.core.queues.tree import QueueTree
from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.exemptions import Source
from makeway.planner.snapshot.records import NodeRecord, PodRecord
from makeway.planner.snapshot.volumes import NO_CLAIM, ClaimRecord, VolumeRecord


class RecordingEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all that a recording holds."""


class PutNode(RecordingEntry, frozen=True, tag=2, gc=False):
    """A node has come, or what it can hold, its labels or its taints have changed."""

    node: NodeRecord


class RemoveNode(RecordingEntry, frozen=True, tag=3, gc=False):
    """A node is gone; the pods bound to it stay until they go themselves."""

    name: str


class PutPod(RecordingEntry, frozen=True, tag=4, gc=False):
    """A pod has come or changed; another pod of that name is gone."""

    pod: PodRecord


class RemovePod(RecordingEntry, frozen=True, tag=5, gc=False):
    """A pod has ended or was deleted."""

    uid: str


class PutBudget(RecordingEntry, frozen=True, tag=6, gc=False):
    """A PodDisruptionBudget has come or changed."""

    budget: Budget


class RemoveBudget(RecordingEntry, frozen=True, tag=7, gc=False):
    """A PodDisruptionBudget is gone."""

    key: Key


class PutClaim(RecordingEntry, frozen=True, tag=8, gc=False):
    """A PersistentVolumeClaim has come or changed; one without any content is gone."""

    key: Key
    exclusive: bool
    volume: str = ""
    storage_class: str = ""

    @classmethod
    def of(cls, key: Key, claim: ClaimRecord = NO_CLAIM) -> PutClaim:
        """Return the change to a claim."""
        return cls(key, claim.exclusive, claim.volume, claim.storage_class)


class PutPriorityClass(RecordingEntry, frozen=True, tag=9, gc=False):
    """A PriorityClass has come or changed."""

    priority_class: PriorityClass


class RemovePriorityClass(RecordingEntry, frozen=True, tag=10, gc=False):
    """A PriorityClass is gone; of its pods the record of tolerations says what counts."""

    name: str


class PutNamespace(RecordingEntry, frozen=True, tag=11, gc=False):
    """A namespace has come or changed."""

    namespace: Namespace


class RemoveNamespace(RecordingEntry, frozen=True, tag=12, gc=False):
    """A namespace is gone."""

    name: str


class Enforce(RecordingEntry, frozen=True, tag=13, gc=False):
    """A policy is put in force; `source`: the object that holds it."""

    policy: Policy
    revision: str
    source: Source | None = None


class Adopt(RecordingEntry, frozen=True, tag=14, gc=False):
    """A tree of queues is put in force, or none; `source`: the object that holds it."""

    tree: QueueTree | None
    revision: str
    source: Source | None = None


class PutVolume(RecordingEntry, frozen=True, tag=17, gc=False):
    """A PersistentVolume has come or changed, or (None) is gone."""

    name: str
    volume: VolumeRecord | None


class PutStorageClass(RecordingEntry, frozen=True, tag=18, gc=False):
    """The nodes for which a StorageClass makes volumes; all nodes where it is gone.

    `waits`: its claims wait for their first consumer.
    """

    name: str
    nodes: RequiredNodes
    waits: bool = False


class PutDevices(RecordingEntry, frozen=True, tag=19, gc=False):
    """Which extended resources device classes serve; None: that is not known."""

    resources: frozenset[str] | None


class KnowVolumes(RecordingEntry, frozen=True, tag=20, gc=False):
    """Whether all PersistentVolumes have been listed. A recording without it knew them, for its plans."""

    known: bool


class PutDaemonSet(RecordingEntry, frozen=True, tag=21, gc=False):
    """A DaemonSet has come, or its selector has changed."""

    daemonset: DaemonSetOwner


class RemoveDaemonSet(RecordingEntry, frozen=True, tag=22, gc=False):
    """A DaemonSet is gone."""

    uid: str


class KnowDaemonSets(RecordingEntry, frozen=True, tag=23, gc=False):
    """Whether all DaemonSets have been listed. A recording without it knew of none."""

    known: bool


class PutPodGroup(RecordingEntry, frozen=True, tag=24, gc=False):
    """A PodGroup or a CompositePodGroup has come or changed."""

    group: GroupRecord


class RemovePodGroup(RecordingEntry, frozen=True, tag=25, gc=False):
    """A PodGroup or a CompositePodGroup is gone; its pods stay from now on."""

    key: GroupKey


class KnowPodGroups(RecordingEntry, frozen=True, tag=26, gc=False):
    """Whether groups are followed, whether all have been listed, and whether their parents are followed.

    A recording without it followed none.
    """

    followed: bool
    listed: bool
    composites: bool = False


class PutTolerationRecord(RecordingEntry, frozen=True, tag=29, gc=False):
    """What the record of tolerations has; None: it was never read. A recording without it has nothing."""

    classes: tuple[PriorityClass, ...] | None


Change: TypeAlias = (
    PutNode
    | RemoveNode
    | PutPod
    | RemovePod
    | PutBudget
    | RemoveBudget
    | PutClaim
    | PutPriorityClass
    | RemovePriorityClass
    | PutNamespace
    | RemoveNamespace
    | Enforce
    | Adopt
    | PutVolume
    | PutStorageClass
    | PutDevices
    | KnowVolumes
    | PutDaemonSet
    | RemoveDaemonSet
    | KnowDaemonSets
    | PutPodGroup
    | RemovePodGroup
    | KnowPodGroups
    | PutTolerationRecord
)
