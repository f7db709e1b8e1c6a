"""Which pods others depend on: those that another's ownerReference names, and each application's first.

Kept with every pod event, so that no plan looks at all pods. Sources: the simple preemptor's class of driver
and owner pods; YuniKorn's originator, which goes last.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from makeway.planner.snapshot.records import PodRecord


class OwnerIndex:
    """Owners by UID, and the pods of each application by age. Changed only by the snapshot that owns it.

    A pod names its application by the label or annotation `yunikorn.apache.org/app-id` or `applicationId`;
    pods of one namespace with one name are one application. Its first pod, by creation and then UID, of those
    that are still there is its originator: a Spark driver, say.
    """

    def __init__(self) -> None:
        self._owned: dict[str, int] = {}
        self._applications: dict[tuple[str, str], list[tuple[int, str]]] = {}

    def add(self, pod: PodRecord) -> None:
        """Note a pod. O(its owners + log pods of its application)."""
        for uid in pod.facts.owners:
            self._owned[uid] = self._owned.get(uid, 0) + 1
        if pod.facts.application:
            insort(self._applications.setdefault(_application(pod), []), _age(pod))

    def discard(self, pod: PodRecord) -> None:
        """Forget a pod that was added as it is here."""
        for uid in pod.facts.owners:
            self._owned[uid] -= 1
            if not self._owned[uid]:
                del self._owned[uid]
        if pod.facts.application:
            pods = self._applications[_application(pod)]
            del pods[bisect_left(pods, _age(pod))]
            if not pods:
                del self._applications[_application(pod)]

    def is_originator(self, pod: PodRecord) -> bool:
        """Report whether a pod is the first of its application."""
        return bool(pod.facts.application) and self._applications[_application(pod)][0] == _age(pod)

    def has_dependents(self, pod: PodRecord) -> bool:
        """Report whether another pod names this one as its owner, or it is the first of its application."""
        return pod.uid in self._owned or self.is_originator(pod)


def _application(pod: PodRecord) -> tuple[str, str]:
    return pod.namespace, pod.facts.application


def _age(pod: PodRecord) -> tuple[int, str]:
    return pod.facts.created_micros, pod.uid
