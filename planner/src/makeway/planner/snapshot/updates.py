"""Pods that are worked out anew since something else has changed: in chunks, where there are many."""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import Final

from makeway.core.k8s.queue_labels import QUEUE_LABELS
from makeway.core.recent import Recent
from makeway.planner.snapshot.node_table import NodeTable
from makeway.planner.snapshot.pending_updates import PendingUpdates
from makeway.planner.snapshot.pod_table import PodTable

MOST_ASKED_RESOURCES: Final = 32
"""Resources that have a layer because a preemptor asked for them, which takes 8 bytes a slot: 50 MiB in all
with 200,000 slots. Of others the scheduler's filters judge."""

_GROUPS_AT_ONCE: Final = 500
"""Groups that are worked out anew without a pause: some 10 µs each."""


FROM_THE_START: Final = (
    *QUEUE_LABELS,
    "app",
    "app.kubernetes.io/component",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/name",
    "k8s-app",
)
"""Keys that nearly every selector uses, with values that many pods share: no first plan waits for them."""

MOST: Final = 64
"""Keys besides those from the start; the one that was not asked for longest is given up first."""


class PodUpdates:
    """What a change of a budget, a group, a claim, a queue or the policy means for pods.

    `pending`: what has still to be done, where it is done in chunks (`chunk`); until then nothing may be
    planned on the snapshot. `upkeep`: the same for what plans can do without until then: `use_label_keys` and
    `count` report if they have to. `serving`: plans are made, so that changes of budgets and groups are left
    to `upkeep`; before, to `pending`.
    """

    def __init__(self, nodes: NodeTable, pods: PodTable, chunk: int | None) -> None:
        self.pending = PendingUpdates(chunk)
        self.upkeep = PendingUpdates(chunk)
        self.serving = False
        self._nodes = nodes
        self._pods = pods
        self._matching: dict[str, bool] = {}
        self._label_keys = LabelKeysInUse()
        self._regrouping = False
        self._asked_resources = 0
        self._counting: set[str] = set()
        pods.signatures.use_keys(self._label_keys.keys)

    @property
    def undecided(self) -> Set[str]:
        """The namespaces of which it is not known for all pods which disruption budgets cover them."""
        return self._matching.keys()

    @property
    def _patient(self) -> PendingUpdates:
        return self.upkeep if self.serving else self.pending

    def match_again(self, namespace: str) -> None:
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
                self.match_again(namespace)

        what = f"disruption budgets of namespace {namespace} are being applied"
        self._patient.add(what, self._pods.named(namespace).values(), self._pods.match, done)

    def resolve_groups(self, ids: Collection[str] | None, *, entering: bool = False) -> None:
        """Work out anew what groups, by their ids, mean for their pods. None: nothing differs.

        O(groups), and their pods where their priority is another one; all pods where they are `entering`.
        """
        if ids is None:
            return
        self._nodes.revision += 1
        if entering:
            self.pending.add("pod groups are being entered", self._pods.by_uid, self._pods.enter_again)
        if len(ids) < _GROUPS_AT_ONCE:
            for one in ids:
                self._resolve_group(one)
        else:
            self._patient.add("pod groups are being applied", self._pods.groups.ids(), self._resolve_group)

    def _resolve_group(self, name: str) -> None:
        """Work out anew what a group means for its pods; they stay until a new priority has been entered."""
        group, rows = self._pods.groups.resolve(name)
        self._nodes.touch(rows)
        if group is None:
            return
        group.applying = True
        self._pods.groups.tell(group)

        def done() -> None:
            group.applying = False
            self._pods.groups.tell(group)
            self._nodes.touch(group.rows)
            self._pods.groups.drop_empty(group)

        what = f"the priority of {group.key} is being applied"
        self._patient.add(what, group.pods, self._pods.enter_again, done)

    def count(self, name: str) -> bool:
        """Have a resource counted that a preemptor asks for; report whether it is, for all pods.

        O(1) for one that was asked for before; another is ready after an update of all pods, unless there are
        MOST_ASKED_RESOURCES already.
        """
        if name not in self._nodes.columns.resources:
            if self._asked_resources >= MOST_ASKED_RESOURCES:
                return False
            self._asked_resources += 1
            self._nodes.add_layers([name])
            self._counting.add(name)
            what = f"{name} is being counted"
            self.upkeep.add(what, self._pods.by_uid, self._pods.recount, lambda: self._counting.discard(name))
        return name not in self._counting

    def count_limited(self, names: Set[str]) -> None:
        """Have resources counted that queues limit. Plans wait: a guarantee needs what all pods request."""
        # No revision of its own: a replay may meet as new what was known long before its recording.
        if self._nodes.add_layers(sorted(names)) or not names.isdisjoint(self._counting):
            self.pending.add("a new resource is being counted", self._pods.by_uid, self._pods.recount)

    def use_label_keys(self, keys: frozenset[str]) -> bool:
        """Have signatures tell labels of these keys apart; report whether they do, for all pods.

        It may number all signatures anew, so a plan calls it once and first, for all selectors that it
        matches. O(1) for keys that were asked for before; others are ready after an update of all pods.
        """
        if self._label_keys.add(keys):
            self._pods.signatures.use_keys(self._label_keys.keys)
            if not self._regrouping:
                self._sign_again()
        return self.tells_apart(keys)

    def tells_apart(self, keys: frozenset[str]) -> bool:
        """Report whether the signatures of all pods tell labels of these keys apart."""
        return keys <= self._label_keys.ready

    def _sign_again(self) -> None:
        """Enter all pods by the keys that are asked for now, and again where others are asked for meanwhile.

        It changes no answer: what was counted of a pod, on its node too, is the same for its new signature.
        """
        keys, self._regrouping = self._label_keys, True
        keys.begin()

        def done() -> None:
            self._regrouping = False
            if keys.end():
                self._sign_again()

        self.upkeep.add("pods are being grouped by more labels", self._pods.by_uid, self._pods.sign, done)


class LabelKeysInUse:
    """Keys that signatures tell apart, and of which of them all pods have been entered (`ready`)."""

    def __init__(self) -> None:
        self.keys: frozenset[str] = frozenset(FROM_THE_START)
        self.ready: frozenset[str] = self.keys
        self._entering: frozenset[str] = frozenset()
        self._used = Recent[str, None](MOST)

    def add(self, keys: frozenset[str]) -> bool:
        """Note that keys are asked for; report whether signatures have to tell apart others than before."""
        more = sorted(keys.difference(FROM_THE_START))
        new = [key for key in more if key not in self._used]
        for key in more:
            self._used[key] = None
        if not new:
            return False
        self.keys = frozenset((*FROM_THE_START, *self._used))
        self.ready &= self.keys
        self._entering &= self.keys
        return True

    def begin(self) -> None:
        """Note that all pods are being entered by the keys of now."""
        self._entering = self.keys

    def end(self) -> bool:
        """Note that all have been; return whether others are asked for since."""
        self.ready |= self._entering
        return self.ready != self.keys
