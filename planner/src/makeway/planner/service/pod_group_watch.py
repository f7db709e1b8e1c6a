"""From the API server's pod groups into the snapshot: whichever version is served, or none.

Pod groups are an API that clusters may not have. Discovery says whether they do; where they do not, nothing
is listed, no right is needed and every pod goes by itself. While that is not known, or groups may not be
read, pods that name one stay.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import structlog

from makeway.core.k8s.pod_groups import GroupKey, PodGroup, group_record
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.snapshot.changes import KnowPodGroups, PutPodGroup, RemovePodGroup
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.runtime.listwatch import ListWatch, ListWatchTimings, ObjectReader, Resource
from makeway.runtime.pod_group_api import COMPOSITES, POD_GROUPS, PodGroupApi, pod_group_api

_log = structlog.get_logger()

DISCOVERY_SECONDS = 300.0
"""How often it is asked which groups are served: an upgrade may bring them."""

RETRY_SECONDS = 5.0
"""How long to wait where discovery does not answer."""


class _ServedAnew(Exception):  # noqa: N818 - not an error, a turn that the loop takes
    """Other groups are served than before."""


class PodGroupFeed:
    """PodGroups, or CompositePodGroups, by namespace and name. `listed`: a list has been complete."""

    def __init__(self, snapshot: Snapshot, following: PodGroupWatch, *, composite: bool) -> None:
        self.listed = False
        self._snapshot = snapshot
        self._following = following
        self._composite = composite

    def put(self, item: PodGroup) -> None:
        """Keep the group."""
        self._snapshot.apply(PutPodGroup(group_record(item, composite=self._composite)))

    def drop(self, item: PodGroup) -> None:
        """Forget the group; its pods stay."""
        key = GroupKey(item.metadata.namespace, item.metadata.name, self._composite)
        record = self._snapshot.groups.records.get(key)
        if record is not None and record.uid == item.metadata.uid:
            self._snapshot.apply(RemovePodGroup(key))

    def retain(self, uids: set[str]) -> None:
        """Forget groups that a complete list does not have."""
        records = self._snapshot.groups.records
        gone = [
            key for key, one in records.items() if key.composite == self._composite and one.uid not in uids
        ]
        for key in gone:
            self._snapshot.apply(RemovePodGroup(key))
        self.listed = True
        self._following.tell()


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
        self._feeds: tuple[PodGroupFeed, ...] = ()
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

    def tell(self) -> None:
        """Tell the snapshot what is known of groups."""
        listed = all(feed.listed for feed in self._feeds)
        self._snapshot.apply(KnowPodGroups(bool(self._served.version), listed, self._served.composites))

    def _parts(self, served: PodGroupApi) -> list[ListWatch[Any]]:
        kinds = [False] if served.version else []
        if served.version and served.composites:
            kinds.append(True)
        self._feeds = tuple(PodGroupFeed(self._snapshot, self, composite=composite) for composite in kinds)
        self.tell()
        return [
            ListWatch(
                self._api,
                Resource(COMPOSITES if composite else POD_GROUPS, served.path(composite=composite), PodGroup),
                feed,
                self._metrics,
                self._timings,
            )
            for composite, feed in zip(kinds, self._feeds, strict=True)
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
