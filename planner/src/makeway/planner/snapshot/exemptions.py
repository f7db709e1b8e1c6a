"""Which pods are exempt from which preemptors: the policy in force and the PriorityClasses, pod by pod.

Owned by the snapshot, which writes the exemptions into its columns. A class knows its pods, so that a
change of its annotations costs as much as it has pods.
"""

from __future__ import annotations

from collections.abc import Collection

from makeway.core.k8s.objects import PriorityClass
from makeway.core.policy.document import Policy
from makeway.core.policy.exemption import Exemption
from makeway.core.policy.facts import PodFacts, opts_out
from makeway.core.policy.rules import Rule, exemption_of, rules_in_force
from makeway.core.policy.toleration import PreemptionToleration, toleration_of
from makeway.core.queues.queue_exempt import queue_exempt_namespaces
from makeway.planner.snapshot.records import PodRecord

Source = tuple[str, str, str]
"""Kind, namespace and name of the object that holds the policy."""


_REMEMBERED = 16384
"""How many different exemptions are remembered."""


class Exemptions:
    """The policy in force, what it was read from at which `revision` (empty: none), and the classes by name.

    `queue_exempt_namespaces`: whose pods their queues never hold; makeway's own is where the policy is.
    `rules`: the same for one pod at a time; they see classes as they are when they are asked.
    """

    def __init__(self) -> None:
        self.policy = Policy()
        self.revision = ""
        self.source: Source | None = None
        self.queue_exempt_namespaces = queue_exempt_namespaces(self.policy, "")
        self.classes: dict[str, PriorityClass] = {}
        self.rules: tuple[Rule, ...] = rules_in_force(self.policy, self.classes)
        self._uids: dict[str, set[str]] = {}
        self._known: dict[tuple[str, int, str, bool, bool], Exemption] = {}

    @property
    def own_namespace(self) -> str:
        """Makeway's namespace, which is where the policy is; empty where that is not known."""
        return self.source[1] if self.source else ""

    def exemption_of(self, facts: PodFacts) -> Exemption:
        """Return a pod's exemption. O(1).

        Remembered for pods that are alike, where their age does not matter.
        """
        alike = facts.namespace, facts.priority, facts.priority_class, facts.mirror, facts.never_evict
        known = self._known.get(alike)
        if known is None:
            known = exemption_of(facts, self.policy, self.classes)
            priority_class = self.classes.get(facts.priority_class)
            if priority_class is None or not isinstance(toleration_of(priority_class), PreemptionToleration):
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[alike] = known
        return known

    def add(self, pod: PodRecord) -> None:
        """Note a pod under its class."""
        if pod.facts.priority_class:
            self._uids.setdefault(pod.facts.priority_class, set()).add(pod.uid)

    def discard(self, pod: PodRecord) -> None:
        """Forget a pod under its class."""
        name = pod.facts.priority_class
        if name:
            self._uids[name].discard(pod.uid)
            if not self._uids[name]:
                del self._uids[name]

    def put_class(self, priority_class: PriorityClass) -> Collection[str]:
        """Add or change a class; return the UIDs of its pods, for which it may say otherwise now."""
        name = priority_class.metadata.name
        before = self.classes.get(name)
        self.classes[name] = priority_class
        self._known.clear()
        if before is not None and _terms_of_class(before) == _terms_of_class(priority_class):
            return ()
        return self._uids.get(name, ())

    def remove_class(self, name: str) -> Collection[str]:
        """Forget a class; return the UIDs of its pods, whose exemptions may differ now."""
        self.classes.pop(name, None)
        self._known.clear()
        return self._uids.get(name, ())

    def exempting_classes(self, preemptor_priority: int) -> list[str]:
        """Return the classes that exempt a pod from such a preemptor, for now. O(classes in use)."""
        return [name for name in sorted(self._uids) if self._is_exempting(name, preemptor_priority)]

    def enforce(self, policy: Policy, revision: str, source: Source | None = None) -> bool:
        """Put a policy in force; report whether the exemptions of pods may differ now."""
        differs = policy.protection != self.policy.protection
        self.policy, self.revision, self.source = policy, revision, source
        self.queue_exempt_namespaces = queue_exempt_namespaces(policy, self.own_namespace)
        self.rules = rules_in_force(policy, self.classes)
        self._known.clear()
        return differs

    def _is_exempting(self, name: str, preemptor_priority: int) -> bool:
        priority_class = self.classes.get(name)
        asked = None if priority_class is None else toleration_of(priority_class)
        if isinstance(asked, PreemptionToleration):
            return asked.seconds != 0 and preemptor_priority < asked.minimum_preemptable_priority
        return priority_class is None or asked is not None


def _terms_of_class(priority_class: PriorityClass) -> tuple[object, bool]:
    """Return what a class says about its pods."""
    return toleration_of(priority_class), opts_out(priority_class.metadata)
