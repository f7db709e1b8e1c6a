"""From the API server into the snapshot: ten list-watches and what each does with an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from makeway.core.k8s.authorship import with_writers
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
from makeway.planner.service.where_served import node_claim_watch, pod_group_watch
from makeway.planner.snapshot.changes import KnowDaemonSets, KnowVolumes
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.listwatch import Handler, ListWatch, ListWatchTimings, ObjectReader, Resource

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
