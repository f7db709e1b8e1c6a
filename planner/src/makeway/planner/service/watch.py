"""From the API server into the snapshot: ten list-watches and what each does with an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

import structlog

from makeway.core.k8s.authorship import with_writers
from makeway.core.k8s.budget import budget_of
from makeway.core.k8s.daemonset_owner import daemonset_owner
from makeway.core.k8s.nodes import RequiredNodes
from makeway.core.k8s.objects import (
    DaemonSet,
    DeviceClass,
    Metadata,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    StorageClass,
)
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.resources import served_by
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.promised import ComingNodes
from makeway.planner.service.node_claim_watch import NodeClaimWatch
from makeway.planner.service.pod_group_watch import PodGroupWatch
from makeway.planner.snapshot.changes import (
    KnowDaemonSets,
    KnowVolumes,
    PutBudget,
    PutClaim,
    PutDaemonSet,
    PutDevices,
    PutNamespace,
    PutNode,
    PutPod,
    PutPriorityClass,
    PutStorageClass,
    PutVolume,
    RemoveBudget,
    RemoveDaemonSet,
    RemoveNamespace,
    RemoveNode,
    RemovePod,
    RemovePriorityClass,
)
from makeway.planner.snapshot.records import PodRecords, node_record
from makeway.planner.snapshot.state import Snapshot
from makeway.planner.snapshot.volumes import claim_record, class_nodes, volume_record, waits
from makeway.runtime.connections import OtherClusterError
from makeway.runtime.listwatch import (
    Handler,
    ListWatch,
    ListWatchTimings,
    MetadataObject,
    ObjectReader,
    Resource,
)

_log = structlog.get_logger()

T = TypeVar("T", bound=MetadataObject)


class _Named(Protocol):
    @property
    def metadata(self) -> Metadata: ...


N = TypeVar("N", bound=_Named)

NODES = Resource("nodes", "/api/v1/nodes", Node)
PODS = Resource(
    "pods",
    "/api/v1/pods",
    Pod,
    # As in kube-scheduler: a pod that has ended takes no room. It leaves the selection with a DELETED event.
    field_selector="status.phase!=Succeeded,status.phase!=Failed",
    closer=with_writers,
)
PRIORITY_CLASSES = Resource("priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses", PriorityClass)
BUDGETS = Resource("poddisruptionbudgets", "/apis/policy/v1/poddisruptionbudgets", PodDisruptionBudget)
CLAIMS = Resource("persistentvolumeclaims", "/api/v1/persistentvolumeclaims", PersistentVolumeClaim)
NAMESPACES = Resource("namespaces", "/api/v1/namespaces", Namespace)
VOLUMES = Resource("persistentvolumes", "/api/v1/persistentvolumes", PersistentVolume)
STORAGE_CLASSES = Resource("storageclasses", "/apis/storage.k8s.io/v1/storageclasses", StorageClass)
DAEMON_SETS = Resource("daemonsets", "/apis/apps/v1/daemonsets", DaemonSet)
DEVICE_CLASSES = Resource("deviceclasses", "/apis/resource.k8s.io/v1/deviceclasses", DeviceClass)

REFUSED_PAUSE_SECONDS = 600.0
"""How long at the most to wait before an optional resource that may not be read is asked for again."""


def _nothing() -> None:
    """Do nothing."""


def _name_of(item: PodDisruptionBudget | PersistentVolumeClaim) -> tuple[str, str]:
    return item.metadata.namespace, item.metadata.name


class PodFeed:
    """Pods, by UID. A pod whose quantities cannot be read counts as it did before, or not at all."""

    def __init__(self, snapshot: Snapshot, metrics: PlannerMetrics) -> None:
        self._records = PodRecords()
        self._snapshot = snapshot
        self._metrics = metrics

    def put(self, item: Pod) -> None:
        """Count the pod and put it into its node's columns."""
        try:
            self._snapshot.apply(PutPod(self._records.record(item)))
        except QuantityError as error:
            self._metrics.undecodable(PODS.name)
            _log.warning(
                "object_undecodable",
                resource=PODS.name,
                pod=f"{item.metadata.namespace}/{item.metadata.name}",
                pod_uid=item.metadata.uid,
                error=str(error),
            )

    def drop(self, item: Pod) -> None:
        """Forget a pod that was deleted or has ended."""
        self._snapshot.apply(RemovePod(item.metadata.uid))

    def retain(self, uids: set[str]) -> None:
        """Forget pods that a complete list does not have."""
        self._snapshot.retain_pods(uids)


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


class NodeFeed:
    """Nodes, by name."""

    def __init__(self, snapshot: Snapshot, metrics: PlannerMetrics) -> None:
        self._snapshot = snapshot
        self._metrics = metrics
        self._names: dict[str, str] = {}

    def put(self, item: Node) -> None:
        """Count what the node can hold."""
        name = item.metadata.name
        try:
            self._snapshot.apply(PutNode(node_record(item)))
        except QuantityError as error:
            self._metrics.undecodable(NODES.name)
            _log.warning("object_undecodable", resource=NODES.name, node=name, error=str(error))
            return
        self._names[name] = item.metadata.uid

    def drop(self, item: Node) -> None:
        """Forget the node; its pods go by themselves."""
        if self._names.get(item.metadata.name) == item.metadata.uid:
            del self._names[item.metadata.name]
            self._snapshot.apply(RemoveNode(item.metadata.name))

    def retain(self, uids: set[str]) -> None:
        """Forget nodes that a complete list does not have."""
        for name in [name for name, uid in self._names.items() if uid not in uids]:
            del self._names[name]
            self._snapshot.apply(RemoveNode(name))


class BudgetFeed:
    """Pod disruption budgets, by namespace and name."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._seen: dict[tuple[str, str], tuple[str, str]] = {}  # UID and resourceVersion

    def put(self, item: PodDisruptionBudget) -> None:
        """Compile the budget. One that is listed again as it was tells nothing new of pods that left."""
        key, seen = _name_of(item), (item.metadata.uid, item.metadata.resource_version)
        if self._seen.get(key) == seen:
            return
        self._seen[key] = seen
        self._snapshot.apply(PutBudget(budget_of(item)))

    def drop(self, item: PodDisruptionBudget) -> None:
        """Forget the budget."""
        key = _name_of(item)
        if key in self._seen and self._seen[key][0] == item.metadata.uid:
            del self._seen[key]
            self._snapshot.apply(RemoveBudget(key))

    def retain(self, uids: set[str]) -> None:
        """Forget budgets that a complete list does not have."""
        for key in [key for key, (uid, _) in self._seen.items() if uid not in uids]:
            del self._seen[key]
            self._snapshot.apply(RemoveBudget(key))


class PriorityClassFeed:
    """Priority classes, by name."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def put(self, item: PriorityClass) -> None:
        """Keep the class."""
        self._snapshot.apply(PutPriorityClass(item))

    def drop(self, item: PriorityClass) -> None:
        """Forget the class."""
        self._snapshot.apply(RemovePriorityClass(item.metadata.name))

    def retain(self, uids: set[str]) -> None:
        """Forget classes that a complete list does not have."""
        classes = self._snapshot.priority_classes
        for name in [name for name, item in classes.items() if item.metadata.uid not in uids]:
            self._snapshot.apply(RemovePriorityClass(name))


class ClaimFeed:
    """Persistent volume claims, by namespace and name: volume, class, and which pods may use them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._uids: dict[tuple[str, str], str] = {}

    def put(self, item: PersistentVolumeClaim) -> None:
        """Keep the claim."""
        key = _name_of(item)
        self._uids[key] = item.metadata.uid
        self._snapshot.apply(PutClaim.of(key, claim_record(item)))

    def drop(self, item: PersistentVolumeClaim) -> None:
        """Forget the claim."""
        self._forget(_name_of(item), item.metadata.uid)

    def retain(self, uids: set[str]) -> None:
        """Forget claims that a complete list does not have."""
        for key, uid in [(key, uid) for key, uid in self._uids.items() if uid not in uids]:
            self._forget(key, uid)

    def _forget(self, key: tuple[str, str], uid: str) -> None:
        if self._uids.get(key) == uid:
            del self._uids[key]
            self._snapshot.apply(PutClaim.of(key))


class NamedFeed(Generic[N]):
    """Objects without a namespace, by name, as `keep`, `forget` and, after each list, `listed` take them."""

    def __init__(
        self, keep: Callable[[N], None], forget: Callable[[str], None], listed: Callable[[], None] = _nothing
    ) -> None:
        self._keep = keep
        self._forget = forget
        self._listed = listed
        self._uids: dict[str, str] = {}

    def put(self, item: N) -> None:
        """Keep the object."""
        self._uids[item.metadata.name] = item.metadata.uid
        self._keep(item)

    def drop(self, item: N) -> None:
        """Forget the object."""
        if self._uids.get(item.metadata.name) == item.metadata.uid:
            del self._uids[item.metadata.name]
            self._forget(item.metadata.name)

    def retain(self, uids: set[str]) -> None:
        """Forget objects that a complete list does not have."""
        for name in [name for name, uid in self._uids.items() if uid not in uids]:
            del self._uids[name]
            self._forget(name)
        self._listed()


class DeviceClassFeed:
    """Which extended resources device classes serve; not known before they have been listed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._served: dict[str, frozenset[str]] = {}
        self._known = False
        snapshot.apply(PutDevices(None))

    def feed(self) -> NamedFeed[DeviceClass]:
        """Return what takes the device classes."""
        return NamedFeed(self._keep, self._forget, self._listed)

    def _keep(self, item: DeviceClass) -> None:
        self._served[item.metadata.name] = served_by(item)
        self._tell()

    def _forget(self, name: str) -> None:
        del self._served[name]
        self._tell()

    def _listed(self) -> None:
        self._known = True
        self._tell()

    def _tell(self) -> None:
        if self._known:
            self._snapshot.apply(PutDevices(frozenset().union(*self._served.values())))


class DaemonSetFeed:
    """DaemonSets, by UID; pods claim them, and nothing is proven before they have been listed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        snapshot.apply(KnowDaemonSets(False))

    def put(self, item: DaemonSet) -> None:
        """Keep what proves ownership. What a DaemonSet's status tells makes no difference."""
        self._snapshot.apply(PutDaemonSet(daemonset_owner(item)))

    def drop(self, item: DaemonSet) -> None:
        """Forget the DaemonSet."""
        self._snapshot.apply(RemoveDaemonSet(item.metadata.uid))

    def retain(self, uids: set[str]) -> None:
        """Forget DaemonSets that a complete list does not have."""
        for uid in [uid for uid in self._snapshot.daemonsets.items if uid not in uids]:
            self._snapshot.apply(RemoveDaemonSet(uid))
        self._snapshot.apply(KnowDaemonSets(True))


def volume_feed(snapshot: Snapshot) -> NamedFeed[PersistentVolume]:
    """Return what takes the volumes; they are not known before they have been listed."""
    snapshot.apply(KnowVolumes(False))
    return NamedFeed(
        lambda item: snapshot.apply(PutVolume(item.metadata.name, volume_record(item))),
        lambda name: snapshot.apply(PutVolume(name, None)),
        lambda: snapshot.apply(KnowVolumes(True)),
    )


def storage_class_feed(snapshot: Snapshot) -> NamedFeed[StorageClass]:
    """Return what takes the storage classes."""
    return NamedFeed(
        lambda item: snapshot.apply(PutStorageClass(item.metadata.name, class_nodes(item), waits(item))),
        lambda name: snapshot.apply(PutStorageClass(name, RequiredNodes())),
    )


class NamespaceFeed:
    """Namespaces, by name; kube-system's UID says whether this still is the same cluster."""

    def __init__(self, snapshot: Snapshot, cluster_uid: str) -> None:
        self._snapshot = snapshot
        self._cluster_uid = cluster_uid

    def put(self, item: Namespace) -> None:
        """Keep the namespace. Raises OtherClusterError."""
        metadata = item.metadata
        if metadata.name == "kube-system" and metadata.uid != self._cluster_uid:
            raise OtherClusterError(f"this is cluster {metadata.uid}, it was {self._cluster_uid}")
        self._snapshot.apply(PutNamespace(item))

    def drop(self, item: Namespace) -> None:
        """Forget the namespace."""
        self._snapshot.apply(RemoveNamespace(item.metadata.name))

    def retain(self, uids: set[str]) -> None:
        """Forget namespaces that a complete list does not have."""
        namespaces = self._snapshot.namespaces
        for name in [name for name, item in namespaces.items() if item.metadata.uid not in uids]:
            self._snapshot.apply(RemoveNamespace(name))


class Watch:
    """The list-watches that keep one snapshot. `run` is a part of the process.

    `pods`, `classes`: further handlers of pods and of PriorityClasses. Volumes, storage classes, device
    classes and DaemonSets are optional: where they may not be read, as with older rights, they rule no node
    out, and no DaemonSet proves its pods. Pod groups, and nodes that are `coming`, are followed where there
    are any.
    """

    def __init__(
        self,
        api: ObjectReader,
        snapshot: Snapshot,
        metrics: PlannerMetrics,
        cluster_uid: str,
        timings: ListWatchTimings | None = None,
        *,
        pods: tuple[Handler[Pod], ...] = (),
        classes: tuple[Handler[PriorityClass], ...] = (),
        coming: ComingNodes | None = None,
    ) -> None:
        class_feed = HandlerGroup(PriorityClassFeed(snapshot), *classes)
        feed = HandlerGroup(PodFeed(snapshot, metrics), *pods)
        self._parts: tuple[ListWatch[Any], ...] = (
            ListWatch(api, NAMESPACES, NamespaceFeed(snapshot, cluster_uid), metrics, timings),
            ListWatch(api, NODES, NodeFeed(snapshot, metrics), metrics, timings),
            ListWatch(api, PRIORITY_CLASSES, class_feed, metrics, timings),
            ListWatch(api, BUDGETS, BudgetFeed(snapshot), metrics, timings),
            ListWatch(api, CLAIMS, ClaimFeed(snapshot), metrics, timings),
            ListWatch(api, PODS, feed, metrics, timings),
        )
        patient = replace(timings or ListWatchTimings(), longest_pause=REFUSED_PAUSE_SECONDS)
        self._optional: tuple[ListWatch[Any], ...] = (
            ListWatch(api, VOLUMES, volume_feed(snapshot), metrics, patient),
            ListWatch(api, STORAGE_CLASSES, storage_class_feed(snapshot), metrics, patient),
            ListWatch(api, DEVICE_CLASSES, DeviceClassFeed(snapshot).feed(), metrics, patient),
            ListWatch(api, DAEMON_SETS, DaemonSetFeed(snapshot), metrics, patient),
        )
        self._groups = PodGroupWatch(api, snapshot, metrics, patient)
        self._claims = NodeClaimWatch(api, coming or ComingNodes(), metrics, patient)

    @property
    def synced(self) -> bool:
        """Whether every resource that is needed has been listed once."""
        return all(part.synced.is_set() for part in self._parts)

    def age_seconds(self) -> float:
        """Return how long ago the quietest resource that is needed was heard."""
        return max(part.age_seconds() for part in self._parts)

    def behind(self, seen: Mapping[str, int]) -> bool:
        """Whether a client that has seen these versions, by resource, knows more; yes where it is empty."""
        return not seen or any(part.version < seen.get(part.resource.name, 0) for part in self._parts)

    def unhealthy(self) -> str:
        """Return what stands in the way of a fresh snapshot, for readiness."""
        return "; ".join(trouble for part in self._parts if (trouble := part.unhealthy()))

    def runs(self) -> list[Any]:
        """Return the coroutines to run, one a resource; each runs for ever."""
        return [
            *(part.run() for part in (*self._parts, *self._optional)),
            self._groups.run(),
            self._claims.run(),
        ]
