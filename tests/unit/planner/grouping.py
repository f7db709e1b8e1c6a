"""Pod groups in snapshots."""

import msgspec

from makeway.core.k8s.pod_groups import GroupKey, GroupRecord
from makeway.planner.snapshot.changes import KnowPodGroups, PutPod, PutPodGroup
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot


def pod_group(
    name: str,
    *,
    whole: bool = True,
    priority: int = 0,
    parent: str = "",
    min_count: int = 0,
    composite: bool = False,
    uid: str = "",
) -> GroupRecord:
    """A group of namespace `default`; by default one that goes whole."""
    return GroupRecord(
        key=GroupKey("default", name, composite),
        uid=uid or name,
        whole=whole,
        priority=priority,
        parent=parent,
        min_count=min_count,
    )


def put_group(snapshot: Snapshot, group: GroupRecord, *members: PodRecord) -> None:
    """Put a group where groups are followed, and pods that become members of it."""
    snapshot.apply(KnowPodGroups(True, True, True))
    snapshot.apply(PutPodGroup(group))
    for pod in members:
        snapshot.apply(PutPod(msgspec.structs.replace(pod, group=group.key.name)))
