"""Following resources of APIs that clusters may not have, as long as discovery says that they are served.

* Pod groups, of whichever version is served, or none. Where none is, nothing is listed, no right is needed
  and every pod goes by itself. While that is not known, or groups may not be read, pods that name one stay.
* Karpenter's NodeClaims: which nodes are being made. Where they may not be read no node is promised, and a
  delay is time alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, Generic, NoReturn, TypeVar

import structlog

from makeway.core.k8s.node_claims import GROUP, PLURAL, VERSION, NodeClaim
from makeway.core.k8s.pod_groups import CompositePodGroup, PodGroup
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.promised import ComingNodes
from makeway.planner.service.feeds import Feed
from makeway.planner.snapshot.changes import KnowPodGroups
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.runtime.listwatch import ListWatch, ListWatchTimings, ObjectReader, Resource
from makeway.runtime.pod_group_api import (
    COMPOSITES,
    POD_GROUPS,
    PodGroupApi,
    pod_group_api,
    served_resources,
)

_log = structlog.get_logger()

DISCOVERY_SECONDS: Final = 300.0
"""How often it is asked what is served: an upgrade or an installation may bring it, and it may go."""

RETRY_SECONDS: Final = 5.0
"""How long to wait where discovery does not answer."""

NODE_CLAIMS: Final = Resource(PLURAL, f"/apis/{GROUP}/{VERSION}/{PLURAL}", NodeClaim)

_GROUPS: Final[dict[type[PodGroup], str]] = {PodGroup: POD_GROUPS, CompositePodGroup: COMPOSITES}

S = TypeVar("S")


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
