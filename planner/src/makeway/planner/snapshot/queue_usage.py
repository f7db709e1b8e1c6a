"""Which pods are in which queue, and what they hold: the tree in force, kept up with the pods.

Owned by the snapshot. Pure state; a pod event costs O(depth of the tree).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from makeway.core.index import Index
from makeway.core.k8s.queue_labels import asked_for
from makeway.core.queues.placement import place
from makeway.core.queues.tree import Queue, QueueTree
from makeway.core.queues.usage import Usage
from makeway.core.queues.victims import Members, Surplus
from makeway.core.unit import NO_QUEUE, Unit
from makeway.planner.snapshot.pod_groups import PodGroups, WholeGroup
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.units import UnitReader

NOWHERE = NO_QUEUE
"""The queue of a pod where there are no queues."""


class QueueUsage:
    """Bound pods by queue. Without a `tree` nothing is kept.

    `revision`: of what the tree was read from. `held`: what bound pods hold, by queue; `staying`: the same
    without those that are being deleted. `misplaced`: why a pod is not in the queue that it names, by UID,
    pending pods too. Pods that are being deleted are counted in `held` alone. `source`: the object that it
    was read from, as kind, namespace and name, where it is one.
    """

    def __init__(self, units: UnitReader, groups: PodGroups) -> None:
        self._units = units
        units.queue_of = self.leaf_of
        self._groups = groups
        self.source: tuple[str, str, str] | None = None
        self.tree: QueueTree | None = None
        self.revision = ""
        self.held: Usage | None = None
        self.staying: Usage | None = None
        self.misplaced: dict[str, str] = {}
        self._leaves: dict[str, int] = {}
        self._pods = Index[int, str, PodRecord]()

    # ---------------------------------------------------------------------------------- reading

    def queue_of(self, pod: PodRecord) -> Queue | None:
        """Return the queue that a pod counts in, or would; None where there are no queues."""
        return None if self.tree is None else place(self.tree, pod.facts.queue, pod.namespace).queue

    def path_of(self, pod: PodRecord) -> str:
        """Return the path of a pod's queue, for people; empty where there are no queues."""
        queue = self.queue_of(pod)
        return "" if queue is None else queue.path

    def labelled_path_of(self, pod: PodRecord) -> str:
        """Return the path of the queue that a pod's label names now, whichever it was placed in."""
        if self.tree is None:
            return ""
        return place(self.tree, asked_for(pod.labels), pod.namespace).queue.path

    def number_of(self, pod: PodRecord) -> int:
        """Return the number of a pod's queue; NOWHERE where there are no queues. A bound pod's is known."""
        if (leaf := self._leaves.get(pod.uid)) is not None:
            return leaf
        queue = self.queue_of(pod)
        return NOWHERE if queue is None else queue.number

    def without(self, leaving: Collection[str]) -> tuple[Usage, Members]:
        """Return usage and pods as they will be when these pods, and those being deleted, have left.

        O(queues + pods that leave). The usage is a copy, the pods are live. Raises ValueError where there
        are no queues.
        """
        if self.staying is None:
            raise ValueError("there are no queues")
        usage = self.staying.copy()
        for uid in leaving:
            pod = self._bound(uid)
            if pod is not None and not pod.terminating:
                usage.remove(self._leaves[uid], pod.requests)

        whole: dict[int, Unit | None] = {}

        def members(leaf: int) -> Iterable[Unit]:
            return self._going(leaf, [*self._pods.of(leaf)], leaving, whole)

        return usage, members

    def surplus(self, leaving: Collection[str]) -> Surplus:
        """Return what tells how many pods of a gang may go without breaking it, once these pods have left."""
        fewer = self._groups.losing(map(self._bound, leaving))
        by_gang = {str(self._groups.by_number(number).key): lost for number, lost in fewer.items()}
        return lambda gang: self._units.surplus(gang) - by_gang.get(gang, 0)

    def leaf_of(self, uid: str) -> int:
        """Return the number of the queue that a bound pod counts in; NOWHERE where it is in none."""
        return self._leaves.get(uid, NOWHERE)

    def staying_in(self, queue: Queue) -> Iterator[PodRecord]:
        """Return the bound pods in and below a queue that are not being deleted. O(bound pods)."""
        for number in range(queue.number, queue.below):
            yield from (pod for pod in self._pods.of(number).values() if not pod.terminating)

    def record(self, uid: str) -> PodRecord:
        """Return a bound pod; KeyError where it is not known."""
        return self._pods[self._leaves[uid]][uid]

    def __contains__(self, uid: str) -> bool:
        """Report whether a bound pod is counted."""
        return uid in self._leaves

    def members_of(self, uids: Iterable[str]) -> dict[int, list[Unit]]:
        """Return those of some pods that are counted and not being deleted, as units, by queue.

        A group that goes whole is left out where not all of its pods are among them.
        """
        chosen = set(uids)
        by_leaf: defaultdict[int, list[str]] = defaultdict(list)
        for uid in chosen:
            if (leaf := self.leaf_of(uid)) != NOWHERE:
                by_leaf[leaf].append(uid)
        whole: dict[int, Unit | None] = {}
        return {
            leaf: [one for one in self._going(leaf, there, (), whole) if chosen.issuperset(one.uids)]
            for leaf, there in by_leaf.items()
        }

    def _bound(self, uid: str) -> PodRecord | None:
        return self.record(uid) if uid in self._leaves else None

    def _going(
        self, leaf: int, uids: Iterable[str], leaving: Collection[str], whole: dict[int, Unit | None]
    ) -> Iterator[Unit]:
        """Yield the units of some pods of a leaf, each once, as they are when they are yielded.

        Not of pods that are being deleted. `whole`: units of several pods that were met before, by number;
        None where all of their pods leave.
        """
        met: set[int] = set()
        for uid in uids:
            pod = self._pods.of(leaf).get(uid)
            if pod is None or pod.terminating or uid in leaving:
                continue
            group = self._groups.unit_of_pod(pod)
            if group is None:
                yield self._units.of(pod)
            elif group.number not in met:
                met.add(group.number)
                if group.number not in whole:
                    whole[group.number] = self._whole(group, leaving)
                if (together := whole[group.number]) is not None:
                    yield together

    def _whole(self, group: WholeGroup, leaving: Collection[str]) -> Unit | None:
        """Return the pods of a group that goes whole, without those that are being deleted. O(its pods)."""
        staying = [pod for pod in group.members() if not pod.terminating]
        left = [pod for pod in staying if pod.uid not in leaving]
        if not left:
            return None
        kept = f"{group.key} is evicted whole or not at all, and a part of it is leaving"
        return self._units.of_group(group, left, kept="" if len(left) == len(staying) else kept)

    # --------------------------------------------------------------------------------- changing

    def adopt(self, tree: QueueTree | None, revision: str) -> None:
        """Put a tree in force, in which no pod is placed yet. O(queues + pods of the tree before)."""
        self.tree, self.revision = tree, revision
        self.held = self.staying = None
        if tree is not None:
            self.held, self.staying = Usage(tree), Usage(tree)
        self._leaves, self._pods = {}, Index()
        self.misplaced.clear()

    def discard(self, pod: PodRecord) -> None:
        """Count a pod no longer."""
        if self.misplaced:
            self.misplaced.pop(pod.uid, None)
        leaf = self._leaves.pop(pod.uid, None)
        if leaf is not None and self.held is not None and self.staying is not None:
            self._pods.discard(leaf, pod.uid)
            self.held.remove(leaf, pod.requests)
            if not pod.terminating:
                self.staying.remove(leaf, pod.requests)

    def place(self, pod: PodRecord) -> None:
        """Count a pod in the queue where it belongs, if it is not counted yet."""
        if self.tree is None or self.held is None or self.staying is None or pod.uid in self._leaves:
            return
        found = place(self.tree, pod.facts.queue, pod.namespace)
        if found.warning:
            self.misplaced[pod.uid] = found.warning
        if not pod.node:
            return
        leaf = found.queue.number
        self._leaves[pod.uid] = leaf
        self._pods.put(leaf, pod.uid, pod)
        self.held.add(leaf, pod.requests)
        if not pod.terminating:
            self.staying.add(leaf, pod.requests)
