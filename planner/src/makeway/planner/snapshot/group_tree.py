"""PodGroups and CompositePodGroups as they were read, each with those below it. Pure state."""

from __future__ import annotations

from makeway.core.k8s.pod_groups import GroupKey, GroupRecord


class GroupTree:
    """All groups that were read. `records`: by key."""

    def __init__(self) -> None:
        self.records: dict[GroupKey, GroupRecord] = {}
        self._children: dict[GroupKey, set[GroupKey]] = {}

    def put(self, record: GroupRecord) -> list[str]:
        """Add a group or change it; return the PodGroups at or below it, by namespace/name."""
        self._unlink(self.records.get(record.key))
        self.records[record.key] = record
        if record.parent:
            parent = GroupKey(record.key.namespace, record.parent, composite=True)
            self._children.setdefault(parent, set()).add(record.key)
        return self._below(record.key)

    def remove(self, key: GroupKey) -> list[str]:
        """Forget a group; return the PodGroups at or below it."""
        below = self._below(key)
        self._unlink(self.records.pop(key, None))
        return below

    def _unlink(self, record: GroupRecord | None) -> None:
        if record is None or not record.parent:
            return
        parent = GroupKey(record.key.namespace, record.parent, composite=True)
        children = self._children[parent]
        children.discard(record.key)
        if not children:
            del self._children[parent]

    def _below(self, key: GroupKey) -> list[str]:
        """Return the PodGroups at or below a group, each once, cycle or not."""
        found, seen, left = [], {key}, [key]
        while left:
            one = left.pop()
            if not one.composite:
                found.append(f"{one.namespace}/{one.name}")
            more = self._children.get(one, set()) - seen
            seen |= more
            left += more
        return found
