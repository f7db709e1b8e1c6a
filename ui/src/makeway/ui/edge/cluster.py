"""The cluster, read when someone looks at it and kept for a moment: one reading serves all who look.

Every reading lists nodes, pods and the rest once, as `makeway simulate` does. Plans run in a thread, one at a
time: they take a tenth of a second on 5,000 nodes.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from makeway.bus.client import Bus
from makeway.cli.why.planning import ledger_of
from makeway.core.k8s.objects import Pod
from makeway.planner.offline.counterfactuals.changes import fork
from makeway.planner.offline.live import read_world
from makeway.planner.offline.results import SimulatedPod
from makeway.planner.offline.world import World
from makeway.planner.orders.ledger import Ledger
from makeway.runtime.kube import Api, read_object
from makeway.runtime.settings import ConfigSettings
from makeway.ui.model.grid import Grid, NodeView, grid_of, node_of
from makeway.ui.model.simulating import Standing, simulated, standing_of

FRESH_SECONDS: Final = 15.0
_MOST_WAITING: Final = 8

T = TypeVar("T")


class BusyError(Exception):
    """So many wait for a plan that one more would wait too long."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The cluster as it was `at` a time; `read`: the loop's clock then. `grids`: by label."""

    world: World
    at: datetime
    read: float
    grids: dict[str, Grid] = field(default_factory=dict)


class ClusterReader:
    """Reads the cluster for the page. Memory: one reading, about 1 KiB a pod and 2 KiB a node."""

    def __init__(self, api: Api, bus: Bus, settings: ConfigSettings) -> None:
        self._api = api
        self._bus = bus
        self._settings = settings
        self._reading: _Reading | None = None
        self._lock = asyncio.Lock()
        self._planning = asyncio.Lock()
        self._waiting = 0

    async def read(self) -> World:
        """List all that a plan looks at. Raises ApiError, ApiUnavailable."""
        return await read_world(self._api, self._settings)

    async def pod(self, namespace: str, name: str) -> bytes | None:
        """Read one pod; None where there is none. Raises ApiError, ApiUnavailable."""
        return await read_object(self._api, f"/api/v1/namespaces/{namespace}/pods/{name}")

    async def ledger(self, now: datetime) -> Ledger:
        """Read the orders that a plan depends on. Raises BusError."""
        return await ledger_of(self._bus, now)

    async def grid(self, label: str) -> Grid:
        """Return the grid of nodes. Raises ApiError, ApiUnavailable, BusyError."""
        reading = await self._current()
        world, grids = reading.world, reading.grids
        if label not in grids:
            found = await self._planned(
                lambda: grid_of(world.snapshot, reading.at, label, tuple(world.warnings))
            )
            label = label if label in found.labels else ""
            grids[label] = found
        return grids[label]

    async def node(self, name: str) -> NodeView | None:
        """Return one node in full. Raises ApiError, ApiUnavailable, BusyError."""
        world = (await self._current()).world
        return await self._planned(lambda: node_of(world.snapshot, name))

    async def standing(self, namespace: str, name: str) -> Standing | None:
        """Say what stands in the way of a pending pod, on every node; None where it is not pending.

        Raises ApiError, ApiUnavailable, BusError, BusyError.
        """
        raw = await self.pod(namespace, name)
        if raw is None:
            return None
        pod = msgspec.json.decode(raw, type=Pod)
        if pod.spec.node_name or pod.status.phase not in (None, "", "Pending"):
            return None
        world = (await self._current()).world
        now = datetime.now(UTC)
        ledger = await self.ledger(now)
        return await self._planned(lambda: standing_of(world, raw, now, ledger))

    async def simulate(self, text: str, namespace: str) -> tuple[SimulatedPod, ...]:
        """Say what would become of pods. Raises ApiError, ApiUnavailable, BusyError, ManifestError."""
        world = copy.copy((await self._current()).world)

        def run() -> tuple[SimulatedPod, ...]:
            world.snapshot = fork(world.snapshot)
            world.nominations = dict(world.nominations)
            return simulated(world, text, namespace, datetime.now(UTC))

        return await self._planned(run)

    async def _current(self) -> _Reading:
        loop = asyncio.get_running_loop()
        async with self._lock:
            reading = self._reading
            if reading is None or loop.time() - reading.read > FRESH_SECONDS:
                world = await self.read()
                reading = self._reading = _Reading(world, datetime.now(UTC), loop.time())
            return reading

    async def _planned(self, run: Callable[[], T]) -> T:
        if self._waiting >= _MOST_WAITING:
            raise BusyError
        self._waiting += 1
        try:
            async with self._planning:
                return await asyncio.to_thread(run)
        finally:
            self._waiting -= 1
