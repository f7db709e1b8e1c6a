"""From the API server's pod groups into the snapshot: whichever version is served, or none.

Pod groups are an API that clusters may not have. Discovery says whether they do; where they do not, nothing
is listed, no right is needed and every pod goes by itself. While that is not known, or groups may not be
read, pods that name one stay.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, NoReturn

import structlog

from makeway.core.k8s.pod_groups import CompositePodGroup, PodGroup
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.service.feeds import Feed
from makeway.planner.snapshot.changes import KnowPodGroups
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.runtime.listwatch import ListWatch, ListWatchTimings, ObjectReader, Resource
from makeway.runtime.pod_group_api import COMPOSITES, POD_GROUPS, PodGroupApi, pod_group_api

_log = structlog.get_logger()

DISCOVERY_SECONDS = 300.0
"""How often it is asked which groups are served: an upgrade may bring them."""

RETRY_SECONDS = 5.0
"""How long to wait where discovery does not answer."""


_NAMES: Final[dict[type[PodGroup], str]] = {PodGroup: POD_GROUPS, CompositePodGroup: COMPOSITES}


class _ServedAnew(Exception):  # noqa: N818 - not an error, a turn that the loop takes
    """Other groups are served than before."""


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
        served = await self._discover()
        while True:
            self._served = served
            try:
                async with asyncio.TaskGroup() as tasks:
                    for part in self._parts(served):
                        tasks.create_task(part.run())
                    tasks.create_task(self._until_other_than(served))
            except* _ServedAnew:
                served = await self._discover()

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

    async def _discover(self) -> PodGroupApi:
        while True:
            try:
                return await pod_group_api(self._api)
            except (ApiError, ApiUnavailable) as error:
                _log.warning("pod_groups_undiscovered", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)

    async def _until_other_than(self, served: PodGroupApi) -> NoReturn:
        """Wait until something else is served. Raises _ServedAnew."""
        while True:
            await asyncio.sleep(DISCOVERY_SECONDS)
            if await self._discover() != served:
                _log.info("pod_groups_served_anew", before=served.version)
                raise _ServedAnew
