"""The pods that are bound to no node, and the PriorityClasses: what the nominator follows of a cluster.

Pure state, fed by two list-watches. A pod leaves it when it is bound or deleted. Memory: a few hundred bytes
for each pod that is not bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from makeway.core.k8s.by_uid import ByUid
from makeway.core.k8s.objects import ENDED_PHASES, Pod, PriorityClass
from makeway.core.policy.delay import delay_of
from makeway.core.policy.external import NEVER, asks_for_external, is_external

UNSCHEDULABLE: Final = "Unschedulable"
"""Reason of the condition PodScheduled once kube-scheduler has tried and failed."""

GATED: Final = "SchedulingGated"
"""The same where the pod has scheduling gates, and is not tried."""


class PendingPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod without a node.

    `class_name`: of its PriorityClass. `nominated`: status.nominatedNodeName. `unfit_since`: since when its
    scheduler finds no node for it, to the second; None where it does not say so. `gated`: it has
    scheduling gates; `released`: when it was seen that they are gone, else None. `group`: its pod group.
    """

    uid: str
    namespace: str
    name: str
    priority: int
    class_name: str
    policy: str
    nominated: str
    unfit_since: datetime | None
    created: datetime | None
    group: str
    leaving: bool
    gated: bool = False
    released: datetime | None = None

    def __str__(self) -> str:
        """Name it as people do."""
        return f"{self.namespace}/{self.name}"


def pending_pod(pod: Pod) -> PendingPod:
    """Keep of a pod what decides whether room is made for it."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    group = spec.scheduling_group.pod_group_name if spec.scheduling_group is not None else None
    return PendingPod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        priority=spec.priority or 0,
        class_name=spec.priority_class_name or "",
        policy=spec.preemption_policy or "",
        nominated=status.nominated_node_name or "",
        unfit_since=_unfit_since(pod),
        created=meta.creation_timestamp,
        group=group or "",
        leaving=meta.deletion_timestamp is not None or status.phase in ENDED_PHASES,
        gated=any(one.type == "PodScheduled" and one.reason == GATED for one in status.conditions or ()),
    )


def _going_on(pod: PendingPod, before: PendingPod | None, now: datetime) -> PendingPod:
    """Return a pod as it goes on from what was seen: what its condition says begins with its gates."""
    released = None if before is None else now if before.gated and not pod.gated else before.released
    if released is None:
        return pod
    since = None if pod.unfit_since is None else max(pod.unfit_since, released)
    return msgspec.structs.replace(pod, released=released, unfit_since=since)


def _unfit_since(pod: Pod) -> datetime | None:
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            known = condition.reason == UNSCHEDULABLE
            return condition.last_transition_time or pod.metadata.creation_timestamp if known else None
    return None


class PendingPods(ByUid[Pod, PendingPod]):
    """All of them. `tell` is called with the UID of each that came, changed or left."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        super().__init__()
        self._now = now
        self.tell: Callable[[str], None] = lambda uid: None
        self._of_class: defaultdict[str, dict[str, PendingPod]] = defaultdict(dict)
        self._nominated: dict[str, PendingPod] = {}

    def keep(self, item: Pod) -> PendingPod | None:
        """Return a pod; one that has been bound is left out."""
        if item.spec.node_name:
            return None
        return _going_on(pending_pod(item), self.by_uid.get(item.metadata.uid), self._now())

    def changed(self, uid: str) -> None:
        """Tell of it."""
        self.tell(uid)

    def _set(self, uid: str, value: PendingPod | None) -> None:
        if (before := self.by_uid.get(uid)) is not None:
            del self._of_class[before.class_name][uid]
            if not self._of_class[before.class_name]:
                del self._of_class[before.class_name]
            self._nominated.pop(uid, None)
        if value is not None:
            self._of_class[value.class_name][uid] = value
            if value.nominated and not value.leaving:
                self._nominated[uid] = value
        super()._set(uid, value)

    def nominated(self) -> Iterator[PendingPod]:
        """Return the pods that are nominated, those that leave excepted."""
        return iter(tuple(self._nominated.values()))

    def of_classes(self, names: Iterable[str]) -> Iterator[PendingPod]:
        """Return the pods of some PriorityClasses. O(these pods)."""
        return (pod for name in names for pod in self._of_class.get(name, {}).values())


class PriorityClasses:
    """The cluster's, by name. `refuse` is called with each class that asks for what it cannot have."""

    def __init__(self, refuse: Callable[[PriorityClass], None] = lambda item: None) -> None:
        self._by_name: dict[str, PriorityClass] = {}
        self._refuse = refuse
        self.external: frozenset[str] = frozenset()
        """Names of the classes that are opted in."""
        self._delays: dict[str, timedelta] = {}

    def put(self, item: PriorityClass) -> None:
        """Take a class; one that is annotated and may preempt by itself is refused."""
        before = self._by_name.get(item.metadata.name)
        self._by_name[item.metadata.name] = item
        known = before is not None and before.metadata.annotations == item.metadata.annotations
        if _is_refused(item) and not known:
            self._refuse(item)
        self._look()

    def drop(self, item: PriorityClass) -> None:
        """Forget a class."""
        self._by_name.pop(item.metadata.name, None)
        self._look()

    def retain(self, uids: set[str]) -> None:
        """Forget every class but these."""
        self._by_name = {name: one for name, one in self._by_name.items() if one.metadata.uid in uids}
        self._look()

    def refused(self) -> list[PriorityClass]:
        """Return the classes that are annotated and may preempt by themselves."""
        return [one for one in self._by_name.values() if _is_refused(one)]

    def may_preempt_at(self, pod: PendingPod, now: datetime) -> datetime:
        """Return from when on a pod preempts, by the delay of its class; one that cannot be read is none."""
        since = now if pod.unfit_since is None else min(pod.unfit_since, now)
        return since + self._delays.get(pod.class_name, timedelta())

    def _look(self) -> None:
        found = {name: one for name, one in self._by_name.items() if is_external(one)}
        self.external = frozenset(found)
        delays = {name: delay_of(one) for name, one in found.items()}
        self._delays = {name: delay for name, delay in delays.items() if isinstance(delay, timedelta)}


def _is_refused(item: PriorityClass) -> bool:
    return asks_for_external(item) and item.preemption_policy != NEVER
