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
from makeway.planner.snapshot.changes import (
    Change,
    PutBudget,
    PutClaim,
    PutDaemonSet,
    PutNamespace,
    PutNode,
    PutPod,
    PutPodGroup,
    PutPriorityClass,
    PutStorageClass,
    PutVolume,
    RemoveBudget,
    RemoveDaemonSet,
    RemoveNamespace,
    RemoveNode,
    RemovePod,
    RemovePodGroup,
    RemovePriorityClass,
)
from makeway.planner.snapshot.records import PodRecords, node_record
from makeway.planner.snapshot.volumes import claim_record, class_nodes, volume_record, waits


def change_of(item: Any, records: PodRecords) -> Change | None:
    """Return the change that an object makes which is new, or is not as it was; None for other kinds.

    `records`: of the pods that were read before. Raises QuantityError. O(size of the object).
    """
    match item:
        case Pod():
            return PutPod(records.record(item))
        case Node():
            return PutNode(node_record(item))
        case PodDisruptionBudget():
            return PutBudget(budget_of(item))
        case PriorityClass():
            return PutPriorityClass(item)
        case Namespace():
            return PutNamespace(item)
        case PersistentVolumeClaim():
            return PutClaim.of((item.metadata.namespace, item.metadata.name), claim_record(item))
        case PersistentVolume():
            return PutVolume(item.metadata.name, volume_record(item))
        case StorageClass():
            return PutStorageClass(item.metadata.name, class_nodes(item), waits(item))
        case DaemonSet():
            return PutDaemonSet(daemonset_owner(item))
        case PodGroup():
            return PutPodGroup(group_record(item, composite=isinstance(item, CompositePodGroup)))
        case _:
            return None


_REMOVALS: Final[Mapping[type, Callable[[Metadata], Change]]] = {
    Pod: lambda meta: RemovePod(meta.uid),
    Node: lambda meta: RemoveNode(meta.name),
    PodDisruptionBudget: lambda meta: RemoveBudget((meta.namespace, meta.name)),
    PriorityClass: lambda meta: RemovePriorityClass(meta.name),
    Namespace: lambda meta: RemoveNamespace(meta.name),
    PersistentVolumeClaim: lambda meta: PutClaim.of((meta.namespace, meta.name)),
    PersistentVolume: lambda meta: PutVolume(meta.name, None),
    StorageClass: lambda meta: PutStorageClass(meta.name, RequiredNodes()),
    DaemonSet: lambda meta: RemoveDaemonSet(meta.uid),
    PodGroup: lambda meta: RemovePodGroup(GroupKey(meta.namespace, meta.name)),
    CompositePodGroup: lambda meta: RemovePodGroup(GroupKey(meta.namespace, meta.name, True)),
}


def removal_of(item: Any) -> Change:
    """Return the change that the end of an object makes; objects of one name make the same one.

    Those of DaemonSets differ by UID. Raises KeyError for other kinds than those of `change_of`.
    """
    return _REMOVALS[type(item)](item.metadata)
