"""Pod groups: which pods can only be disrupted together, and at whose priority.

One reader for both forms of the PodGroup: v1alpha2 (Kubernetes 1.36), whose `disruptionMode` is a string, and
v1beta1 (1.37), where it is a struct; and for the CompositePodGroup. A *unit* is what can only go
whole: all pods under the highest ancestor of mode all. Its priority is that of the highest ancestor. Sources:
getHighestAllAncestor and GetPodPriority in kube-scheduler's framework/preemption.

kube-scheduler takes a pod whose ancestors cannot all be found for a pod by itself. Here it is not known then
what has to go with it, and so it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import msgspec

from makeway.core.k8s.objects import Metadata, Pod, Priority, View

GROUP: Final = "scheduling.k8s.io"
"""The API group of all of them."""

POD_GROUP_VERSIONS: Final = ("v1beta1", "v1alpha2")
"""Versions of the PodGroup that are read, the newest first. v1alpha1 of Kubernetes 1.35 has another shape."""

ONE_BY_ONE: Final = "v1alpha2"
"""The version of Kubernetes 1.36, whose scheduler preempts for the pods of a gang one by one, and asks no
plugin to make room for it as a whole."""

COMPOSITE_ALPHA: Final = "v1alpha3"
"""The version of the CompositePodGroup where the PodGroup's has none, as in Kubernetes 1.37."""

MOST_LEVELS: Final = 4
"""Levels of a tree of groups, the PodGroup included: WorkloadMaxTreeDepth of the API."""

LATELY: Final = timedelta(seconds=30)
"""How long before its order a pod of a unit may have been bound that the plan has not seen."""

Mode: TypeAlias = Mapping[str, object] | str | None


class GangPolicy(View, frozen=True, gc=False):
    """spec.schedulingPolicy.gang; a CompositePodGroup counts groups, which nothing here asks for."""

    min_count: int = 0


class SchedulingPolicy(View, frozen=True, gc=False):
    """spec.schedulingPolicy."""

    gang: GangPolicy | None = None


class PodGroupSpec(View, frozen=True, gc=False):
    """spec of a PodGroup and of a CompositePodGroup."""

    parent_composite_pod_group_name: str | None = None
    scheduling_policy: SchedulingPolicy | None = None
    disruption_mode: dict[str, object] | str | None = None
    priority: Priority | None = None
    preemption_policy: str | None = None


class PodGroup(View, frozen=True, gc=False):
    """A PodGroup, or a CompositePodGroup."""

    metadata: Metadata = Metadata()
    spec: PodGroupSpec = PodGroupSpec()


class CompositePodGroup(PodGroup, frozen=True, gc=False):
    """A CompositePodGroup, where what is read says so by its type."""


class GroupKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """Names a PodGroup, or a CompositePodGroup."""

    namespace: str
    name: str
    composite: bool = False

    def __str__(self) -> str:
        """Name it for people."""
        return f"{'CompositePodGroup' if self.composite else 'PodGroup'} {self.namespace}/{self.name}"


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is kept of a group: its parent's name, whether it is disrupted whole, its priority.

    `min_count`: of its gang; 0 where it is none. `leaving`: it is being deleted. `preemption_policy`: empty
    where the feature gate PodGroupPreemptionPolicy is off, so that its pods' own counts. `labels`: its own.
    """

    key: GroupKey
    uid: str
    parent: str = ""
    whole: bool = False
    priority: int = 0
    min_count: int = 0
    leaving: bool = False
    preemption_policy: str = ""
    labels: Mapping[str, str] = {}

    def lets_preempt(self, own: bool) -> bool:
        """Report whether room is made for a member: as the group says, else as the member does (`own`).

        Source: resolvePreemptionPolicy in kube-scheduler's framework/preemption.
        """
        return self.preemption_policy != "Never" if self.preemption_policy else own


@dataclass(frozen=True, slots=True)
class Membership:
    """What a pod's groups mean for it.

    `unit`: the highest ancestor that is disrupted whole, None where the pod may go alone. `priority`: of the
    highest ancestor. `unknown`: why it is not known what goes with the pod; it stays then.
    """

    unit: GroupKey | None = None
    priority: int | None = None
    unknown: str = ""


def group_record(group: PodGroup, *, composite: bool = False) -> GroupRecord:
    """Take what is kept from a group, of whichever version."""
    metadata, spec = group.metadata, group.spec
    gang = spec.scheduling_policy.gang if spec.scheduling_policy is not None else None
    return GroupRecord(
        key=GroupKey(metadata.namespace, metadata.name, composite),
        uid=metadata.uid,
        parent=spec.parent_composite_pod_group_name or "",
        whole=_whole(spec.disruption_mode),
        priority=spec.priority or 0,
        min_count=0 if gang is None else gang.min_count,
        leaving=metadata.deletion_timestamp is not None,
        preemption_policy=spec.preemption_policy or "",
        labels=metadata.labels or {},
    )


def _whole(mode: Mode) -> bool:
    """Report whether a group is disrupted whole; one of a mode that is not known is."""
    if mode is None:
        return False
    if isinstance(mode, str):
        return mode not in ("", "Pod")
    return any(name != "single" and value is not None for name, value in mode.items())


def group_of(pod: Pod) -> str:
    """Return the name of the PodGroup that a pod names; empty where it names none."""
    group = pod.spec.scheduling_group
    return (group.pod_group_name or "") if group is not None else ""


def membership(key: GroupKey, find: Callable[[GroupKey], GroupRecord | None]) -> Membership:
    """Return what it means to be a member of a PodGroup. O(MOST_LEVELS).

    `find`: returns a group, None where there is none of that name in that namespace.
    """
    unit: GroupKey | None = None
    seen: list[GroupKey] = []
    while True:
        if key in seen:
            return Membership(unknown=f"the parents of {seen[0]} form a cycle")
        if len(seen) == MOST_LEVELS:
            return Membership(unknown=f"{seen[0]} has more than {MOST_LEVELS - 1} levels of parents")
        record = find(key)
        if record is None:
            parent = f", a parent of {seen[0]}," if seen else ""
            return Membership(unknown=f"{key}{parent} does not exist")
        seen.append(key)
        if record.whole:
            unit = key
        if not record.parent:
            return Membership(unit, record.priority)
        key = GroupKey(key.namespace, record.parent, composite=True)


def came_lately(bound_at: datetime | None, ordered_at: datetime) -> bool:
    """Report whether a pod was bound after an order was written, or less than `LATELY` before."""
    return bound_at is not None and bound_at >= ordered_at - LATELY
