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
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.promised import ComingNodes
from makeway.planner.service.feeds import (
    BudgetFeed,
    DeviceClassFeed,
    Feed,
    HandlerGroup,
    NamespaceFeed,
    PodFeed,
    known_feed,
)
from makeway.planner.snapshot.changes import KnowDaemonSets, KnowPodGroups, KnowVolumes
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.runtime.listwatch import Handler, ListWatch, ListWatchTimings, ObjectReader, Resource
from makeway.runtime.pod_group_api import COMPOSITES, POD_GROUPS, PodGroupApi, pod_group_api, served_resources

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
"""How often it is asked what is served: an upgrade or an installation may bring it, and it may go."""

RETRY_SECONDS: Final = 5.0
"""How long to wait where discovery does not answer."""

NODE_CLAIMS: Final = Resource(PLURAL, f"/apis/{GROUP}/{VERSION}/{PLURAL}", NodeClaim)

_GROUPS: Final[dict[type[PodGroup], str]] = {PodGroup: POD_GROUPS, CompositePodGroup: COMPOSITES}

S = TypeVar("S")


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
        snapshot.apply(KnowPodGroups(bool(now.version), listed.issuperset(kinds()), now.composites))

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
