"""From the API server's pod groups into the snapshot: whichever version is served, or none.

Pod groups are an API that clusters may not have. Discovery says whether they do; where they do not, nothing
is listed, no right is needed and every pod goes by itself. While that is not known, or groups may not be
read, pods that name one stay.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NoReturn

from makeway.core.k8s.pod_groups import CompositePodGroup, PodGroup
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.service.feeds import Feed
from makeway.planner.service.where_served import WhereServed
from makeway.planner.snapshot.changes import KnowPodGroups
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.listwatch import ListWatch, ListWatchTimings, ObjectReader, Resource
from makeway.runtime.pod_group_api import COMPOSITES, POD_GROUPS, PodGroupApi, pod_group_api

_NAMES: Final[dict[type[PodGroup], str]] = {PodGroup: POD_GROUPS, CompositePodGroup: COMPOSITES}


class PodGroupWatch:
    """Follows pod groups where they are served. `run` is a part of the process."""

    def __init__(
        self, api: ObjectReader, snapshot: Snapshot, metrics: PlannerMetrics, timings: ListWatchTimings
    ) -> None:
        self._api = api
        self._snapshot = snapshot
        self._metrics = metrics
        self._timings = timings
        self._served = PodGroupApi()
        self._listed: set[type[PodGroup]] = set()
        self._feeds = {
            kind: Feed[PodGroup](snapshot, metrics, name, partial(self._has_listed, kind))
            for kind, name in _NAMES.items()
        }
        snapshot.apply(KnowPodGroups(True, False))

    async def run(self) -> NoReturn:
        """Follow what is served, for ever."""
        await WhereServed(POD_GROUPS, lambda: pod_group_api(self._api), self._parts).run()

    def _kinds(self) -> list[type[PodGroup]]:
        """Return what is served."""
        served = self._served
        return [kind for kind in _NAMES if served.version and (served.composites or kind is PodGroup)]

    def _has_listed(self, kind: type[PodGroup]) -> None:
        self._listed.add(kind)
        self._tell()

    def _tell(self) -> None:
        """Let the snapshot have what is known of groups."""
        listed = self._listed.issuperset(self._kinds())
        self._snapshot.apply(KnowPodGroups(bool(self._served.version), listed, self._served.composites))

    def _parts(self, served: PodGroupApi) -> list[ListWatch[PodGroup]]:
        self._served = served
        self._listed.clear()
        self._tell()
        return [
            ListWatch(
                self._api,
                Resource(_NAMES[kind], served.path(composite=kind is CompositePodGroup), kind),
                self._feeds[kind],
                self._metrics,
                self._timings,
            )
            for kind in self._kinds()
        ]
