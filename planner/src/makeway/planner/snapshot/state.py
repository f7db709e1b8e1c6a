"""The cluster as the watch last saw it, kept in columns.

Only the watch, the configuration and what these leave to do later change it, on the event loop. A plan
reads it in between; all that it may leave behind is what it asked to be counted or told apart, and no answer
but its own depends on that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set

import numpy as np

from makeway.core.k8s.budget import Budget
from makeway.core.k8s.objects import Namespace, PriorityClass
from makeway.core.k8s.resources import is_extended
from makeway.core.policy.document import Policy
from makeway.core.queues.tree import QueueTree
from makeway.planner.snapshot import changes
from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.changes import Change
from makeway.planner.snapshot.columns import Flags, Ints
from makeway.planner.snapshot.exemptions import Source
from makeway.planner.snapshot.node_table import NodeTable
from makeway.planner.snapshot.pod_table import PodTable
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.updates import PodUpdates
from makeway.planner.snapshot.volumes import ClaimRecord, Volumes


def _nothing(_: Change) -> None:
    """Do nothing."""


class Snapshot:
    """Nodes, pods, budgets, namespaces, priority classes and the policy in force at one `revision`.

    Bound pods are in the columns of their node. Those whose node is not there are kept `without_node`, and
    enter when it comes; what does not depend on nodes counts them all the same. Pending pods are kept by
    UID, for nominations and assumed pods. Its tables are `NodeTable` and `PodTable`, whose parts have the
    names that they have there.
    `groups`: which pods go together; `units`: what evicting each costs. `volumes`: which nodes claims leave
    to their pods. `daemonsets`: which pods they control. `devices`: extended resources that nodes may serve
    by dynamic allocation, None where that is not known.
    `updates`: what has still to be done, where it is done in chunks (`chunk`). `namespaces_changed` counts
    changes of namespaces. `applied` is called with each change that has made a difference.
    """

    def __init__(self, *, chunk: int | None = None, applied: Callable[[Change], None] = _nothing) -> None:
        self._applied = applied
        self._nodes = nodes = NodeTable()
        self.nodes, self.columns, self.topology = nodes.records, nodes.columns, nodes.topology
        self.rows, self.names, self.slots, self.order = nodes.rows, nodes.names, nodes.slots, nodes.order
        self.node_names, self.name_rank, self.rows_named = nodes.in_order, nodes.rank, nodes.named
        self.node_resources, self.without_node = nodes.resources, nodes.without_node
        self.pods_of = nodes.pods_of
        self._pods = pods = PodTable(nodes)
        self.pods, self.departures = pods.by_uid, pods.departures
        self.budgets, self.exemptions, self.daemonsets = pods.budgets, pods.exemptions, pods.daemonsets
        self.groups, self.units, self.queues = pods.groups, pods.units, pods.queues
        self.exclusive_claims, self.signatures = pods.exclusive_claims, pods.signatures
        self.budget_set, self.signature, self.cell_of = pods.budget_set, pods.signature, pods.cell_of
        self.restoring = pods.restoring
        self.namespaces: Mapping[str, Namespace] = self.exemptions.namespaces
        self.namespaces_changed = 0
        self.volumes = Volumes()
        self.devices: frozenset[str] | None = frozenset()
        self.updates = updates = PodUpdates(nodes, pods, chunk)
        self.pending_updates, self.upkeep = updates.pending, updates.upkeep
        self.count, self.use_label_keys = updates.count, updates.use_label_keys
        self.tells_apart = updates.tells_apart

    # ---------------------------------------------------------------------------------- reading

    @property
    def revision(self) -> int:
        """How many changes there were."""
        return self._nodes.revision

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)

    @property
    def bound_pods(self) -> int:
        """How many pods are on nodes that are there: no user makes many more of them. O(nodes)."""
        return int(self.columns.count.sum())

    @property
    def present(self) -> Flags:
        """bool[nodes], which rows are a node's."""
        return self.topology.present

    @property
    def changed(self) -> Ints:
        """int64[nodes], the revision that last touched the node."""
        return self._nodes.changed

    @property
    def undecided(self) -> Set[str]:
        """The namespaces of which it is not known for all pods which disruption budgets cover them."""
        return self.updates.undecided

    def uid_of(self, namespace: str, name: str) -> str | None:
        """Return the UID of the pod that has this name now."""
        return self._pods.named(namespace).get(name)

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
                named = self.uid_of(pod.namespace, pod.name)
                if named is not None and named != pod.uid:
                    self.apply(changes.RemovePod(named))
                self._pods.put(pod)
            case changes.RemovePod(uid):
                self._pods.remove(uid)
            case changes.PutNode(node):
                if (row := self._nodes.put(node)) is not None:
                    self._pods.enter_node(node.name, row)
            case changes.RemoveNode(name):
                self._pods.leave_node(name)
            case changes.PutBudget(budget):
                self._put_budget(budget)
            case changes.RemoveBudget(key):
                self._remove_budget(key)
            case changes.PutNamespace(namespace):
                self._put_namespace(namespace.metadata.name, namespace)
            case changes.RemoveNamespace(name):
                self._put_namespace(name, None)
            case changes.PutPriorityClass(priority_class):
                name = priority_class.metadata.name
                self._exempt_anew(f"PriorityClass {name}", self.exemptions.put_class(priority_class))
            case changes.RemovePriorityClass(name):
                self._exempt_anew(f"PriorityClass {name}", self.exemptions.remove_class(name))
            case changes.PutClaim(key, exclusive, volume, storage_class):
                self._put_claim(key, ClaimRecord(volume, storage_class, exclusive))
            case changes.PutVolume(name, volume_record):
                self._revise(self.volumes.put_volume(name, volume_record))
            case changes.PutStorageClass(name, nodes, waits):
                self._revise(self.volumes.put_class(name, nodes, waits=waits))
            case changes.KnowVolumes(known):
                self._revise(self.volumes.known != known)
                self.volumes.known = known
            case changes.PutDevices(resources):
                self._revise(self.devices != resources)
                self.devices = resources
            case changes.PutDaemonSet(daemonset):
                self._prove_again(self.daemonsets.put(daemonset))
            case changes.RemoveDaemonSet(uid):
                self._prove_again(self.daemonsets.remove(uid))
            case changes.KnowDaemonSets(known):
                self._prove_again(self.daemonsets.know(known))
            case changes.PutPodGroup(group):
                self.updates.resolve_groups(self.groups.put(group))
            case changes.RemovePodGroup(group_key):
                self.updates.resolve_groups(self.groups.remove(group_key))
            case changes.KnowPodGroups(followed, listed, composites):
                entering = self.groups.followed != followed
                self.updates.resolve_groups(self.groups.know(followed, listed, composites), entering=entering)
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
        self._nodes.revision = revision
        np.minimum(self.changed, revision, out=self.changed)
        self.departures.clear()
        for pod, seen in departures:
            self._pods.remember(pod, seen)
        self.budgets.revisions = dict(budgets)

    # ------------------------------------------------------------------------------ each change

    def _revise(self, differs: bool = True) -> None:
        """Begin a new revision, where something differs."""
        self._nodes.revision += differs

    def _put_budget(self, budget: Budget) -> None:
        """Add a budget or change it; pods that it may cover now, or no longer, are matched anew.

        O(pods of its namespace) where its selector is new, O(pods) that the API server has begun or ended to
        count as disrupted otherwise.
        """
        before = self.budgets.get(budget.key)
        self._revise()
        self.budgets.put(budget, self.revision)
        if before is None or before.selector != budget.selector:
            self.updates.match_again(budget.namespace)
        else:
            named = self._pods.named(budget.namespace)
            for name in before.disrupted ^ budget.disrupted:
                self._pods.match(named.get(name, ""))

    def _remove_budget(self, key: Key) -> None:
        """Forget a budget. O(pods of its namespace)."""
        if self.budgets.get(key) is not None:
            self._revise()
            self.budgets.discard(key)
            self.updates.match_again(key[0])

    def _put_claim(self, key: Key, claim: ClaimRecord) -> None:
        """Add a claim, change it or forget it. O(pods that use it) where one pod alone may, or no longer."""
        if not self.volumes.put_claim(key, claim):
            return
        self._revise()
        if claim.exclusive == (key in self.exclusive_claims):
            return
        if claim.exclusive:
            self.exclusive_claims.add(key)
        else:
            self.exclusive_claims.discard(key)
        self.signatures.reuse_keys()
        what = f"PersistentVolumeClaim {key[0]}/{key[1]} is being applied"
        self.upkeep.add(what, sorted(self._pods.claim_users.of(key)), self._pods.sign)

    def _prove_again(self, uids: Iterable[str] | None) -> None:
        """Look at pods again whose DaemonSet may control them now, or no longer. None: nothing differs."""
        self._revise(uids is not None)
        for uid in uids or ():
            self._pods.exempt(uid)

    def _exempt_anew(self, what: str, uids: Collection[str]) -> None:
        """Work out which preemptors may remove these pods, for which `what` may say otherwise. O(pods)."""
        self._revise()
        self.pending_updates.add(f"{what} is being applied", uids, self._pods.exempt)

    def _put_namespace(self, name: str, namespace: Namespace | None) -> None:
        """Add a namespace, change it or forget it (None). O(its pods) where rules ask for its labels."""
        self._revise()
        self.namespaces_changed += 1
        if self.exemptions.put_namespace(name, namespace):
            what = f"the labels of namespace {name} are being applied"
            self.pending_updates.add(what, self._pods.named(name).values(), self._pods.exempt)

    def _enforce(self, policy: Policy, revision: str, source: Source | None) -> None:
        """Put a policy in force; where its protection differs, all exemptions are worked out. O(pods).

        Where lost work counts otherwise all nodes are marked: saves may have marked none.
        """
        self._revise()
        if policy.lost_work != self.exemptions.policy.lost_work:
            self.changed[:] = self.revision
        for namespace in self.budgets.hold(policy.hard_budgets):
            self.updates.match_again(namespace)
        if self.exemptions.enforce(policy, revision, source):
            self.pending_updates.add("the policy is being applied", self.pods, self._pods.exempt)

    def _adopt(self, tree: QueueTree | None, revision: str, source: Source | None) -> None:
        """Put a tree of queues in force, or none; all pods are placed anew. O(queues + pods)."""
        self._revise()
        self.queues.source = source
        limited = {name for queue in tree or () for name in (*queue.guaranteed, *queue.maximum)}
        self.updates.count_limited(limited)
        self.queues.adopt(tree, revision)
        pods = self.pods if tree is not None else ()
        self.pending_updates.add("the queues are being filled", pods, self._pods.enqueue)
        if self.exemptions.forget_queues():
            self.pending_updates.add("the rules of queues are being applied", self.pods, self._pods.exempt)
