"""From list-watches into the snapshot: what becomes of each object that has come, changed or gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import structlog

from makeway.core.k8s.by_uid import ByUid, MetadataObject
from makeway.core.k8s.objects import DeviceClass, Namespace, Pod, PodDisruptionBudget
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.resources import served_by
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.snapshot.changes import Change, PutDevices, RemovePod
from makeway.planner.snapshot.objects import change_of, removal_of
from makeway.planner.snapshot.records import PodRecords
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.connections import OtherClusterError
from makeway.runtime.listwatch import Handler

_log = structlog.get_logger()

T = TypeVar("T", bound=MetadataObject)

_PODS: Final = "pods"


def _nothing() -> None:
    """Do nothing."""


def _version(item: MetadataObject) -> tuple[str, str]:
    return item.metadata.uid, item.metadata.resource_version


class Feed(Generic[T]):
    """Objects of one kind, by name. One that cannot be read counts as it did before, or not at all.

    `resource`: as metrics and logs name the kind. `listed` is called after each complete list. O(1) an
    object.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        metrics: PlannerMetrics,
        resource: str,
        listed: Callable[[], None] = _nothing,
    ) -> None:
        self._snapshot = snapshot
        self._metrics = metrics
        self._resource = resource
        self._listed = listed
        self._records = PodRecords()
        self._kept: dict[Change, tuple[str, str]] = {}  # what forgets it; UID and resourceVersion

    def put(self, item: T) -> None:
        """Take an object."""
        if self._apply(item):
            self._kept[removal_of(item)] = _version(item)

    def drop(self, item: T) -> None:
        """Forget an object, unless another of its name has come."""
        self._forget(removal_of(item), item.metadata.uid)

    def retain(self, uids: set[str]) -> None:
        """Forget objects that a complete list does not have."""
        for key, uid in [(key, uid) for key, (uid, _) in self._kept.items() if uid not in uids]:
            self._forget(key, uid)
        self._listed()

    def _apply(self, item: T) -> bool:
        try:
            change = change_of(item, self._records)
        except QuantityError as error:
            self._metrics.undecodable(self._resource)
            _log.warning(
                "object_undecodable",
                resource=self._resource,
                name=f"{item.metadata.namespace}/{item.metadata.name}".lstrip("/"),
                uid=item.metadata.uid,
                error=str(error),
            )
            return False
        if change is not None:
            self._snapshot.apply(change)
        return True

    def _forget(self, key: Change, uid: str) -> None:
        if key in self._kept and self._kept[key][0] == uid:
            del self._kept[key]
            self._snapshot.apply(key)


class PodFeed(Feed[Pod]):
    """Pods, by UID; the snapshot alone remembers which there are."""

    def __init__(self, snapshot: Snapshot, metrics: PlannerMetrics) -> None:
        super().__init__(snapshot, metrics, _PODS)

    def put(self, item: Pod) -> None:
        """Count the pod and put it into its node's columns."""
        self._apply(item)

    def drop(self, item: Pod) -> None:
        """Forget a pod that was deleted or has ended."""
        self._snapshot.apply(RemovePod(item.metadata.uid))

    def retain(self, uids: set[str]) -> None:
        """Forget pods that a complete list does not have."""
        self._snapshot.retain_pods(uids)


class BudgetFeed(Feed[PodDisruptionBudget]):
    """Pod disruption budgets. One that is listed again as it was tells nothing new of pods that left."""

    def put(self, item: PodDisruptionBudget) -> None:
        """Compile the budget."""
        if self._kept.get(removal_of(item)) != _version(item):
            super().put(item)


class NamespaceFeed(Feed[Namespace]):
    """Namespaces, by name; kube-system's UID says whether this still is the same cluster."""

    def __init__(self, snapshot: Snapshot, metrics: PlannerMetrics, cluster_uid: str) -> None:
        super().__init__(snapshot, metrics, "namespaces")
        self._cluster_uid = cluster_uid

    def put(self, item: Namespace) -> None:
        """Keep the namespace. Raises OtherClusterError."""
        metadata = item.metadata
        if metadata.name == "kube-system" and metadata.uid != self._cluster_uid:
            raise OtherClusterError(f"this is cluster {metadata.uid}, it was {self._cluster_uid}")
        super().put(item)


class DeviceClassFeed(ByUid[DeviceClass, frozenset[str]]):
    """Which extended resources device classes serve; not known before they have been listed."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._known = False
        snapshot.apply(PutDevices(None))

    def keep(self, item: DeviceClass) -> frozenset[str]:
        """Return what a class serves."""
        return served_by(item)

    def changed(self, uid: str) -> None:
        """Tell the snapshot what all of them serve."""
        if self._known:
            self._snapshot.apply(PutDevices(frozenset().union(*self.by_uid.values())))

    def retain(self, uids: set[str]) -> None:
        """Forget classes that a complete list does not have."""
        super().retain(uids)
        self._known = True
        self.changed("")


def known_feed(
    snapshot: Snapshot, metrics: PlannerMetrics, resource: str, known: Callable[[bool], Change]
) -> Feed[Any]:
    """Return what takes objects that are not known before they have been listed, as `known` says."""
    snapshot.apply(known(False))
    return Feed(snapshot, metrics, resource, lambda: snapshot.apply(known(True)))


class HandlerGroup(Generic[T]):
    """Several handlers of one resource, as one."""

    def __init__(self, *handlers: Handler[T]) -> None:
        self._handlers = handlers

    def put(self, item: T) -> None:
        """Tell each."""
        for handler in self._handlers:
            handler.put(item)

    def drop(self, item: T) -> None:
        """Tell each."""
        for handler in self._handlers:
            handler.drop(item)

    def retain(self, uids: set[str]) -> None:
        """Tell each."""
        for handler in self._handlers:
            handler.retain(uids)
