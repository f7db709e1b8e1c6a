"""Which pods are nominated to which nodes, as the planner's own watch shows them."""

from __future__ import annotations

from collections.abc import Callable

from makeway.core.k8s.objects import Pod


class NominatedPods:
    """Follows the nominations of pods without a node; a handler of the pods' list-watch. O(1) a change.

    `nodes`: by UID, where the pod is nominated to. `changed` is called with the UID of a pod
    for which this has changed.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self.changed: Callable[[str], None] = lambda _: None

    def put(self, item: Pod) -> None:
        """Note where a pod is nominated to."""
        uid, node = item.metadata.uid, item.status.nominated_node_name or ""
        if not node or item.spec.node_name:
            self._forget(uid)
        elif self.nodes.get(uid) != node:
            self.nodes[uid] = node
            self.changed(uid)

    def drop(self, item: Pod) -> None:
        """Forget a pod that is gone."""
        self._forget(item.metadata.uid)

    def retain(self, uids: set[str]) -> None:
        """Forget pods that a complete list does not have."""
        for uid in self.nodes.keys() - uids:
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        if self.nodes.pop(uid, None) is not None:
            self.changed(uid)
