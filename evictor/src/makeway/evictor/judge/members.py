"""The pods of PodGroups in a namespace, so that none of a unit is left out. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct

from makeway.core.k8s.objects import (
    ENDED_PHASES,
    Metadata,
    Pod,
    PodCondition,
    SchedulingGroup,
    View,
)
from makeway.core.k8s.pod_groups import GroupKey


class _Spec(View, frozen=True, gc=False):
    node_name: str | None = None
    scheduling_group: SchedulingGroup | None = None


class _Status(View, frozen=True, gc=False):
    phase: str | None = None
    conditions: tuple[PodCondition, ...] | None = None


class GroupedPod(View, frozen=True, gc=False):
    """The fields of a pod by which it is a member of a PodGroup."""

    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class GroupMember(Struct, frozen=True, gc=False):
    """A pod that names a PodGroup, has a node and has not ended. `bound_at`: to the second."""

    namespace: str
    name: str
    uid: str
    leaving: bool
    bound_at: datetime | None = None


Members: TypeAlias = Mapping[GroupKey, Sequence[GroupMember]]
"""Pods by the PodGroup that they name."""


def member_of(pod: GroupedPod | Pod) -> tuple[GroupKey, GroupMember] | None:
    """Return the PodGroup that a pod is a member of; None where it is of none."""
    group, metadata = pod.spec.scheduling_group, pod.metadata
    if group is None or not group.pod_group_name or not pod.spec.node_name:
        return None
    if pod.status.phase in ENDED_PHASES:
        return None
    leaving = metadata.deletion_timestamp is not None
    key = GroupKey(metadata.namespace, group.pod_group_name)
    return key, GroupMember(metadata.namespace, metadata.name, metadata.uid, leaving, _bound_at(pod))


def _bound_at(pod: GroupedPod | Pod) -> datetime | None:
    """Return when a pod was bound: kube-apiserver notes that with the node, but for one made with a node."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "True":
            return condition.last_transition_time
    return pod.metadata.creation_timestamp


def add_members(members: defaultdict[GroupKey, list[GroupMember]], pods: Iterable[GroupedPod | Pod]) -> None:
    """Add those of `pods` that are members to what was found before."""
    for pod in pods:
        if (found := member_of(pod)) is not None:
            members[found[0]].append(found[1])
