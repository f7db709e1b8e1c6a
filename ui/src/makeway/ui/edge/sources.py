"""Where the views come from: the streams as they were read, the planner, and the cluster."""

from __future__ import annotations

import asyncio
import re
from typing import Final

import msgspec

from makeway.bus.client import Bus
from makeway.bus.errors import BusUnavailable
from makeway.bus.queue_report import QueueQuery, QueueReport
from makeway.cli.why.explanation import Explanation, of_decision, of_order, of_pod
from makeway.planner.offline.results import SimulatedPod
from makeway.runtime.kube import Api
from makeway.runtime.settings import ConfigSettings
from makeway.ui.edge.cluster import ClusterReader
from makeway.ui.edge.reader import Reader
from makeway.ui.model.now import Acting, acting_of
from makeway.ui.model.observed import ObservedView
from makeway.ui.model.queues import QueueTreeView, tree_of
from makeway.ui.model.simulating import Standing

_QUEUES_SECONDS: Final = 5.0
_STORIES_AT_ONCE: Final = 2
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_ID: Final = re.compile(r"(ord|dec)-[A-Za-z0-9_-]{1,124}")


class NotThereError(Exception):
    """What was asked for is not there; the message says what was looked for."""


class Sources:
    """All that the endpoints ask."""

    def __init__(self, bus: Bus, api: Api, settings: ConfigSettings, reader: Reader) -> None:
        self.reader = reader
        self.cluster = ClusterReader(api, bus, settings)
        self._bus = bus
        self._api = api
        self._settings = settings
        self._stories = asyncio.Semaphore(_STORIES_AT_ONCE)

    def now(self) -> Acting:
        """Return who answers, and whether pods are evicted."""
        self.reader.want_parts()
        return acting_of(self.reader.parts)

    def observed(self, most: int) -> ObservedView:
        """Return the last comparisons, and the sum of those that are kept."""
        return self.reader.comparisons.view(most, loaded=self.reader.timeline.loaded)

    async def queues(self) -> QueueTreeView:
        """Ask the leading planner. Raises BusUnavailable, NotThereError."""
        try:
            answer = await self._bus.request_queues(msgspec.json.encode(QueueQuery()), _QUEUES_SECONDS)
        except BusUnavailable as error:
            raise BusUnavailable(f"No planner answers: {error}") from error
        report = msgspec.json.decode(answer, type=QueueReport)
        if not report.revision:
            raise NotThereError("There are no queues: no queues.yaml is effective.")
        return tree_of(report)

    async def story(self, what: str) -> Explanation:
        """Return all that is known of a pod (`namespace/name`), an order or a decision.

        Raises NotThereError, NotKept, ValueError, ApiError, ApiUnavailable, BusError.
        """
        if not _ID.fullmatch(what):
            _pod(what)
        async with self._stories:
            return await self.explain(what)

    async def explain(self, what: str) -> Explanation:
        """Read it. Raises as `story`."""
        if _ID.fullmatch(what):
            return await (of_order if what.startswith("ord-") else of_decision)(self._bus, what)
        namespace, name = _pod(what)
        return await of_pod(self._bus, self._api, self._settings, namespace, name, plan=False)

    async def standing(self, pod: str) -> Standing:
        """Say what stands in the way of a pending pod. Raises as `ClusterReader.standing`."""
        namespace, name = _pod(pod)
        found = await self.cluster.standing(namespace, name)
        if found is None:
            raise NotThereError(f"There is no pending pod {namespace}/{name} any more.")
        return found

    async def simulate(self, manifest: str, namespace: str) -> tuple[SimulatedPod, ...]:
        """Say what would become of pods. Raises as `ClusterReader.simulate`."""
        if not _NAME.fullmatch(namespace):
            raise NotThereError("This is no name of a namespace.")
        return await self.cluster.simulate(manifest, namespace)


def _pod(what: str) -> tuple[str, str]:
    """Return a pod's namespace and name: what is put into a path of the API server."""
    namespace, _, name = what.partition("/")
    if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(name):
        raise NotThereError("Give a pod as namespace/name, or the id of an order or decision.")
    return namespace, name
