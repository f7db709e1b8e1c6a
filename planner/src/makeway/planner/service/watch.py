"""From the API server into the snapshot: ten list-watches and what each does with an object.

Resources of APIs that clusters may not have are followed as long as discovery says that they are served:

* Pod groups, of whichever version is served, or none. Where none is, nothing is listed, no right is needed
  and every pod goes by itself. While that is not known, or groups may not be read, pods that name one stay.
* Karpenter's NodeClaims: which nodes are being made. Where they may not be read no node is promised, and a
  delay is time alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Generic, NoReturn, TypeVar

import structlog

from makeway.core.k8s.authorship import with_writers
from makeway.core.k8s.by_uid import ByUid, MetadataObject
from makeway.core.k8s.node_claims import GROUP, PLURAL, VERSION, NodeClaim
from makeway.core.k8s.objects import (
    DaemonSet,
    DeviceClass,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    StorageClass,
)
from makeway.core.k8s.pod_groups import CompositePodGroup, PodGroup
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.resources import served_by
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.promised import ComingNodes
from makeway.planner.snapshot.changes import (
    Change,
    KnowDaemonSets,
    KnowPodGroups,
    KnowVolumes,
    PutDevices,
    RemovePod,
)
from makeway.planner.snapshot.objects import change_of, removal_of
from makeway.planner.snapshot.records import PodRecords
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.connections import OtherClusterError
from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.runtime.listwatch import Handler, ListWatch, ListWatchTimings, ObjectReader, Resource
from makeway.runtime.pod_group_api import COMPOSITES, POD_GROUPS, PodGroupApi, pod_group_api, served_resources

T = TypeVar("T", bound=MetadataObject)

_PODS: Final = "pods"


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

NEEDED: tuple[Resource[Any], ...] = (NAMESPACES, NODES, PRIORITY_CLASSES, BUDGETS, CLAIMS, PODS)

OPTIONAL: tuple[Resource[Any], ...] = (VOLUMES, STORAGE_CLASSES, DEVICE_CLASSES, DAEMON_SETS)
"""What may be missing, as with older rights."""

REFUSED_PAUSE_SECONDS = 600.0
"""How long at the most to wait before an optional resource that may not be read is asked for again."""

_log = structlog.get_logger()

DISCOVERY_SECONDS: Final = 300.0
"""How often it is asked what is served: an upgrade or an installation may bring it or remove it."""

RETRY_SECONDS: Final = 5.0
"""How long to wait where discovery does not answer."""

NODE_CLAIMS: Final = Resource(PLURAL, f"/apis/{GROUP}/{VERSION}/{PLURAL}", NodeClaim)

_GROUPS: Final[dict[type[PodGroup], str]] = {PodGroup: POD_GROUPS, CompositePodGroup: COMPOSITES}

S = TypeVar("S")


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
    """Namespaces, by name; kube-system's UID shows that this still is the same cluster."""

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
        *,
        pods: tuple[Handler[Pod], ...] = (),
        classes: tuple[Handler[PriorityClass], ...] = (),
        coming: ComingNodes | None = None,
    ) -> None:
        patient = ListWatchTimings(longest_pause=REFUSED_PAUSE_SECONDS)

        def feed(resource: Resource[Any]) -> Feed[Any]:
            return Feed(snapshot, metrics, resource.name)

        def follow(
            feeds: Mapping[Resource[Any], Handler[Any]], timings: ListWatchTimings | None = None
        ) -> tuple[ListWatch[Any], ...]:
            return tuple(ListWatch(api, one, into, metrics, timings) for one, into in feeds.items())

        needed: dict[Resource[Any], Handler[Any]] = {
            NAMESPACES: NamespaceFeed(snapshot, metrics, cluster_uid),
            NODES: feed(NODES),
            PRIORITY_CLASSES: HandlerGroup(feed(PRIORITY_CLASSES), *classes),
            BUDGETS: BudgetFeed(snapshot, metrics, BUDGETS.name),
            CLAIMS: feed(CLAIMS),
            PODS: HandlerGroup(PodFeed(snapshot, metrics), *pods),
        }
        optional: dict[Resource[Any], Handler[Any]] = {
            VOLUMES: known_feed(snapshot, metrics, VOLUMES.name, KnowVolumes),
            STORAGE_CLASSES: feed(STORAGE_CLASSES),
            DEVICE_CLASSES: DeviceClassFeed(snapshot),
            DAEMON_SETS: known_feed(snapshot, metrics, DAEMON_SETS.name, KnowDaemonSets),
        }
        self._parts = follow(needed)
        self._optional = follow(optional, patient)
        self._groups = pod_group_watch(api, snapshot, metrics, patient)
        self._claims = node_claim_watch(api, coming or ComingNodes(), metrics, patient)

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


class WhereServed(Generic[S]):
    """Follows what is served, for ever. `resource`: as logs name it.

    `discover` asks what is served; raises ApiError or ApiUnavailable. `parts`: the
    list-watches of what is.
    """

    def __init__(
        self,
        resource: str,
        discover: Callable[[], Awaitable[S]],
        parts: Callable[[S], Iterable[ListWatch[Any]]],
    ) -> None:
        self._resource = resource
        self._ask = discover
        self._parts = parts

    async def run(self) -> NoReturn:
        """Follow it."""
        served = await self._discover()
        while True:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(part.run()) for part in self._parts(served)]
                before = served
                while served == before:
                    await asyncio.sleep(DISCOVERY_SECONDS)
                    served = await self._discover()
                for task in running:
                    task.cancel()
            _log.info("resource_served_anew", resource=self._resource)

    async def _discover(self) -> S:
        while True:
            try:
                return await self._ask()
            except (ApiError, ApiUnavailable) as error:
                _log.warning("resource_undiscovered", resource=self._resource, error=str(error))
                await asyncio.sleep(RETRY_SECONDS)


def pod_group_watch(
    api: ObjectReader, snapshot: Snapshot, metrics: PlannerMetrics, timings: ListWatchTimings
) -> WhereServed[PodGroupApi]:
    """Return what follows pod groups where they are served; until that is known, pods that name one stay."""
    now, listed = PodGroupApi(), set[type[PodGroup]]()

    def kinds() -> list[type[PodGroup]]:
        """Return what is served."""
        return [kind for kind in _GROUPS if now.version and (now.composites or kind is PodGroup)]

    def tell(kind: type[PodGroup] | None = None) -> None:
        """Let the snapshot have what is known of groups, of which one kind has been listed."""
        listed.update(() if kind is None else (kind,))
        snapshot.apply(KnowPodGroups(bool(now.version), listed.issuperset(kinds()), bool(now.composites)))

    # They outlive what is served: groups that are gone meanwhile are forgotten with the next list.
    feeds = {
        kind: Feed[PodGroup](snapshot, metrics, name, partial(tell, kind)) for kind, name in _GROUPS.items()
    }

    def parts(served: PodGroupApi) -> list[ListWatch[PodGroup]]:
        nonlocal now
        now = served
        listed.clear()
        tell()
        return [
            ListWatch(
                api,
                Resource(_GROUPS[kind], served.path(composite=kind is CompositePodGroup), kind),
                feeds[kind],
                metrics,
                timings,
            )
            for kind in kinds()
        ]

    snapshot.apply(KnowPodGroups(True, False))
    return WhereServed(POD_GROUPS, partial(pod_group_api, api), parts)


def node_claim_watch(
    api: ObjectReader, coming: ComingNodes, metrics: PlannerMetrics, timings: ListWatchTimings
) -> WhereServed[bool]:
    """Return what follows NodeClaims where they are served; no node is coming any more where they are not."""

    async def served() -> bool:
        return PLURAL in await served_resources(api, GROUP, VERSION)

    def parts(served: bool) -> list[ListWatch[NodeClaim]]:
        if not served:
            coming.retain(set())
            return []
        return [ListWatch(api, NODE_CLAIMS, coming, metrics, timings)]

    return WhereServed(PLURAL, served, parts)
