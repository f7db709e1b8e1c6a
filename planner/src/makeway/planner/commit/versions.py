"""The resourceVersions of running pods.

They are no part of a pod's record, which stays the same while nothing changes that a plan depends on.
"""

from __future__ import annotations

from makeway.core.k8s.objects import Pod


class PodVersions:
    """A handler of the pods' list-watch. `by_uid`: of pods that have a node. O(1) a change."""

    def __init__(self) -> None:
        self.by_uid: dict[str, str] = {}

    def put(self, item: Pod) -> None:
        """Note a pod's version."""
        if item.spec.node_name:
            self.by_uid[item.metadata.uid] = item.metadata.resource_version

    def drop(self, item: Pod) -> None:
        """Forget a pod that is gone."""
        self.by_uid.pop(item.metadata.uid, None)

    def retain(self, uids: set[str]) -> None:
        """Forget pods that a complete list does not have."""
        for uid in self.by_uid.keys() - uids:
            del self.by_uid[uid]
