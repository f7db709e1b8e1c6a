"""The chart, installed on a control plane of its own, and its components as they run there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from integration.builders import PodBuilder, make_pod
from integration.bus_reader import BusReader, read_bus
from integration.charting import NAMESPACE, Release
from integration.cluster import RunningCluster
from integration.space import Space, open_space
from integration.waiting import PATIENT_SECONDS, NotYet, until
from makeway.bus.messages import EvictionOrder
from makeway.bus.subjects import Subjects
from makeway.dev.audit_log import AuditEvent, AuditLog
from makeway.dev.processes import Process

SCHEDULER_NAME = "makeway-scheduler"
READER = "prometheus"
"""The service account that may read the scheduler's metrics."""


class Installed:
    """The chart's components as they run, in the order in which they came up."""

    def __init__(self, cluster: RunningCluster, release: Release) -> None:
        self.cluster = cluster
        self.release = release
        self.audit = AuditLog(cluster.info.audit_log)
        self.applied = False
        self.nats: Process
        self.streams: Process
        self.scheduler: Process | None = None
        self.scheduler_url = ""
        self.planners: list[tuple[Process, str]] = []
        self.evictors: list[tuple[Process, str]] = []
        self.nominators: list[tuple[Process, str]] = []

    @asynccontextmanager
    async def space(self) -> AsyncIterator[Space]:
        """A namespace and nodes of one test."""
        async with open_space(self.cluster) as opened:
            opened.judged = False
            yield opened

    @asynccontextmanager
    async def bus(self) -> AsyncIterator[BusReader]:
        """What was said on the chart's NATS, read as the viewer."""
        url, tls = self.release.url("viewer"), self.release.tls("viewer")
        async with read_bus(url, tls=tls, api=Subjects().viewers_api) as reader:
            yield reader

    def events(self, account: str = "") -> list[AuditEvent]:
        """What the components asked of the API server."""
        user = f"system:serviceaccount:{NAMESPACE}:{account}"
        return [event for event in self.audit.events(about=(user,)) if event.user.startswith(user)]

    async def apply(self) -> None:
        """Apply everything, and have the Secrets made."""
        await self.release.apply()
        self.streams = self.release.start_streams()
        self.applied = True

    async def come_up(self, *, replacing: bool = False, scheduler: bool = True) -> None:
        """Apply everything, and start NATS and the scheduler; the others come when a test wants them.

        `replacing`: makeway-scheduler is the cluster's own scheduler. `scheduler`: whether the chart has one.
        """
        if not self.applied:
            await self.apply()
        self.nats = self.release.start_nats()
        if not scheduler:
            return
        start = self.release.start_replacing_scheduler if replacing else self.release.start_scheduler
        self.scheduler, self.scheduler_url = start()

    async def start_services(self, *, planners: int = 2, nominators: bool = False) -> None:
        """Have so many planners, two evictors and, where there are `nominators`, two of these."""

        async def start(component: str, processes: list[tuple[Process, str]]) -> None:
            processes.append(await asyncio.to_thread(self.release.start_service, component))

        kinds = [("planner", self.planners), ("evictor", self.evictors)]
        if nominators:
            kinds.append(("nominator", self.nominators))
        wanted = {"planner": planners}
        await asyncio.gather(
            *(start(name, ones) for name, ones in kinds for _ in range(wanted.get(name, 2) - len(ones)))
        )

    def reader_token(self) -> str:
        """A token of the service account that may read the scheduler's metrics."""
        api = self.cluster.owned.api
        account = {"apiVersion": "v1", "kind": "ServiceAccount"}
        api.apply({**account, "metadata": {"name": READER, "namespace": NAMESPACE}})
        return api.token(NAMESPACE, READER, 600)

    def logs(self) -> dict[str, str]:
        """What each process has written, by its name."""
        processes = [
            self.nats,
            self.streams,
            *([self.scheduler] if self.scheduler else []),
            *(p for p, _ in (*self.planners, *self.evictors, *self.nominators)),
        ]
        return {process.program.name: self.release.log(process) for process in processes}


def ours(name: str, priority: str, cpu: int) -> PodBuilder:
    return make_pod(name).priority(priority).cpu(cpu).spec(schedulerName=SCHEDULER_NAME)


async def until_ended(bus: BusReader, uid: str, *, seconds: float = PATIENT_SECONDS) -> EvictionOrder:
    """Wait until the one order for a pod has succeeded."""

    async def ask() -> EvictionOrder:
        orders = await bus.orders(uid)
        outcomes = await bus.outcomes(orders[0].order_id) if orders else []
        if not outcomes:
            raise NotYet(f"{len(orders)} orders, no outcome")
        assert outcomes[0].result == "succeeded", outcomes[0]
        return orders[0]

    return await until(f"the order for {uid} has succeeded", ask, seconds=seconds)
