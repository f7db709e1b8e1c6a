"""What quota orders, and what queues take back, are held to: the queues as this evictor has read them itself.

A quota order names a queue and victims, and no object in the cluster says that they belong together, as a
nomination does for a preemptor. So the evictor reads queues.yaml as the planner does, and refuses every
quota order while it has none that is as the API server has it now. Of a file that is gone or refused the
last good one stays in force for the planner, so that limits do not vanish; here it is not enough, since
without orders of quotas nothing is lost but time.

What queues use is not known here: whether a queue is below its guarantee, and another above its own, is the
planner's word. That the file lets the one take back from the other is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Final

from makeway.bus.messages import EvictionOrder
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.queue_labels import asked_for
from makeway.core.k8s.requests import KnownRequests, pod_requests
from makeway.core.policy.facts import PodFacts
from makeway.core.queues.amounts import NO_AMOUNTS, Amounts
from makeway.core.queues.parsing import Queues
from makeway.core.queues.placement import place
from makeway.core.queues.queue_exempt import is_queue_exempt
from makeway.core.queues.quota_exemption import QuotaExemption
from makeway.core.queues.quota_order import bar_of, unenforced
from makeway.core.queues.reclaim import reclaims
from makeway.core.queues.tree import Queue, QueueTree
from makeway.evictor.judge.verdicts import Refused
from makeway.runtime.config import Config

NO_QUEUES: Final = "there is no configuration of queues"


@dataclass(frozen=True, slots=True)
class QueueClaim:
    """What all pods that preempt request, and the queues that they name, each with its namespace."""

    named: frozenset[tuple[str, str]]
    asked: Amounts


def claim_of(preemptors: Iterable[Pod]) -> QueueClaim:
    """Return what some pods claim; nothing where what one requests cannot be read. O(pods)."""
    known, asked, named = KnownRequests(), Counter[str](), set[tuple[str, str]]()
    try:
        for one in preemptors:
            asked.update(known.of(one, placed=True))
            named.add((asked_for(one.metadata.labels or {}), one.metadata.namespace))
    except QuantityError:
        return QueueClaim(frozenset(), NO_AMOUNTS)
    return QueueClaim(frozenset(named), asked)


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

    def reclaims(self) -> bool:
        """Report whether queues take anything back, by the configuration as it is now."""
        tree = self._tree()
        return not isinstance(tree, str) and tree.reclaim

    def reclaimed(self, claim: QueueClaim, priority: int, pod: Pod, victim: PodFacts) -> str:
        """Return what the queue of the pods that preempt takes back with another; empty where nothing.

        At the most, were none of its guarantee in use. `priority`: theirs; `victim`: the other's facts, with
        its groups' priority. O(queues).
        """
        tree = self._tree()
        if isinstance(tree, str) or not victim.is_reclaimable:
            return ""
        if is_queue_exempt(victim.namespace, victim.priority, self._exempt_namespaces()):
            return ""
        try:
            requests = pod_requests(pod, placed=True)
        except QuantityError:
            return ""
        leaves = {place(tree, named, namespace).queue.number for named, namespace in claim.named}
        path, held = _queue_of(tree, pod).path, _nothing_held
        found = reclaims(tree, min(leaves), claim.asked, priority, held) if len(leaves) == 1 else ()
        return next(filter(None, (one.with_pod(path, victim.priority, requests) for one in found)), "")

    def unknown(self) -> str:
        """Return why it is not known in which queue a pod is; empty where it is, or where there are none."""
        tree = self._tree()
        known = self._queues.current is not None or tree == NO_QUEUES
        return "" if known or not isinstance(tree, str) else tree

    def path_of(self, pod: Pod) -> str:
        """Return the path of a pod's queue, by the last queues that were accepted; empty without any."""
        queues = self._queues.current
        return "" if queues is None else _queue_of(queues.tree, pod).path

    def _tree(self) -> QueueTree | str:
        """Return the tree that is in force, or why there is none to judge by."""
        if unsynced := self._queues.unsynced():
            return self._trouble() or unsynced
        verdict, queues = self._queues.verdict, self._queues.current
        if verdict is not None and verdict.result != "accepted":
            return f"the queues as they are now are {verdict.result}: {verdict.message}"
        return NO_QUEUES if queues is None else queues.tree


def _queue_of(tree: QueueTree, pod: Pod) -> Queue:
    """Return the queue that a pod's label names now, or where pods without one are."""
    return place(tree, asked_for(pod.metadata.labels or {}), pod.metadata.namespace).queue


def _nothing_held(_: int) -> Amounts:
    return NO_AMOUNTS
