"""The cluster as the watch last saw it, kept in columns.

Only the watch, the configuration and what these leave to do later change it, on the event loop. A plan
reads it in between; all that it may leave behind is what it asked to be counted or told apart, and no answer
but its own depends on that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager

import numpy as np
from msgspec.structs import replace

from makeway.core.k8s.budget import Budget
from makeway.core.k8s.daemonset_owner import DaemonSetOwner
from makeway.core.k8s.objects import Namespace, PriorityClass
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord
from makeway.core.k8s.resources import is_extended
from makeway.core.policy.document import Policy
from makeway.core.queues.tree import QueueTree
from makeway.planner.snapshot import changes
from makeway.planner.snapshot.budgets import NO_BUDGETS, BudgetTable, Key
from makeway.planner.snapshot.changes import Change
from makeway.planner.snapshot.claim_users import ClaimUsers
from makeway.planner.snapshot.columns import (
    BASE_RESOURCES,
    BUDGETS,
    MOST,
    SIGNATURE,
    Columns,
    Flags,
    Ints,
    PodCell,
)
from makeway.planner.snapshot.daemonsets import DaemonSetIndex
from makeway.planner.snapshot.exemptions import Exemptions, Source
from makeway.planner.snapshot.node_resources import NodeResources
from makeway.planner.snapshot.node_rows import NodeRows, PodsWithoutNode
from makeway.planner.snapshot.owner_index import OwnerIndex
from makeway.planner.snapshot.pending_updates import PendingUpdates
from makeway.planner.snapshot.pod_groups import NO_GROUP, PodGroups
from makeway.planner.snapshot.queue_usage import QueueUsage
from makeway.planner.snapshot.records import Departure, NodeRecord, PodRecord
from makeway.planner.snapshot.signatures.label_keys import LabelKeysInUse
from makeway.planner.snapshot.signatures.table import SignatureTable
from makeway.planner.snapshot.topology import Topology
from makeway.planner.snapshot.units import UnitReader
from makeway.planner.snapshot.volumes import ClaimRecord, Volumes

REMEMBERED_DEPARTURES = 4096
"""How many pods that are gone are remembered, for budgets whose status does not show it yet."""

MOST_ASKED_RESOURCES = 32
"""Resources that have a layer because a preemptor asked for them, which takes 8 bytes a slot: 50 MiB in all
with 200,000 slots. Of others the scheduler's filters judge."""

_GROUPS_AT_ONCE = 500
"""Groups that are worked out anew without a pause: some 10 µs each."""

_ALWAYS_COUNTED = frozenset(BASE_RESOURCES)
_NO_PODS: Mapping[str, str] = {}


def _nothing(_: Change) -> None:
    """Do nothing."""


class Snapshot:
    """Nodes, pods, budgets, namespaces, priority classes and the policy in force at one `revision`.

    Bound pods are in the columns of their node. Those whose node is not there are kept `without_node`, and
    enter when it comes; what does not depend on nodes counts them all the same. Pending pods are kept by
    UID, for nominations and assumed pods. A pod event costs O(slots of its node + budgets of its namespace).
    `rows`, `names`, `slots`, `order`: as in `NodeRows`. `exclusive_claims`: namespace and name of each
    claim that only one pod may use. `groups`: which pods go together; `units`: what evicting each costs.
    `volumes`: which nodes claims leave to their pods. `daemonsets`: which pods they control. `devices`:
    extended resources that nodes may serve by dynamic allocation, None where that is not known.
    `pending_updates`: what has still to be done, where it is done in chunks (`chunk`); until then nothing
    may be planned on the snapshot. `upkeep`: the same for what plans can do without until then:
    `use_label_keys` and `count` report if they have to. `node_resources`: what nodes have, also without a
    layer. `serving`: plans are made, so that changes of budgets are left to `upkeep`; before, to
    `pending_updates`. `namespaces_changed` counts changes of namespaces. `applied` is called with each
    change that has made a difference.
    """

    def __init__(self, *, chunk: int | None = None, applied: Callable[[Change], None] = _nothing) -> None:
        self.revision = 0
        self._applied = applied
        self.pending_updates = PendingUpdates(chunk)
        self.upkeep = PendingUpdates(chunk)
        self.columns = Columns()
        self.node_resources = NodeResources()
        self._node_rows = NodeRows(self.columns.nodes)
        self.rows, self.names = self._node_rows.by_name, self._node_rows.names
        self.slots, self.order = self._node_rows.slots, self._node_rows.order
        self.without_node = PodsWithoutNode()
        self.nodes: dict[str, NodeRecord] = {}
        self.pods: dict[str, PodRecord] = {}
        self.budgets = BudgetTable()
        self.exemptions = Exemptions()
        self.owners = OwnerIndex()
        self.daemonsets = DaemonSetIndex()
        self.groups = PodGroups()
        self.units = UnitReader(
            self.exemptions,
            self.owners,
            self.daemonsets,
            self.groups,
            budget_set=self.budget_set,
        )
        self.queues = QueueUsage(self.units, self.groups)
        self.namespaces: dict[str, Namespace] = {}
        self.namespaces_changed = 0
        self.exclusive_claims: set[Key] = set()
        self.volumes = Volumes()
        self.devices: frozenset[str] | None = frozenset()
        self.signatures = SignatureTable(self.exclusive_claims)
        self.topology = Topology()
        self.departures: OrderedDict[str, Departure] = OrderedDict()
        self._budget_revisions: dict[Key, int] = {}
        self.serving = False
        self._matching: dict[str, bool] = {}
        self._budget_sets: dict[str, int] = {}
        self._signatures: dict[str, int] = {}
        self._restored: dict[str, tuple[int, int]] = {}  # signature and set of budgets
        self._claim_users = ClaimUsers()
        self._label_keys = LabelKeysInUse()
        self._asked_resources = 0
        self._counting: set[str] = set()
        self._regrouping = False
        self.signatures.use_keys(self._label_keys.keys)
        self._uids: dict[str, dict[str, str]] = {}

    # ---------------------------------------------------------------------------------- reading

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)

    @property
    def present(self) -> Flags:
        """bool[nodes], which rows are a node's."""
        return self._node_rows.present

    @property
    def changed(self) -> Ints:
        """int64[nodes], the revision that last touched the node."""
        return self._node_rows.changed

    def node_names(self) -> tuple[str, ...]:
        """Return the names of all present nodes, in order. O(1) while no node comes or goes."""
        return self._node_rows.in_order()

    def name_rank(self) -> Ints:
        """Return int64[nodes], each present node's place in the order of names."""
        return self._node_rows.rank()

    def rows_named(self, names: Iterable[str]) -> Ints:
        """Return the rows of those of the named nodes that are present, each once, in no special order."""
        return self._node_rows.named(names)

    def pods_of(self, node: str) -> Collection[PodRecord]:
        """Return the pods that are bound to a node, also where it is not there."""
        row = self.rows.get(node)
        return self.without_node.of(node) if row is None else self.slots[row]

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
        numbers = self.budget_set(pod.uid), self.signature(pod.uid), self.exemptions.exemption_of(pod), group
        return PodCell(pod.priority, pod.start_micros, *numbers, pod.requests)

    @contextmanager
    def restoring(self, pods: Iterable[PodRecord]) -> Iterator[None]:
        """Keep numbers for pods that have left, for plans that restore them; nothing else counts them.

        One at a time. O(pods · budgets of their namespaces).
        """
        for pod in pods:
            if pod.uid not in self.pods and pod.uid not in self._restored:
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

    @property
    def undecided(self) -> Set[str]:
        """The namespaces of which it is not known for all pods which disruption budgets cover them."""
        return self._matching.keys()

    @property
    def budget_revisions(self) -> Mapping[Key, int]:
        """All budgets, each with the revision at which its object was last seen to change."""
        return self._budget_revisions

    def budget_revision(self, key: Key) -> int:
        """Return the revision at which a budget's object was last seen to change."""
        return self._budget_revisions.get(key, 0)

    def uid_of(self, namespace: str, name: str) -> str | None:
        """Return the UID of the pod that has this name now."""
        return self._uids.get(namespace, {}).get(name)

    def served_by_devices(self, names: Iterable[str]) -> frozenset[str]:
        """Return those extended resources that nodes may serve by dynamic allocation, as far as is known."""
        asked = (name for name in names if is_extended(name))
        return frozenset(name for name in asked if self.devices is None or name in self.devices)

    @property
    def priority_classes(self) -> Mapping[str, PriorityClass]:
        """The PriorityClasses by name."""
        return self.exemptions.classes

    # --------------------------------------------------------------------------------- changing

    def apply(self, change: Change) -> None:
        """Take over one change, and tell `applied` of it where it made a difference.

        Each says below what it costs, besides O(1). All that changes the cluster comes this way, so that who
        takes the same changes in the same order has the same snapshot, at the same revision.
        """
        before = self.revision
        match change:
            case changes.PutPod(pod):
                self._put_pod(pod)
            case changes.RemovePod(uid):
                self._remove_pod(uid)
            case changes.PutNode(node):
                self._put_node(node)
            case changes.RemoveNode(name):
                self._remove_node(name)
            case changes.PutBudget(budget):
                self._put_budget(budget)
            case changes.RemoveBudget(key):
                self._remove_budget(key)
            case changes.PutNamespace(namespace):
                self._put_namespace(namespace)
            case changes.RemoveNamespace(name):
                self._remove_namespace(name)
            case changes.PutPriorityClass(priority_class):
                name = priority_class.metadata.name
                self._exempt_anew(f"PriorityClass {name}", self.exemptions.put_class(priority_class))
            case changes.RemovePriorityClass(name):
                self._exempt_anew(f"PriorityClass {name}", self.exemptions.remove_class(name))
            case changes.PutClaim(key, exclusive, volume, storage_class):
                self._put_claim(key, ClaimRecord(volume, storage_class, exclusive))
            case changes.PutVolume(name, volume_record):
                self.revision += self.volumes.put_volume(name, volume_record)
            case changes.PutStorageClass(name, nodes, waits):
                self.revision += self.volumes.put_class(name, nodes, waits=waits)
            case changes.KnowVolumes(known):
                self.revision += self.volumes.known != known
                self.volumes.known = known
            case changes.PutDevices(resources):
                self.revision += self.devices != resources
                self.devices = resources
            case changes.PutDaemonSet(daemonset):
                self._put_daemonset(daemonset)
            case changes.RemoveDaemonSet(uid):
                self._remove_daemonset(uid)
            case changes.KnowDaemonSets(known):
                self._know_daemonsets(known)
            case changes.PutPodGroup(group):
                self._put_pod_group(group)
            case changes.RemovePodGroup(group_key):
                self._remove_pod_group(group_key)
            case changes.KnowPodGroups(followed, listed, composites):
                self._know_pod_groups(followed, listed, composites)
            case changes.PutTolerationRecord(classes):
                self._exempt_anew("the record of tolerations", self.exemptions.put_record(classes))
            case changes.Enforce(policy, revision, source):
                self._enforce(policy, revision, source)
            case changes.Adopt(tree, revision, source):
                self._adopt(tree, revision, source)
        if self.revision != before:
            self._applied(change)

    def retain_pods(self, uids: Set[str]) -> None:
        """Apply that every pod but these is gone. O(pods)."""
        if self.pods.keys() <= uids:
            return
        before = dict(self.pods)

        def compare(uid: str) -> None:
            if self.pods.get(uid) is before.pop(uid) and uid not in uids:
                self.apply(changes.RemovePod(uid))

        self.pending_updates.add("a new list of pods is being compared", before, compare)

    def restore(
        self, revision: int, departures: Iterable[tuple[PodRecord, int]], budgets: Iterable[tuple[Key, int]]
    ) -> None:
        """Take over what changes do not tell: the revision, and when what came before was seen.

        `departures`: pods that are gone, `budgets`: all that there are, each with the revision at which that
        was seen.
        """
        self.revision = revision
        np.minimum(self.changed, self.revision, out=self.changed)
        self.departures.clear()
        for pod, seen in departures:
            self._remember(pod, seen)
        self._budget_revisions = dict(budgets)

    def count(self, name: str) -> bool:
        """Have a resource counted that a preemptor asks for; report whether it is, for all pods.

        O(1) for one that was asked for before; another is ready after an update of all pods, unless there are
        MOST_ASKED_RESOURCES already.
        """
        if name not in self.columns.resources:
            if self._asked_resources >= MOST_ASKED_RESOURCES:
                return False
            self._asked_resources += 1
            self._add_layers([name])
            self._counting.add(name)
            self.upkeep.add(
                f"{name} is being counted", self.pods, self._recount, lambda: self._counting.discard(name)
            )
        return name not in self._counting

    def use_label_keys(self, keys: frozenset[str]) -> bool:
        """Have signatures tell labels of these keys apart; report whether they do, for all pods.

        It may number all signatures anew, so a plan calls it once and first, for all selectors that it
        matches. O(1) for keys that were asked for before; others are ready after an update of all pods.
        """
        if self._label_keys.add(keys):
            self.signatures.use_keys(self._label_keys.keys)
            if not self._regrouping:
                self._regroup()
        return self.tells_apart(keys)

    def tells_apart(self, keys: frozenset[str]) -> bool:
        """Report whether the signatures of all pods tell labels of these keys apart."""
        return keys <= self._label_keys.ready

    # ------------------------------------------------------------------------------ each change

    def _put_node(self, node: NodeRecord) -> None:
        """Add a node or change it. O(pods bound to it) where it comes."""
        known = self.rows.get(node.name)
        row = self._node_rows.add(node.name) if known is None else known
        if row == self.columns.nodes:
            self.columns.grow_nodes()
        moved = self.topology.put(row, node)
        other = self.node_resources.put(row, node.allocatable)
        if known is not None and not other and not moved:
            return
        self.columns.set_allocatable(row, node.allocatable)
        self.nodes[node.name] = node
        self._touch(row)
        if known is None:
            self._enter_waiting(node.name, row)

    def _enter_waiting(self, name: str, row: int) -> None:
        """Enter the pods that were bound to a node before it was there. O(pods · log pods)."""
        pods = sorted(self.without_node.take(name), key=lambda pod: pod.importance)
        touched = self.groups.settle(pods, row)
        self.slots[row] = pods
        self.order[row][:] = [pod.importance for pod in pods]
        self.columns.make_room(row, len(pods))
        for slot, pod in enumerate(pods):
            self._fill(row, slot, pod, self.groups.number_of(pod))
        self._moved(pods, touched)

    def _remove_node(self, name: str) -> None:
        """Forget a node; its pods are kept without it. O(pods)."""
        row = self.rows.get(name)
        if row is None:
            return
        del self.nodes[name]
        pods = self.slots[row]
        touched = self.groups.settle(pods, row, -1)
        for pod in pods:
            self.without_node.put(pod)
        self.topology.drop(row)
        self.node_resources.drop(row)
        self.columns.clear(row)
        self._touch(row)
        self._node_rows.discard(name)
        self._moved(pods, touched)

    def _moved(self, pods: Collection[PodRecord], touched: Iterable[int]) -> None:
        """Note that pods have come into the columns, or have left them, with their node."""
        self.exemptions.terminating_version += any(pod.terminating for pod in pods)
        self._touch_rows(touched)

    def _put_pod(self, pod: PodRecord) -> None:
        """Add a pod or put its new version in its place. O(slots of its node + budgets of its namespace)."""
        uid = pod.uid
        before = self.pods.get(uid)
        if before is not None and before.node and before.facts.queue != pod.facts.queue:
            # The queue of a pod is fixed when it is placed: a label that is changed later frees no quota.
            pod = replace(pod, facts=replace(pod.facts, queue=before.facts.queue))
        pod = self.groups.entered(pod)
        if before == pod:
            return
        named = self._uids.get(pod.namespace, _NO_PODS).get(pod.name)
        if named != uid:
            if named is not None:
                self.apply(changes.RemovePod(named))
            if before is not None:
                self._forget_name(before)
            self._uids.setdefault(pod.namespace, {})[pod.name] = uid
        if before is not None and before.node == pod.node and before.importance == pod.importance:
            self._exchange(before, pod)
        else:
            if before is not None:
                self._take_out(before)
            self.revision += 1
            self._put_in(pod)
        if pod.terminating and (before is None or not before.terminating):
            self._depart(pod)
        self.pods[uid] = pod

    def _remove_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        self._take_out(pod)
        self.revision += 1
        self._depart(pod)
        self._forget_name(pod)

    def _put_budget(self, budget: Budget) -> None:
        """Add a budget or change it; pods that it may cover now, or no longer, are matched anew.

        O(pods of its namespace) where its selector is new, O(pods) that the API server has begun or ended to
        count as disrupted otherwise.
        """
        before = self.budgets.get(budget.key)
        self.revision += 1
        self._budget_revisions[budget.key] = self.revision
        self.budgets.put(budget)
        if before is None or before.selector != budget.selector:
            self._match_again(budget.namespace)
        else:
            named = self._uids.get(budget.namespace, _NO_PODS)
            for name in before.disrupted ^ budget.disrupted:
                self._match(named.get(name, ""))

    def _remove_budget(self, key: Key) -> None:
        """Forget a budget. O(pods of its namespace)."""
        if self.budgets.get(key) is None:
            return
        self.revision += 1
        del self._budget_revisions[key]
        self.budgets.discard(key)
        self._match_again(key[0])

    def _put_claim(self, key: Key, claim: ClaimRecord) -> None:
        if not self.volumes.put_claim(key, claim):
            return
        self.revision += 1
        if claim.exclusive == (key in self.exclusive_claims):
            return
        if claim.exclusive:
            self.exclusive_claims.add(key)
        else:
            self.exclusive_claims.discard(key)
        self.signatures.reuse_keys()
        what = f"PersistentVolumeClaim {key[0]}/{key[1]} is being applied"
        self.upkeep.add(what, self._claim_users.get(key), self._group)

    def _put_daemonset(self, daemonset: DaemonSetOwner) -> None:
        """Add a DaemonSet or change it; what pods claim of it may be true now, or no longer. O(pods)."""
        if self.daemonsets.items.get(daemonset.uid) == daemonset:
            return
        self.revision += 1
        self.daemonsets.items[daemonset.uid] = daemonset
        self._prove_again(self.daemonsets.claiming(daemonset.uid))

    def _remove_daemonset(self, uid: str) -> None:
        """Forget a DaemonSet. O(pods that claim it)."""
        if self.daemonsets.items.pop(uid, None) is None:
            return
        self.revision += 1
        self._prove_again(self.daemonsets.claiming(uid))

    def _know_daemonsets(self, known: bool) -> None:
        """O(pods that claim any)."""
        if self.daemonsets.known == known:
            return
        self.revision += 1
        self.daemonsets.known = known
        self._prove_again(self.daemonsets.all_claiming())

    def _prove_again(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self.queues.renew(uid)

    def _put_pod_group(self, group: GroupRecord) -> None:
        """Add a group or change it. O(groups below it), and its pods where its priority is another one."""
        if self.groups.records.get(group.key) == group:
            return
        self.revision += 1
        self._resolve_groups(self.groups.put(group))

    def _remove_pod_group(self, key: GroupKey) -> None:
        """Forget a group; its pods stay. O(groups below it), and its pods where their priority differs."""
        if key not in self.groups.records:
            return
        self.revision += 1
        self._resolve_groups(self.groups.remove(key))

    def _know_pod_groups(self, followed: bool, listed: bool, composites: bool) -> None:
        """O(groups), and all pods where groups are followed from now on, or no longer."""
        groups = self.groups
        before = groups.followed, groups.listed, groups.composites
        if before == (followed, listed, composites):
            return
        self.revision += 1
        groups.listed, groups.composites = listed, composites
        if groups.followed != followed:
            groups.followed = followed
            self.pending_updates.add("pod groups are being entered", self.pods, self._enter_again)
        self._resolve_groups(groups.ids())

    def _resolve_groups(self, ids: Collection[str]) -> None:
        what = "pod groups are being applied"
        updates = self.upkeep if self.serving else self.pending_updates
        for first in ids if len(ids) < _GROUPS_AT_ONCE else ():
            self._resolve_group(first)
        if len(ids) >= _GROUPS_AT_ONCE:
            updates.add(what, self.groups.ids(), self._resolve_group)

    def _resolve_group(self, name: str) -> None:
        """Work out anew what a group means for its pods; they stay until a new priority has been entered."""
        group, rows = self.groups.resolve(name)
        self._touch_rows(rows)
        if group is None:
            return
        group.applying = True
        self.groups.tell(group)

        def done() -> None:
            group.applying = False
            self.groups.tell(group)
            self._touch_rows(group.rows)
            self.groups.drop_empty(group)

        updates = self.upkeep if self.serving else self.pending_updates
        updates.add(f"the priority of {group.key} is being applied", group.pods, self._enter_again, done)

    def _enter_again(self, uid: str) -> None:
        """Enter a pod at the priority that its groups have now, and in its group."""
        pod = self.pods.get(uid)
        if pod is None or not pod.group:
            return
        self._take_out(pod)
        self.revision += 1
        pod = self.pods[uid] = self.groups.entered(pod)
        self._put_in(pod)

    def _touch_rows(self, rows: Iterable[int]) -> None:
        """Mark nodes on which something differs that their own pods do not tell."""
        self.changed[list(rows)] = self.revision + 1

    def _exempt_anew(self, what: str, uids: Collection[str]) -> None:
        """Work out which preemptors may remove these pods, for which `what` may say otherwise. O(pods)."""
        self.revision += 1
        self.pending_updates.add(f"{what} is being applied", uids, self._set_exemption)

    def _enforce(self, policy: Policy, revision: str, source: Source | None) -> None:
        """Put a policy in force; where its protection differs, all exemptions are worked out. O(pods)."""
        self.revision += 1
        for namespace in self.budgets.hold(policy.hard_budgets):
            self._match_again(namespace)
        if self.exemptions.enforce(policy, revision, source):
            self.pending_updates.add("the policy is being applied", self.pods, self._set_exemption)

    def _adopt(self, tree: QueueTree | None, revision: str, source: Source | None) -> None:
        """Put a tree of queues in force, or none; all pods are placed anew. O(queues + pods)."""
        self.revision += 1
        self.queues.source = source
        limited = {name for queue in tree or () for name in (*queue.guaranteed, *queue.maximum)}
        # Plans do not wait for `upkeep`, but a guarantee needs what all pods request.
        if self._add_layers(sorted(limited)) or not limited.isdisjoint(self._counting):
            # No revision of its own: a replay may meet as new what was known long before its recording.
            self.pending_updates.add("a new resource is being counted", self.pods, self._recount)
        self.pending_updates.add("the queues before are being put away", *self.queues.adopt(tree, revision))
        self.pending_updates.add(
            "the queues are being filled", self.pods if tree is not None else (), self._place
        )

    def _put_namespace(self, namespace: Namespace) -> None:
        self.revision += 1
        self.namespaces_changed += 1
        self.namespaces[namespace.metadata.name] = namespace

    def _remove_namespace(self, name: str) -> None:
        self.revision += 1
        self.namespaces_changed += 1
        self.namespaces.pop(name, None)

    # -------------------------------------------------------------------------------- inner work

    def _add_layers(self, names: Iterable[str]) -> list[str]:
        """Add a layer, with what nodes have, for each resource that has none; return which. O(nodes) each."""
        new = self.columns.add_layers(names)
        for name in new:
            layer = self.columns.allocatable[self.columns.resources[name]]
            for row, amount in self.node_resources.of(name):
                layer[row] = min(amount, MOST)
        return new

    def _regroup(self) -> None:
        """Enter all pods by the keys that are asked for now, and again where others are asked for meanwhile.

        It changes no answer: what was counted of a pod, on its node too, is the same for its new signature.
        """
        keys, self._regrouping = self._label_keys, True
        keys.begin()

        def done() -> None:
            self._regrouping = False
            if keys.end():
                self._regroup()

        self.upkeep.add("pods are being grouped by more labels", self.pods, self._group, done)

    def _group(self, uid: str) -> None:
        """Enter a pod by what is asked for now."""
        pod = self.pods.get(uid)
        if pod is None:
            return
        before = self._signatures[uid]
        number = self._signatures[uid] = self.signatures.acquire(pod.signature)
        self.signatures.release(before)
        if (row := self.rows.get(pod.node)) is not None and number != before:
            self.columns.set_layer(SIGNATURE, row, self._slot(row, pod), number)

    def _forget_name(self, pod: PodRecord) -> None:
        names = self._uids[pod.namespace]
        del names[pod.name]
        if not names:
            del self._uids[pod.namespace]

    def _touch(self, row: int) -> None:
        self.revision += 1
        self.changed[row] = self.revision

    def _put_in(self, pod: PodRecord) -> None:
        self._count_in(pod)
        row = self.rows.get(pod.node)
        group = self.groups.join(pod, row)
        if row is not None:
            order, importance = self.order[row], pod.importance
            slot = bisect_left(order, importance)
            order.insert(slot, importance)
            self._renewed(row).insert(slot, pod)
            self._fill(row, slot, pod, group)
            self.changed[row] = self.revision
        elif pod.node:
            self.without_node.put(pod)
        if pod.group and pod.node:
            self._touch_rows(self.groups.touched_by(pod))

    def _renewed(self, row: int) -> list[PodRecord]:
        """Return a new list of a row's pods in the place of the one that plans may have."""
        self.slots[row] = self.slots[row].copy()
        return self.slots[row]

    def _fill(self, row: int, slot: int, pod: PodRecord, group: int) -> None:
        """Put a pod, which is counted everywhere else, into a slot of the columns."""
        self.columns.insert(row, slot, self.cell_of(pod, group))

    def _take_out(self, pod: PodRecord) -> None:
        self._count_out(pod)
        row = self.rows.get(pod.node)
        if pod.group:
            if pod.node:
                self._touch_rows(self.groups.touched_by(pod))
            self.groups.leave(pod, row)
        if row is not None:
            slot = self._slot(row, pod)
            del self.order[row][slot]
            del self._renewed(row)[slot]
            self.columns.remove(row, slot)
            self.changed[row] = self.revision + 1
        elif pod.node:
            self.without_node.discard(pod)

    def _exchange(self, before: PodRecord, pod: PodRecord) -> None:
        """Put a pod's new version into the slot of the one before, whose place it takes."""
        self._count_out(before)
        self.revision += 1
        self._count_in(pod)
        row, group = self.rows.get(pod.node), NO_GROUP
        if before.group or pod.group:
            touched = self.groups.touched_by(before)
            self.groups.leave(before, row)
            group = self.groups.join(pod, row)
            self._touch_rows((*touched, *self.groups.touched_by(pod)) if pod.node else ())
        if row is not None:
            slot = self._slot(row, pod)
            self._renewed(row)[slot] = pod
            self.columns.replace(row, slot, self.cell_of(pod, group))
            self.changed[row] = self.revision
        elif pod.node:
            self.without_node.put(pod)

    def _count_in(self, pod: PodRecord) -> None:
        """Enter a pod everywhere but in the columns."""
        self._signatures[pod.uid] = self.signatures.acquire(pod.signature)
        if pod.signature.claims:
            self._claim_users.add(pod)
        budgets = self.budgets.acquire(self.budgets.covering(pod.namespace, pod.name, pod.labels), pod.health)
        if budgets != NO_BUDGETS:
            self._budget_sets[pod.uid] = budgets
        self.exemptions.add(pod)
        self.daemonsets.add(pod)
        displaced = self.owners.add(pod)
        self.queues.place(pod)
        self.queues.renew(displaced)

    def _count_out(self, pod: PodRecord) -> None:
        self.signatures.release(self._signatures.pop(pod.uid))
        if pod.signature.claims:
            self._claim_users.discard(pod)
        self.budgets.release(self._budget_sets.pop(pod.uid, NO_BUDGETS))
        self.exemptions.discard(pod)
        self.daemonsets.discard(pod)
        self.queues.discard(pod)
        self.queues.renew(self.owners.discard(pod))

    def _slot(self, row: int, pod: PodRecord) -> int:
        return bisect_left(self.order[row], pod.importance)

    def _match_again(self, namespace: str) -> None:
        """Match the pods of a namespace with its budgets, once more after a pass that is under way.

        Until then what covers them is `undecided`. So the budgets of one namespace, however often they
        change, never keep others from being planned for.
        """
        if namespace in self._matching:
            self._matching[namespace] = True
            return
        self._matching[namespace] = False

        def done() -> None:
            if self._matching.pop(namespace):
                self._match_again(namespace)

        what = f"disruption budgets of namespace {namespace} are being applied"
        updates = self.upkeep if self.serving else self.pending_updates
        updates.add(what, self._uids.get(namespace, _NO_PODS).values(), self._match, done)

    def _match(self, uid: str) -> None:
        """Enter a pod under the budgets that cover it now."""
        pod = self.pods.get(uid)
        if pod is None:
            return
        held = self.budget_set(uid)
        covering = self.budgets.covering(pod.namespace, pod.name, pod.labels)
        if (changed := self.budgets.exchange(held, covering, pod.health)) != held:
            self._hold(pod, changed)

    def _hold(self, pod: PodRecord, budgets: int) -> None:
        """Put down which set of budgets covers a pod now."""
        if budgets == NO_BUDGETS:
            del self._budget_sets[pod.uid]
        else:
            self._budget_sets[pod.uid] = budgets
        self.queues.renew(pod.uid)
        row = self.rows.get(pod.node)
        if row is not None:
            self.columns.set_layer(BUDGETS, row, self._slot(row, pod), budgets)
            # Plans may have looked at the node at this revision.
            self.changed[row] = self.revision + 1
        if pod.node:
            self._touch_rows(self.groups.touched_by(pod))

    def _set_exemption(self, uid: str) -> None:
        """Work out a pod's exemption, and mark its node where that differs."""
        pod = self.pods.get(uid)
        if pod is None or not pod.node:
            return
        self.queues.renew(uid)
        row = self.rows.get(pod.node)
        if row is not None:
            if not self.columns.set_exemption(row, self._slot(row, pod), self.exemptions.exemption_of(pod)):
                return
            self.changed[row] = self.revision
        self._touch_rows(self.groups.touched_by(pod))

    def _place(self, uid: str) -> None:
        """Count a pod in the queues in force."""
        pod = self.pods.get(uid)
        if pod is not None:
            self.queues.place(pod)

    def _recount(self, uid: str) -> None:
        """Count what a pod requests of resources that have a layer now, and mark its node."""
        pod = self.pods.get(uid)
        if pod is None or pod.requests.keys() <= _ALWAYS_COUNTED:
            return
        row = self.rows.get(pod.node)
        if row is not None and self.columns.recount(row, self._slot(row, pod), pod.requests):
            # Plans may have looked at the node at this revision.
            self.changed[row] = self.revision + 1

    def _depart(self, pod: PodRecord) -> None:
        self._remember(pod, self.revision)

    def _remember(self, pod: PodRecord, revision: int) -> None:
        self.departures.setdefault(pod.uid, Departure(pod, revision))
        while len(self.departures) > REMEMBERED_DEPARTURES:
            self.departures.popitem(last=False)
