"""The DaemonSets there are, and which pods say that one of them controls them.

Owned by the snapshot. Until they have been listed nothing is proven: a claim keeps its pod where DaemonSets'
pods stay, and privileges none. Pure state.
"""

from __future__ import annotations

from collections.abc import Collection

from makeway.core.index import Index
from makeway.core.k8s.daemonset_owner import DaemonSetOwner
from makeway.core.policy.facts import PodFacts, is_controlled, proven_facts
from makeway.planner.snapshot.records import PodRecord


class DaemonSetIndex:
    """DaemonSets by UID. `known`: all of them have been listed."""

    def __init__(self) -> None:
        self.known = False
        self.items: dict[str, DaemonSetOwner] = {}
        self._claims = Index[str, str, None]()

    def controls(self, pod: PodRecord) -> bool:
        """Report whether a DaemonSet proves that it controls a pod. O(requirements of its selector)."""
        return is_controlled(pod.facts, pod.labels, self.items.get(pod.facts.daemonset_uid))

    def facts_of(self, pod: PodRecord) -> PodFacts:
        """Return a pod's facts, without a claim that is known not to be true."""
        if not pod.facts.daemon or not self.known:
            return pod.facts
        return proven_facts(pod.facts, pod.labels, self.items.get(pod.facts.daemonset_uid))

    def add(self, pod: PodRecord) -> None:
        """Note a pod under the DaemonSet that it claims."""
        if pod.facts.daemon:
            self._claims.put(pod.facts.daemonset_uid, pod.uid, None)

    def discard(self, pod: PodRecord) -> None:
        """Forget a pod."""
        if pod.facts.daemon:
            self._claims.discard(pod.facts.daemonset_uid, pod.uid)

    # Each returns the UIDs of the pods whose claim may be true now, or no longer; None where nothing differs.

    def put(self, daemonset: DaemonSetOwner) -> Collection[str] | None:
        """Add a DaemonSet or change it."""
        if self.items.get(daemonset.uid) == daemonset:
            return None
        self.items[daemonset.uid] = daemonset
        return self._claims.of(daemonset.uid)

    def remove(self, uid: str) -> Collection[str] | None:
        """Forget a DaemonSet."""
        return None if self.items.pop(uid, None) is None else self._claims.of(uid)

    def know(self, known: bool) -> Collection[str] | None:
        """Take over whether all have been listed. O(pods that claim any)."""
        if self.known == known:
            return None
        self.known = known
        return [pod for pods in self._claims.values() for pod in pods]
