"""From the API server's pod groups into the snapshot: whichever version is served, or none.

Pod groups are an API that clusters may not have. Discovery says whether they do; where they do not, nothing
is listed, no right is needed and every pod goes by itself. While that is not known, or groups may not be
read, pods that name one stay.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from makeway.core.k8s.pod_groups import CompositePodGroup, PodGroup
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.service.feeds import Feed
from makeway.planner.service.where_served import WhereServed
from makeway.planner.snapshot.changes import KnowPodGroups
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.listwatch import ListWatch, ListWatchTimings, ObjectReader, Resource
from makeway.runtime.pod_group_api import COMPOSITES, POD_GROUPS, PodGroupApi, pod_group_api

_NAMES: Final[dict[type[PodGroup], str]] = {PodGroup: POD_GROUPS, CompositePodGroup: COMPOSITES}


def pod_group_watch(
    api: ObjectReader, snapshot: Snapshot, metrics: PlannerMetrics, timings: ListWatchTimings
) -> WhereServed[PodGroupApi]:
    """Return what follows pod groups where they are served; until that is known, pods that name one stay."""
    now, listed = PodGroupApi(), set[type[PodGroup]]()

    def kinds() -> list[type[PodGroup]]:
        """Return what is served."""
        return [kind for kind in _NAMES if now.version and (now.composites or kind is PodGroup)]

    def tell(kind: type[PodGroup] | None = None) -> None:
        """Let the snapshot have what is known of groups, of which one kind has been listed."""
        listed.update(() if kind is None else (kind,))
        snapshot.apply(KnowPodGroups(bool(now.version), listed.issuperset(kinds()), now.composites))

    # They outlive what is served: groups that are gone meanwhile are forgotten with the next list.
    feeds = {
        kind: Feed[PodGroup](snapshot, metrics, name, partial(tell, kind)) for kind, name in _NAMES.items()
    }

    def parts(served: PodGroupApi) -> list[ListWatch[PodGroup]]:
        nonlocal now
        now = served
        listed.clear()
        tell()
        return [
            ListWatch(
                api,
                Resource(_NAMES[kind], served.path(composite=kind is CompositePodGroup), kind),
                feeds[kind],
                metrics,
                timings,
            )
            for kind in kinds()
        ]

    snapshot.apply(KnowPodGroups(True, False))
    return WhereServed(POD_GROUPS, partial(pod_group_api, api), parts)
