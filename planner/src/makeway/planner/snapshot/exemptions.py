"""Which pods are exempt from which preemptors: the policy in force and the PriorityClasses, pod by pod.

Owned by the snapshot, which writes the exemptions into its columns. A class knows its pods, so that a
change of its annotations costs as much as it has pods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from makeway.core.index import Index
from makeway.core.k8s.objects import Namespace, PriorityClass
from makeway.core.policy.document import Policy
from makeway.core.policy.exemption import TERMINATING, Exemption, exempt_from_all
from makeway.core.policy.facts import PodFacts, opts_out
from makeway.core.policy.lost_work import NO_BOUND, UnsavedWork, checkpoint_interval, unsaved_since
from makeway.core.policy.preemption import UNREAD, Party, PreemptionRule, namespace_labels, victim_bits
from makeway.core.policy.restrictions import is_annotated
from makeway.core.policy.rules import Rule, exemption_of, rules_in_force
from makeway.core.policy.toleration import PreemptionToleration, toleration_of
from makeway.core.policy.toleration_record import CONFIGMAP, NO_RECORD, TolerationRecord
from makeway.core.queues.queue_exempt import queue_exempt_namespaces
from makeway.planner.snapshot.columns import NOT_RECLAIMED
from makeway.planner.snapshot.records import PodRecord

Source = tuple[str, str, str]
"""Kind, namespace and name of the object that holds the policy."""


_TERMINATING = exempt_from_all(TERMINATING)

_REMEMBERED = 16384
"""How many different exemptions are remembered."""


class Exemptions:
    """The policy in force, what it was read from at which `revision` (empty: none), and the classes by name.

    `record`: what counts of classes that are gone.
    `queue_exempt_namespaces`: whose pods their queues never hold; makeway's own is where the policy is.
    `rules`: the same for one pod at a time; they see classes as they are when they are asked.
    `table`: the rules of who may preempt whom; `table_version`: another one each time that they are others.
    `namespaces`: by name; who keeps the queues sets `path_of`, the queue that a pod's label names, and who
    keeps the DaemonSets `facts_of`, a pod's facts without a claim that is known not to be true.
    `terminating`: the bound pods that are being deleted, by UID; `terminating_version`: another one each time
    that one of them or the policy is.
    """

    def __init__(self) -> None:
        self.policy = Policy()
        self.revision = ""
        self.source: Source | None = None
        self.queue_exempt_namespaces = queue_exempt_namespaces(self.policy, "")
        self.classes: dict[str, PriorityClass] = {}
        self.record: TolerationRecord = NO_RECORD
        self.rules: tuple[Rule, ...] = rules_in_force(self.policy, self.classes)
        self.table: tuple[PreemptionRule, ...] = ()
        self.table_version = 0
        self.namespaces: dict[str, Namespace] = {}
        self.path_of: Callable[[PodRecord], str] = lambda _: ""
        self.facts_of: Callable[[PodRecord], PodFacts] = lambda pod: pod.facts
        self.terminating: dict[str, PodRecord] = {}
        self.terminating_version = 0
        self._uids = Index[str, str, None]()
        self._known: dict[tuple[str, int, str, bool, bool], Exemption] = {}
        self._intervals: dict[str, int] = {}
        self._bits: dict[tuple[str, str, str, tuple[str | None, ...]], int] = {}
        self._label_keys: tuple[str, ...] = ()

    @property
    def own_namespace(self) -> str:
        """Makeway's namespace, which is where the policy is; empty where that is not known."""
        return self.source[1] if self.source else ""

    def exemption_of(self, pod: PodRecord) -> Exemption:
        """Return a pod's exemption. O(1).

        Remembered for pods that are alike, where their age does not matter.
        """
        if pod.terminating:
            return _TERMINATING
        facts = pod.facts
        alike = facts.namespace, facts.priority, facts.priority_class, facts.mirror, facts.never_evict
        known = self._known.get(alike)
        if known is None:
            known = exemption_of(facts, self.policy, self.classes, self.record)
            priority_class = self._class_of(facts.priority_class)
            if priority_class is None or not isinstance(toleration_of(priority_class), PreemptionToleration):
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[alike] = known
        return known

    def party_of(self, pod: PodRecord) -> Party:
        """Return a pod as the rules of who may preempt whom look at it; UNREAD without rules."""
        if not self.table:
            return UNREAD
        namespace = self.namespaces.get(pod.namespace)
        labels = namespace_labels(pod.namespace, None if namespace is None else namespace.metadata.labels)
        return Party(labels, pod.labels, pod.facts.priority_class, self.path_of(pod), pod.start_micros)

    def rule_bits(self, pod: PodRecord) -> int:
        """Return of which rules a pod may be the victim, bit by bit, and whether NOT_RECLAIMED. O(rules)."""
        return self._table_bits(pod) | (0 if self.facts_of(pod).is_reclaimable else NOT_RECLAIMED)

    def _table_bits(self, pod: PodRecord) -> int:
        """Return those of the rules; remembered for pods that are alike in what rules ask."""
        if not self.table:
            return 0
        labels = tuple([pod.labels.get(key) for key in self._label_keys])
        alike = pod.namespace, pod.facts.priority_class, self.path_of(pod), labels
        known = self._bits.get(alike)
        if known is None:
            if len(self._bits) >= _REMEMBERED:
                self._bits.clear()
            known = self._bits[alike] = victim_bits(self.table, self.party_of(pod))
        return known

    def put_namespace(self, name: str, namespace: Namespace | None) -> bool:
        """Put a namespace, or forget it (None); report whether rules may meet its pods otherwise."""
        before = self.namespaces.get(name)
        if namespace is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = namespace
        self._bits.clear()
        asked = any(rule.victims.namespace_selector.expressions for rule in self.table)
        labels = [{} if one is None else one.metadata.labels or {} for one in (before, namespace)]
        return asked and labels[0] != labels[1]

    def forget_queues(self) -> bool:
        """Take notice that pods are in other queues; report whether a rule asks for any."""
        self._bits.clear()
        return any(rule.victims.queues for rule in self.table)

    def work_of(self, pod: PodRecord) -> UnsavedWork:
        """Return a pod's work, with what its class says of it. O(1)."""
        facts = pod.facts
        since = unsaved_since(pod.start_micros, facts.checkpointed_micros)
        return UnsavedWork(pod.requests, since, self._intervals.get(facts.priority_class, NO_BOUND))

    def add(self, pod: PodRecord) -> None:
        """Note a pod under its class, and that it is terminating."""
        if pod.terminating and pod.node:
            self.terminating[pod.uid] = pod
            self.terminating_version += 1
        if pod.facts.priority_class:
            self._uids.put(pod.facts.priority_class, pod.uid, None)

    def discard(self, pod: PodRecord) -> None:
        """Forget a pod under its class, and as terminating."""
        if pod.terminating:
            self.terminating.pop(pod.uid, None)
            self.terminating_version += 1
        self._uids.discard(pod.facts.priority_class, pod.uid)

    def put_class(self, priority_class: PriorityClass) -> Collection[str]:
        """Add or change a class; return the UIDs of its pods, for which it may say otherwise now."""
        name = priority_class.metadata.name
        before = self.classes.get(name)
        self.classes[name] = priority_class
        self._intervals[name] = checkpoint_interval(priority_class.metadata)
        self._known.clear()
        if before is not None and _terms_of_class(before) == _terms_of_class(priority_class):
            return ()
        return self._uids.of(name)

    def remove_class(self, name: str) -> Collection[str]:
        """Forget a class; return the UIDs of its pods, whose exemptions may differ now."""
        self.classes.pop(name, None)
        self._intervals.pop(name, None)
        self._known.clear()
        return self._uids.of(name)

    def put_record(self, classes: Iterable[PriorityClass] | None) -> Collection[str]:
        """Take over the record, None where it is not known; return the UIDs of pods whose class is gone."""
        by_name = {one.metadata.name: one for one in classes or ()}
        self.record = TolerationRecord(by_name, known=classes is not None)
        self.apply_rules()
        return [uid for name in self._uids.keys() - self.classes.keys() for uid in self._uids[name]]

    def gone_classes(self) -> dict[str, int]:
        """Return the classes on record that are gone, each with how many pods it has still. O(record)."""
        gone = self.record.classes.keys() - self.classes.keys()
        return {name: len(self._uids[name]) for name in sorted(gone) if name in self._uids}

    def exempting_classes(self, preemptor_priority: int) -> list[Source]:
        """Return the classes that exempt a pod from such a preemptor, for now, as (kind, namespace, name).

        With the record of tolerations where a class is gone. O(classes in use).
        """
        found = [name for name in sorted(self._uids) if self._is_exempting(name, preemptor_priority)]
        gone = any(name not in self.classes for name in found)
        record = [("ConfigMap", self.own_namespace, CONFIGMAP)] if gone else []
        return record + [("PriorityClass", "", name) for name in found]

    def tolerating_classes(self) -> list[str]:
        """Return the classes that may exempt a pod: annotated, or gone with pods left. O(classes)."""
        annotated = [name for name, one in self.classes.items() if is_annotated(one)]
        gone = self._uids.keys() - self.classes.keys()
        return annotated + [name for name in gone if not self.record.known or name in self.record.classes]

    def enforce(self, policy: Policy, revision: str, source: Source | None = None) -> bool:
        """Put a policy in force; report whether the exemptions of pods may differ now."""
        differs = (policy.protection, policy.preemption) != (self.policy.protection, self.policy.preemption)
        self.terminating_version += 1
        self.policy, self.revision, self.source = policy, revision, source
        self.queue_exempt_namespaces = queue_exempt_namespaces(policy, self.own_namespace)
        self.table = policy.preemption.table
        self.table_version += differs
        self._label_keys = tuple(
            sorted({one.key for rule in self.table for one in rule.victims.label_selector.expressions})
        )
        self._bits.clear()
        self.apply_rules()
        return differs

    def apply_rules(self) -> None:
        """Make the rules anew: of policy, classes and record as they are held now."""
        self.rules = rules_in_force(self.policy, self.classes, self.record)
        self._known.clear()

    def _class_of(self, name: str) -> PriorityClass | None:
        return self.classes.get(name) or self.record.classes.get(name)

    def _is_exempting(self, name: str, preemptor_priority: int) -> bool:
        priority_class = self._class_of(name)
        if priority_class is None:
            return not self.record.known
        asked = toleration_of(priority_class)
        if isinstance(asked, PreemptionToleration):
            return asked.seconds != 0 and preemptor_priority < asked.minimum_preemptable_priority
        return asked is not None


def _terms_of_class(priority_class: PriorityClass) -> tuple[object, bool, int]:
    """Return what a class says about its pods."""
    metadata = priority_class.metadata
    return toleration_of(priority_class), opts_out(metadata), checkpoint_interval(metadata)
