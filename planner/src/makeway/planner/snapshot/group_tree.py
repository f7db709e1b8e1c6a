"""PodGroups and CompositePodGroups as they were read, each with those below it. Pure state."""

from __future__ import annotations

from makeway.core.index import Index
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord


class GroupTree:
    """All groups that were read. `records`: by key."""

    def __init__(self) -> None:
        self.records: dict[GroupKey, GroupRecord] = {}
        self._children = Index[GroupKey, GroupKey, None]()

    def put(self, record: GroupRecord) -> list[str]:
        """Add a group or change it; return the PodGroups at or below it, by namespace/name."""
        self._unlink(self.records.get(record.key))
        self.records[record.key] = record
        if record.parent:
            self._children.put(_parent(record), record.key, None)
        return self._below(record.key)

    def remove(self, key: GroupKey) -> list[str]:
        """Forget a group; return the PodGroups at or below it."""
        below = self._below(key)
        self._unlink(self.records.pop(key, None))
        return below

    def _unlink(self, record: GroupRecord | None) -> None:
        if record is not None and record.parent:
            self._children.discard(_parent(record), record.key)

    def _below(self, key: GroupKey) -> list[str]:
        """Return the PodGroups at or below a group, each once, cycle or not."""
        found, seen, left = [], {key}, [key]
        while left:
            one = left.pop()
            if not one.composite:
                found.append(f"{one.namespace}/{one.name}")
            more = self._children.of(one).keys() - seen
            seen |= more
            left += more
        return found


def _parent(record: GroupRecord) -> GroupKey:
    return GroupKey(record.key.namespace, record.parent, composite=True)
