"""What an object of the API server changes of a snapshot, for the watch and for a cluster read once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from makeway.core.k8s.budget import budget_of
from makeway.core.k8s.daemonset_owner import daemonset_owner
from makeway.core.k8s.nodes import RequiredNodes
from makeway.core.k8s.objects import (
    DaemonSet,
    Metadata,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    StorageClass,
)
from makeway.core.k8s.pod_groups import CompositePodGroup, GroupKey, PodGroup, group_record
from makeway.planner.snapshot import changes
from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.changes import Change
from makeway.planner.snapshot.records import PodRecords, node_record
from makeway.planner.snapshot.volumes import claim_record, class_nodes, volume_record, waits


def change_of(item: Any, records: PodRecords) -> Change | None:
    """Return the change that an object makes which is new, or is not as it was; None for other kinds.

    `records`: of the pods that were read before. Raises QuantityError. O(size of the object).
    """
    if isinstance(item, Pod):
        return changes.PutPod(records.record(item))
    change = _CHANGES.get(type(item))
    return None if change is None else change(item)


_CHANGES: Final[Mapping[type, Callable[[Any], Change]]] = {
    Node: lambda item: changes.PutNode(node_record(item)),
    PodDisruptionBudget: lambda item: changes.PutBudget(budget_of(item)),
    PriorityClass: changes.PutPriorityClass,
    Namespace: changes.PutNamespace,
    PersistentVolumeClaim: lambda item: changes.PutClaim.of(_key(item.metadata), claim_record(item)),
    PersistentVolume: lambda item: changes.PutVolume(item.metadata.name, volume_record(item)),
    StorageClass: lambda item: changes.PutStorageClass(item.metadata.name, class_nodes(item), waits(item)),
    DaemonSet: lambda item: changes.PutDaemonSet(daemonset_owner(item)),
    PodGroup: lambda item: changes.PutPodGroup(group_record(item)),
    CompositePodGroup: lambda item: changes.PutPodGroup(group_record(item, composite=True)),
}


def _key(meta: Metadata) -> Key:
    return meta.namespace, meta.name


_REMOVALS: Final[Mapping[type, Callable[[Metadata], Change]]] = {
    Pod: lambda meta: changes.RemovePod(meta.uid),
    Node: lambda meta: changes.RemoveNode(meta.name),
    PodDisruptionBudget: lambda meta: changes.RemoveBudget(_key(meta)),
    PriorityClass: lambda meta: changes.RemovePriorityClass(meta.name),
    Namespace: lambda meta: changes.RemoveNamespace(meta.name),
    PersistentVolumeClaim: lambda meta: changes.PutClaim.of(_key(meta)),
    PersistentVolume: lambda meta: changes.PutVolume(meta.name, None),
    StorageClass: lambda meta: changes.PutStorageClass(meta.name, RequiredNodes()),
    DaemonSet: lambda meta: changes.RemoveDaemonSet(meta.uid),
    PodGroup: lambda meta: changes.RemovePodGroup(GroupKey(meta.namespace, meta.name)),
    CompositePodGroup: lambda meta: changes.RemovePodGroup(GroupKey(meta.namespace, meta.name, True)),
}


KINDS: Final = tuple(_REMOVALS)
"""What is kept of, as types of objects."""


def removal_of(item: Any) -> Change:
    """Return the change that the end of an object makes; objects of one name make the same one.

    Those of DaemonSets differ by UID. Raises KeyError for other kinds than those of `change_of`.
    """
    return _REMOVALS[type(item)](item.metadata)
