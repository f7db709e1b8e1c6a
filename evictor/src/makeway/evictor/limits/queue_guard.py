"""What quota orders are held to: the queues as this evictor has read them itself.

A quota order names a queue and victims, and no object in the cluster says that they belong together, as a
nomination does for a preemptor. So the evictor reads queues.yaml as the planner does, and refuses every
quota order while it has none that is as the API server has it now. Of a file that is gone or refused the
last good one stays in force for the planner, so that limits do not vanish; here it is not enough, since
without orders of quotas nothing is lost but time.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Final

from makeway.bus.messages import EvictionOrder
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.queue_labels import asked_for
from makeway.core.queues.parsing import Queues
from makeway.core.queues.placement import place
from makeway.core.queues.quota_exemption import QuotaExemption
from makeway.core.queues.quota_order import bar_of, unenforced
from makeway.core.queues.tree import QueueTree
from makeway.evictor.judge.verdicts import Refused
from makeway.runtime.config import Config

NO_QUEUES: Final = "there is no configuration of queues"


class QueueGuard:
    """One evictor's. Nothing of it awaits.

    `queues`: as they are read; `trouble()`: what stands in the way of reading them again, empty where nothing
    does. `exempt_namespaces()`: whose pods no queue holds.
    """

    def __init__(
        self,
        queues: Config[Queues | None],
        trouble: Callable[[], str],
        exempt_namespaces: Callable[[], Set[str]],
    ) -> None:
        self._queues = queues
        self._trouble = trouble
        self._exempt_namespaces = exempt_namespaces

    def stale(self) -> str:
        """Return why the queues, which have been read, may be others by now; empty where they are not."""
        return "" if self._queues.unsynced() else self._trouble()

    def refusal_of(self, order: EvictionOrder) -> Refused | None:
        """Return why no pod may go for a quota order now; None where nothing is against it."""
        tree = self._tree()
        if isinstance(tree, str):
            return Refused("queues-not-read", tree)
        if why := unenforced(tree, order.queue):
            return Refused("quota-not-enforced", f"no pod is evicted for the quota of {order.queue}: {why}")
        return None

    def bar_of(self, order: EvictionOrder, pod: Pod) -> QuotaExemption | None:
        """Return what keeps a victim of a quota order that `refusal_of` has let pass."""
        tree = self._tree()
        if isinstance(tree, str):
            return QuotaExemption("queues-not-read", tree)
        return bar_of(tree, order.queue, pod, self._exempt_namespaces())

    def unknown(self) -> str:
        """Return why it is not known in which queue a pod is; empty where it is, or where there are none."""
        tree = self._tree()
        known = self._queues.current is not None or tree == NO_QUEUES
        return "" if known or not isinstance(tree, str) else tree

    def path_of(self, pod: Pod) -> str:
        """Return the path of a pod's queue, by the last queues that were accepted; empty without any."""
        queues = self._queues.current
        if queues is None:
            return ""
        return place(queues.tree, asked_for(pod.metadata.labels or {}), pod.metadata.namespace).queue.path

    def _tree(self) -> QueueTree | str:
        """Return the tree that is in force, or why there is none to judge by."""
        if unsynced := self._queues.unsynced():
            return self._trouble() or unsynced
        verdict, queues = self._queues.verdict, self._queues.current
        if verdict is not None and verdict.result != "accepted":
            return f"the queues as they are now are {verdict.result}: {verdict.message}"
        return NO_QUEUES if queues is None else queues.tree
