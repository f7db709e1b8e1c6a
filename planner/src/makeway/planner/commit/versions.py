"""The resourceVersions of running pods.

They are no part of a pod's record, which stays the same while nothing changes that a plan depends on.
"""

from __future__ import annotations

from makeway.core.k8s.disruption import is_disrupted
from makeway.core.k8s.objects import Pod


class PodVersions:
    """A handler of the pods' list-watch. O(1) a change.

    `by_uid`: of pods that have a node, but those that are marked already: whose mark that is has to be read.
    """

    def __init__(self) -> None:
        self.by_uid: dict[str, str] = {}

    def put(self, item: Pod) -> None:
        """Note a pod's version."""
        if item.spec.node_name and not is_disrupted(item):
            self.by_uid[item.metadata.uid] = item.metadata.resource_version
        else:
            self.by_uid.pop(item.metadata.uid, None)

    def drop(self, item: Pod) -> None:
        """Forget a pod that is gone."""
        self.by_uid.pop(item.metadata.uid, None)

    def retain(self, uids: set[str]) -> None:
        """Forget pods that a complete list does not have."""
        for uid in self.by_uid.keys() - uids:
            del self.by_uid[uid]
