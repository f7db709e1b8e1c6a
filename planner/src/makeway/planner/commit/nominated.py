"""What commits are judged by that is no part of a pod's record: where it is nominated to, and its version.

A record stays the same while nothing changes that a plan depends on.
"""

from __future__ import annotations

from collections.abc import Callable

from makeway.core.k8s.by_uid import ByUid
from makeway.core.k8s.disruption import is_disrupted
from makeway.core.k8s.objects import Pod


class NominatedPods(ByUid[Pod, str]):
    """To which nodes pods without a node are nominated. `tell` is called with each for which this changed."""

    def __init__(self) -> None:
        super().__init__()
        self.tell: Callable[[str], None] = lambda _: None

    def keep(self, item: Pod) -> str | None:
        """Return where a pod is nominated to."""
        return None if item.spec.node_name else item.status.nominated_node_name or None

    def changed(self, uid: str) -> None:
        """Tell of it."""
        self.tell(uid)


class PodVersions(ByUid[Pod, str]):
    """The resourceVersions of pods that have a node.

    Without those that are marked already: whose mark that is has to be read.
    """

    def keep(self, item: Pod) -> str | None:
        """Return a pod's version."""
        return item.metadata.resource_version if item.spec.node_name and not is_disrupted(item) else None
