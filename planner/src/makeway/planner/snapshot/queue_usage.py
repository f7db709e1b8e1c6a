"""Which pods are in which queue, and what they hold: the tree in force, kept up with the pods.

Owned by the snapshot. Pure state; a pod event costs O(depth of the tree).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from makeway.core.policy.facts import opts_out
from makeway.core.queues.placement import place
from makeway.core.queues.quota_exemption import quota_exemption_of
from makeway.core.queues.tree import Queue, QueueTree
from makeway.core.queues.usage import Usage
from makeway.core.queues.victims import Member, Members
from makeway.planner.snapshot.daemonsets import DaemonSetIndex
from makeway.planner.snapshot.exemptions import Exemptions
from makeway.planner.snapshot.owner_index import OwnerIndex
from makeway.planner.snapshot.records import PodRecord

NOWHERE = -1
"""The queue of a pod where there are no queues."""


class QueueUsage:
    """Bound pods by queue. Without a `tree` nothing is kept.

    `revision`: of what the tree was read from. `held`: what bound pods hold, by queue; `staying`: the same
    without those that are being deleted. `misplaced`: why a pod is not in the queue that it names, by UID,
    pending pods too. Pods that are being deleted are counted in `held` alone. `source`: the object that it
    was read from, as kind, namespace and name, where it is one.
    """

    def __init__(
        self,
        exemptions: Exemptions,
        owners: OwnerIndex,
        daemonsets: DaemonSetIndex,
        kept_by_group: Callable[[PodRecord], str] = lambda _: "",
    ) -> None:
        self._kept_by_group = kept_by_group
        self.source: tuple[str, str, str] | None = None
        self.tree: QueueTree | None = None
        self.revision = ""
        self.held: Usage | None = None
        self.staying: Usage | None = None
        self.misplaced: dict[str, str] = {}
        self._exemptions = exemptions
        self._owners = owners
        self._daemonsets = daemonsets
        self._leaves: dict[str, int] = {}
        self._records: dict[str, PodRecord] = {}
        self._members: dict[int, dict[str, Member]] = {}

    # ---------------------------------------------------------------------------------- reading

    def queue_of(self, pod: PodRecord) -> Queue | None:
        """Return the queue that a pod counts in, or would; None where there are no queues."""
        return None if self.tree is None else place(self.tree, pod.facts.queue, pod.namespace).queue

    def path_of(self, pod: PodRecord) -> str:
        """Return the path of a pod's queue, for people; empty where there are no queues."""
        queue = self.queue_of(pod)
        return "" if queue is None else queue.path

    def number_of(self, pod: PodRecord) -> int:
        """Return the number of a pod's queue, for the columns; NOWHERE where there are no queues."""
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
            pod = self._records.get(uid)
            if pod is not None and not pod.terminating:
                usage.remove(self._leaves[uid], pod.requests)

        def members(leaf: int) -> Iterable[Member]:
            return (one for uid, one in self._members.get(leaf, {}).items() if uid not in leaving)

        return usage, members

    def record(self, uid: str) -> PodRecord:
        """Return a bound pod; KeyError where it is not known."""
        return self._records[uid]

    def __contains__(self, uid: str) -> bool:
        """Report whether a bound pod is counted."""
        return uid in self._records

    def members_of(self, uids: Iterable[str]) -> dict[int, list[Member]]:
        """Return those of some pods that are counted and not being deleted, by queue."""
        found: dict[int, list[Member]] = {}
        for uid in uids:
            leaf = self._leaves.get(uid)
            if leaf is not None and (member := self._members.get(leaf, {}).get(uid)) is not None:
                found.setdefault(leaf, []).append(member)
        return found

    # --------------------------------------------------------------------------------- changing

    def adopt(self, tree: QueueTree | None, revision: str) -> tuple[Collection[str], Callable[[str], None]]:
        """Put a tree in force, in which no pod is placed yet. O(queues).

        Returns the pods of the tree before, and what frees the memory of one of them: of all at once it
        takes long.
        """
        leaves, members = self._leaves, self._members
        self.tree, self.revision = tree, revision
        self.held = self.staying = None
        if tree is not None:
            self.held, self.staying = Usage(tree), Usage(tree)
        self._leaves, self._records, self._members = {}, {}, {}
        self.misplaced.clear()

        def free(uid: str) -> None:
            members.get(leaves[uid], {}).pop(uid, None)

        return leaves.keys(), free

    def discard(self, pod: PodRecord) -> None:
        """Count a pod no longer."""
        if self.misplaced:
            self.misplaced.pop(pod.uid, None)
        leaf = self._leaves.pop(pod.uid, None)
        if leaf is not None and self.held is not None and self.staying is not None:
            del self._records[pod.uid]
            self.held.remove(leaf, pod.requests)
            if not pod.terminating:
                self.staying.remove(leaf, pod.requests)
                del self._members[leaf][pod.uid]

    def renew(self, uid: str) -> None:
        """Look again at a pod whose class, application or protection may be another."""
        leaf = self._leaves.get(uid)
        if leaf is not None and not self._records[uid].terminating:
            self._members[leaf][uid] = self._member(self._records[uid])

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
        self._records[pod.uid] = pod
        self.held.add(leaf, pod.requests)
        if not pod.terminating:
            self.staying.add(leaf, pod.requests)
            self._members.setdefault(leaf, {})[pod.uid] = self._member(pod)

    def _member(self, pod: PodRecord) -> Member:
        facts, exemptions = pod.facts, self._exemptions
        priority_class = exemptions.classes.get(facts.priority_class)
        exemption = quota_exemption_of(self._daemonsets.facts_of(pod), exemptions.policy.protection)
        return Member(
            uid=pod.uid,
            requests=pod.requests,
            priority=facts.priority,
            originator=self._owners.is_originator(pod),
            opted_out=facts.opted_out or (priority_class is not None and opts_out(priority_class.metadata)),
            created_micros=facts.created_micros,
            exempt=self._kept_by_group(pod) if exemption is None else exemption.rule,
        )
