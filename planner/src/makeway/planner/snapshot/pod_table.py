"""Pods by UID and by name, with all that is kept of each: numbers, budgets, exemption, group, unit, queue.

Changed only by the snapshot that owns it. A pod event costs O(slots of its node + budgets of its namespace).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from makeway.core.index import Index
from makeway.core.recent import Recent
from makeway.planner.snapshot.budgets import NO_BUDGETS, BudgetTable, Key
from makeway.planner.snapshot.columns import BASE_RESOURCES, SIGNATURE, PodCell
from makeway.planner.snapshot.daemonsets import DaemonSetIndex
from makeway.planner.snapshot.exemptions import Exemptions
from makeway.planner.snapshot.node_table import NodeTable
from makeway.planner.snapshot.owner_index import OwnerIndex
from makeway.planner.snapshot.pod_groups import NO_GROUP, PodGroups
from makeway.planner.snapshot.queue_usage import QueueUsage
from makeway.planner.snapshot.records import LARGEST_LASTING, Departure, PodRecord
from makeway.planner.snapshot.signatures.table import SignatureTable
from makeway.planner.snapshot.units import UnitReader

REMEMBERED_DEPARTURES: Final = 4096
"""How many pods that are gone are remembered, for budgets whose status does not show it yet."""

_ALWAYS_COUNTED = frozenset(BASE_RESOURCES)


class PodTable:
    """Pods, and the tables that count them. `by_uid`: all; bound ones have a slot of their node too.

    `exclusive_claims`: namespace and name of each claim that only one pod may use. `departures`: pods that
    left, or began to, by UID. `enter_again` to `recount` work out anew what another table says of a pod that
    is still there.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self.by_uid: dict[str, PodRecord] = {}
        self.departures = Recent[str, Departure](REMEMBERED_DEPARTURES)
        self.budgets = BudgetTable()
        self.exemptions = Exemptions()
        self.owners = OwnerIndex()
        self.daemonsets = DaemonSetIndex()
        self.groups = PodGroups()
        self.units = UnitReader(
            self.exemptions, self.owners, self.daemonsets, self.groups, budget_set=self.budget_set
        )
        self.queues = QueueUsage(self.units, self.groups)
        self.exemptions.path_of = self.queues.labelled_path_of
        self.exemptions.facts_of = self.daemonsets.facts_of
        self.exclusive_claims: set[Key] = set()
        self.claim_users = Index[Key, str, None]()
        self.signatures = SignatureTable(self.exclusive_claims)
        self._uids = Index[str, str, str]()
        self._budget_sets: dict[str, int] = {}
        self._signatures: dict[str, int] = {}
        self._restored: dict[str, tuple[int, int]] = {}  # signature and set of budgets

    # ---------------------------------------------------------------------------------- reading

    def named(self, namespace: str) -> Mapping[str, str]:
        """Return the UIDs of the pods of a namespace, by name."""
        return self._uids.of(namespace)

    def budget_set(self, uid: str) -> int:
        """Return the number of the set of budgets that cover a pod."""
        restored = self._restored.get(uid)
        return self._budget_sets.get(uid, NO_BUDGETS) if restored is None else restored[1]

    def signature(self, uid: str) -> int:
        """Return the number of a pod's signature. Raises KeyError where the pod is not known."""
        known = self._signatures.get(uid)
        return self._restored[uid][0] if known is None else known

    def cell_of(self, pod: PodRecord, group: int) -> PodCell:
        """Return what the columns hold of a pod of a group. Raises KeyError where the pod is not known."""
        known = self.exemptions
        numbers = self.budget_set(pod.uid), self.signature(pod.uid), known.exemption_of(pod), group
        return PodCell(pod.priority, pod.start_micros, *numbers, known.work_of(pod), known.rule_bits(pod))

    def _cell(self, pod: PodRecord) -> PodCell:
        return self.cell_of(pod, self.groups.number_of(pod))

    @contextmanager
    def restoring(self, pods: Iterable[PodRecord]) -> Iterator[None]:
        """Keep numbers for pods that have left, for plans that restore them; nothing else counts them.

        One at a time. O(pods · budgets of their namespaces).
        """
        for pod in pods:
            if pod.uid not in self.by_uid and pod.uid not in self._restored:
                members = self.budgets.covering(pod.namespace, pod.name, pod.labels)
                self._restored[pod.uid] = (
                    self.signatures.acquire(pod.signature),
                    self.budgets.acquire(members, pod.health),
                )
        try:
            yield
        finally:
            for signature, budgets in self._restored.values():
                self.signatures.release(signature)
                self.budgets.release(budgets)
            self._restored.clear()

    # --------------------------------------------------------------------------- coming and going

    def put(self, pod: PodRecord) -> None:
        """Add a pod or put its new version in its place. No other pod has its name."""
        uid = pod.uid
        before = self.by_uid.get(uid)
        if before is not None and before.node and before.facts.queue != pod.facts.queue:
            # The queue of a pod is fixed when it is placed: a label that is changed later frees no quota.
            queue = before.facts.queue
            signature = replace(pod.signature, queue=queue)
            pod = replace(pod, facts=replace(pod.facts, queue=queue), signature=signature)
        pod = self.groups.entered(pod)
        if before == pod:
            return
        if self.named(pod.namespace).get(pod.name) != uid:
            if before is not None:
                self._uids.discard(before.namespace, before.name)
            self._uids.put(pod.namespace, pod.name, uid)
        if before is not None and before.node == pod.node and before.importance == pod.importance:
            self._exchange(before, pod)
        else:
            if before is not None:
                self._take_out(before)
            self._nodes.revision += 1
            self._put_in(pod)
        if pod.terminating and (before is None or not before.terminating):
            self.remember(pod, self._nodes.revision)
        self.by_uid[uid] = pod

    def remove(self, uid: str) -> None:
        """Forget a pod."""
        pod = self.by_uid.pop(uid, None)
        if pod is None:
            return
        self._take_out(pod)
        self._nodes.revision += 1
        self.remember(pod, self._nodes.revision)
        self._uids.discard(pod.namespace, pod.name)

    def remember(self, pod: PodRecord, revision: int) -> None:
        """Remember a pod that has left, or begun to, as it was seen at a revision; none that is large."""
        if pod.size <= LARGEST_LASTING:
            self.departures.setdefault(pod.uid, Departure(pod, revision))

    def enter_node(self, name: str, row: int) -> None:
        """Enter the pods that were bound to a node before it was there. O(pods · log pods)."""
        pods = sorted(self._nodes.without_node.take(name), key=lambda pod: pod.importance)
        touched = self.groups.settle(pods, row)
        for pod in pods:
            self._nodes.insert(row, pod, self._cell(pod))
        self._moved(pods, touched)

    def leave_node(self, name: str) -> None:
        """Forget a node; its pods are kept without it. O(pods)."""
        row = self._nodes.rows.get(name)
        if row is None:
            return
        pods = self._nodes.slots[row]
        touched = self.groups.settle(pods, row, -1)
        self._nodes.drop(name)
        self._moved(pods, touched)

    def _moved(self, pods: Collection[PodRecord], touched: Iterable[int]) -> None:
        """Note that pods have come into the columns, or have left them, with their node."""
        self.exemptions.terminating_version += any(pod.terminating for pod in pods)
        self._nodes.touch(touched)

    def _put_in(self, pod: PodRecord) -> None:
        self._count_in(pod)
        row = self._nodes.rows.get(pod.node)
        group = self.groups.join(pod, row)
        if row is not None:
            self._nodes.insert(row, pod, self.cell_of(pod, group))
        elif pod.node:
            self._nodes.without_node.put(pod)
        if pod.group and pod.node:
            self._nodes.touch(self.groups.touched_by(pod))

    def _take_out(self, pod: PodRecord) -> None:
        self._count_out(pod)
        row = self._nodes.rows.get(pod.node)
        if pod.group:
            if pod.node:
                self._nodes.touch(self.groups.touched_by(pod))
            self.groups.leave(pod, row)
        if row is not None:
            self._nodes.remove(row, pod)
        elif pod.node:
            self._nodes.without_node.discard(pod)

    def _exchange(self, before: PodRecord, pod: PodRecord) -> None:
        """Put a pod's new version into the slot of the one before, whose place it takes.

        Nodes are not marked for a save of its work that no kept plan looks at.
        """
        marks = self.exemptions.policy.lost_work.rank != "off" or not _only_saved(before, pod)
        self._count_out(before)
        self._nodes.revision += 1
        self._count_in(pod)
        row, group = self._nodes.rows.get(pod.node), NO_GROUP
        if before.group or pod.group:
            touched = self.groups.touched_by(before)
            self.groups.leave(before, row)
            group = self.groups.join(pod, row)
            self._nodes.touch((*touched, *self.groups.touched_by(pod)) if pod.node and marks else ())
        if row is not None:
            self._nodes.replace(row, pod, self.cell_of(pod, group), marks=marks)
        elif pod.node:
            self._nodes.without_node.put(pod)

    def _count_in(self, pod: PodRecord) -> None:
        """Enter a pod everywhere but in the columns."""
        self._signatures[pod.uid] = self.signatures.acquire(pod.signature)
        for name in pod.signature.claims:
            self.claim_users.put((pod.namespace, name), pod.uid, None)
        budgets = self.budgets.acquire(self.budgets.covering(pod.namespace, pod.name, pod.labels), pod.health)
        if budgets != NO_BUDGETS:
            self._budget_sets[pod.uid] = budgets
        self.exemptions.add(pod)
        self.daemonsets.add(pod)
        self.owners.add(pod)
        self.queues.place(pod)

    def _count_out(self, pod: PodRecord) -> None:
        self.signatures.release(self._signatures.pop(pod.uid))
        for name in pod.signature.claims:
            self.claim_users.discard((pod.namespace, name), pod.uid)
        self.budgets.release(self._budget_sets.pop(pod.uid, NO_BUDGETS))
        self.exemptions.discard(pod)
        self.daemonsets.discard(pod)
        self.queues.discard(pod)
        self.owners.discard(pod)

    # ------------------------------------------------------------------------ of one pod, anew

    def enter_again(self, uid: str) -> None:
        """Enter a pod at the priority that its groups have now, and in its group."""
        pod = self.by_uid.get(uid)
        if pod is None or not pod.group:
            return
        self._take_out(pod)
        self._nodes.revision += 1
        pod = self.by_uid[uid] = self.groups.entered(pod)
        self._put_in(pod)

    def sign(self, uid: str) -> None:
        """Enter a pod by the labels and claims that are asked for now."""
        pod = self.by_uid.get(uid)
        if pod is None:
            return
        before = self._signatures[uid]
        number = self._signatures[uid] = self.signatures.acquire(pod.signature)
        self.signatures.release(before)
        if number != before:
            self._renew(pod)

    def match(self, uid: str) -> None:
        """Enter a pod under the budgets that cover it now."""
        pod = self.by_uid.get(uid)
        if pod is None:
            return
        held = self.budget_set(uid)
        covering = self.budgets.covering(pod.namespace, pod.name, pod.labels)
        changed = self.budgets.exchange(held, covering, pod.health)
        if changed == held:
            return
        if changed == NO_BUDGETS:
            del self._budget_sets[uid]
        else:
            self._budget_sets[uid] = changed
        self._renew(pod)
        if pod.node:
            self._nodes.touch(self.groups.touched_by(pod))

    def exempt(self, uid: str) -> None:
        """Work out a pod's exemption and work, and mark its node where they differ."""
        pod = self.by_uid.get(uid)
        if pod is None or not pod.node:
            return
        if self._renew(pod) or pod.node not in self._nodes.rows:
            self._nodes.touch(self.groups.touched_by(pod))

    def enqueue(self, uid: str) -> None:
        """Count a pod in the queues in force."""
        if (pod := self.by_uid.get(uid)) is not None:
            self.queues.place(pod)

    def recount(self, uid: str) -> None:
        """Count what a pod requests of resources that have a layer now, and mark its node."""
        pod = self.by_uid.get(uid)
        if pod is not None and not pod.requests.keys() <= _ALWAYS_COUNTED:
            self._renew(pod)

    def _renew(self, pod: PodRecord) -> bool:
        """Put down anew what the columns hold of a pod.

        Report whether a plan on its node may be another, and mark the node then.
        """
        place = self._nodes.place_of(pod)
        if place is None:
            return False
        differs = self._nodes.columns.replace(*place, self._cell(pod))
        differs[SIGNATURE] = False
        if not differs.any():
            return False
        self._nodes.touch(place[:1])
        return True


def _only_saved(before: PodRecord, pod: PodRecord) -> bool:
    """Report whether a version of a pod differs from the one before by when it last saved its work alone."""
    saved = before.facts.checkpointed_micros
    if saved == pod.facts.checkpointed_micros:
        return False
    return before == replace(pod, facts=replace(pod.facts, checkpointed_micros=saved))
