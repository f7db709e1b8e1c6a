"""Which pods use a PersistentVolumeClaim, so that what is known of a claim reaches them alone."""

from __future__ import annotations

from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.records import PodRecord


class ClaimUsers:
    """Pods by claim. Most claims have one pod, which then takes no set. Changed only by the snapshot."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, str | set[str]]] = {}

    def get(self, key: Key) -> list[str]:
        """Return the UIDs of the pods that use a claim, in order."""
        found = self._pods.get(key[0], {}).get(key[1], "")
        return [found] if isinstance(found, str) and found else sorted(found)

    def add(self, pod: PodRecord) -> None:
        """Note a pod. O(its claims)."""
        claims = self._pods.setdefault(pod.namespace, {})
        for name in pod.signature.claims:
            before = claims.get(name)
            if before is None:
                claims[name] = pod.uid
            elif isinstance(before, str):
                claims[name] = {before, pod.uid}
            else:
                before.add(pod.uid)

    def discard(self, pod: PodRecord) -> None:
        """Forget a pod that was added as it is here."""
        claims = self._pods[pod.namespace]
        for name in pod.signature.claims:
            users = claims[name]
            if isinstance(users, set) and len(users) > 1:
                users.discard(pod.uid)
            else:
                del claims[name]
        if not claims:
            del self._pods[pod.namespace]
