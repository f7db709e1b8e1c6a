"""The chart on a real API server: its grants suffice for its components, and are no more than they use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from integration.builders import PodBuilder, make_node, make_pod
from integration.bus_reader import BusReader, read_bus
from integration.charting import NAMESPACE, Release, render
from integration.cluster import RunningCluster
from integration.granting import denied, grants, unused
from integration.space import Space, open_space
from integration.waiting import NotYet, until
from makeway.bus.messages import EvictionOrder
from makeway.dev.audit_log import AuditEvent, AuditLog
from makeway.dev.cluster import Cluster
from makeway.dev.options import KWOK, ClusterOptions
from makeway.dev.processes import Process

SCHEDULER_NAME = "makeway-scheduler"
_READER = "prometheus"

RARELY_USED = {
    "makeway-planner": {
        "create events.events.k8s.io default": "only where a PriorityClass's toleration cannot be read",
    },
    "makeway-evictor": {
        f"get leases.coordination.k8s.io {NAMESPACE}/makeway-planner": "only for orders of lowered quotas",
    },
    "makeway-scheduler": {
        "patch events.events.k8s.io": "only where an event comes again within minutes",
        "patch events kube-system": "only where an event comes again within minutes",
        "update pods/finalizers": "asked by an admission plugin that is off by default",
        "update persistentvolumes": "only to bind volumes that wait for their first consumer",
        "update persistentvolumeclaims": "only to bind volumes that wait for their first consumer",
        "get resourceclaims.resource.k8s.io": "only for pods with devices",
        "create resourceclaims.resource.k8s.io": "only for pods with devices",
        "update resourceclaims.resource.k8s.io": "only for pods with devices",
        "delete resourceclaims.resource.k8s.io": "only for pods with devices",
        "update resourceclaims/status.resource.k8s.io": "only for pods with devices",
        "patch resourceclaims/status.resource.k8s.io": "only for pods with devices",
        "update resourceclaims/binding.resource.k8s.io": "only for pods with devices",
        "patch resourceclaims/binding.resource.k8s.io": "only for pods with devices",
        "list devicetaintrules.resource.k8s.io": "only with the feature gate of taints on devices",
        "watch devicetaintrules.resource.k8s.io": "only with the feature gate of taints on devices",
        "list podgroups.scheduling.k8s.io": "only with the feature gate of gang scheduling",
        "watch podgroups.scheduling.k8s.io": "only with the feature gate of gang scheduling",
        "patch podgroups/status.scheduling.k8s.io": "only with the feature gate of gang scheduling",
    },
}
"""What this test does not make the components do, and why they may need it."""


class Installed:
    """The chart's components as they run, in the order in which they came up."""

    def __init__(self, cluster: RunningCluster, release: Release) -> None:
        self.cluster = cluster
        self.release = release
        self.audit = AuditLog(cluster.info.audit_log)
        self.nats: Process
        self.scheduler: Process
        self.scheduler_url = ""
        self.planners: list[tuple[Process, str]] = []
        self.evictors: list[tuple[Process, str]] = []

    @asynccontextmanager
    async def space(self) -> AsyncIterator[Space]:
        """A namespace and nodes of one test."""
        async with open_space(self.cluster) as opened:
            opened.judged = False
            yield opened

    @asynccontextmanager
    async def bus(self) -> AsyncIterator[BusReader]:
        """What was said on the chart's NATS, read as the operator."""
        async with read_bus(self.release.url("operator")) as reader:
            yield reader

    def events(self, account: str = "") -> list[AuditEvent]:
        """What the components asked of the API server."""
        user = f"system:serviceaccount:{NAMESPACE}:{account}"
        return [event for event in self.audit.events(about=(user,)) if event.user.startswith(user)]

    def logs(self) -> dict[str, str]:
        """What each process has written, by its name."""
        processes = [self.nats, self.scheduler, *(p for p, _ in (*self.planners, *self.evictors))]
        return {process.program.name: self.release.log(process) for process in processes}


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Give a control plane that has none of makeway's parts."""
    options = ClusterOptions(components=frozenset({KWOK}))
    running = RunningCluster(Cluster(tmp_path_factory.mktemp("chart") / "cluster", options).start())
    yield running
    running.owned.stop()


@pytest.fixture(scope="module")
def installed(control_plane: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Install the chart as it is, but for the mode, and one who may read the scheduler's metrics."""
    manifests = render(
        "policy.document.mode=enforce",
        f"metrics.readers[0].namespace={NAMESPACE}",
        f"metrics.readers[0].name={_READER}",
    )
    release = Release(control_plane, manifests, tmp_path_factory.mktemp("release"))
    try:
        yield asyncio.run(_install(Installed(control_plane, release)))
    finally:
        release.stop()


async def _install(new: Installed) -> Installed:
    """Bring NATS, streams and the scheduler up; the others come when a test wants them."""
    await new.release.apply()
    new.nats = new.release.start_nats()
    said = await new.release.run_job()
    assert "MAKEWAY_ORDERS" in said, said
    new.scheduler, new.scheduler_url = new.release.start_scheduler()
    return new


async def _start_services(new: Installed) -> None:
    """Have two planners and two evictors."""

    async def start(component: str, processes: list[tuple[Process, str]]) -> None:
        processes.append(await asyncio.to_thread(new.release.start_service, component))

    both = (("planner", new.planners), ("evictor", new.evictors))
    await asyncio.gather(*(start(name, ones) for name, ones in both for _ in range(2 - len(ones))))


def ours(name: str, priority: str, cpu: int) -> PodBuilder:
    return make_pod(name).priority(priority).cpu(cpu).spec(schedulerName=SCHEDULER_NAME)


async def until_ended(bus: BusReader, uid: str, *, seconds: float = 20) -> EvictionOrder:
    """Wait until the one order for a pod has succeeded."""

    async def ask() -> EvictionOrder:
        orders = await bus.orders(uid)
        outcomes = await bus.outcomes(orders[0].order_id) if orders else []
        if not outcomes:
            raise NotYet(f"{len(orders)} orders, no outcome")
        assert outcomes[0].result == "succeeded", outcomes[0]
        return orders[0]

    return await until(f"the order for {uid} has succeeded", ask, seconds=seconds)


async def scrape_scheduler(installed: Installed) -> int:
    """Read its metrics as the service account that may; gives the HTTP status."""
    api = installed.cluster.owned.api
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    api.apply({**account, "metadata": {"name": _READER, "namespace": NAMESPACE}})
    headers = {"Authorization": f"Bearer {api.token(NAMESPACE, _READER, 600)}"}
    url = f"{installed.scheduler_url}/metrics"
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url, ssl=False) as answer:
        return answer.status


async def test_it_preempts_with_the_rights_it_grants_and_uses_all_of_them(installed: Installed) -> None:
    async with installed.space() as space:
        await space.add_nodes(make_node("n1").cpu(2))
        # Without a planner kube-scheduler's own preemption acts, which deletes by itself.
        await space.run(ours("first", "low", 2))
        await space.create(ours("second", "mid", 2))
        assert await space.until_bound("second", seconds=30) == "n1"
        assert await space.pod("first") is None

        await _start_services(installed)
        (third,) = await space.create(ours("third", "high", 2))
        assert await space.until_bound("third", seconds=30) == "n1"
        async with installed.bus() as bus:
            order = await until_ended(bus, third.metadata.uid)
        assert [victim.name for victim in order.victims] == ["second"]
        assert await scrape_scheduler(installed) == 200

    for account, exceptions in RARELY_USED.items():
        await _until_all_is_used(installed, account, set(exceptions))
    assert denied(installed.events()) == []
    for name, log in installed.logs().items():
        assert "ermissions violation" not in log, f"{name}:\n{log[-3000:]}"


async def _until_all_is_used(installed: Installed, account: str, exceptions: set[str]) -> None:
    """Wait until a component has used every right but these, such as that to renew its Lease."""
    granted = grants(installed.release.manifests, account)
    assert granted, account

    async def used() -> bool:
        left = unused(granted, installed.events(account))
        assert exceptions <= left, f"{account} used {sorted(exceptions - left)}"
        if left != exceptions:
            raise NotYet(f"unused: {sorted(left - exceptions)}")
        return True

    await until(f"{account} has used what it is granted", used, every=0.5)


async def test_the_successor_of_a_killed_planner_plans_within_ten_seconds_and_doubles_nothing(
    installed: Installed,
) -> None:
    await _start_services(installed)
    async with installed.space() as space, installed.bus() as bus:
        await space.add_nodes(make_node("n1").cpu(1), make_node("n2").cpu(1))
        await space.run(ours("a", "low", 1), ours("b", "low", 1))
        leader = await _leader(installed)
        (before,) = await space.create(ours("before", "high", 1))
        await until("there is an order", lambda: bus.orders(before.metadata.uid))

        installed.planners.remove(leader)
        await asyncio.to_thread(leader[0].kill)
        killed = time.monotonic()
        await _until_somebody_plans(space, bus)
        took = time.monotonic() - killed

        (after,) = await space.create(ours("after", "mid", 1))
        await space.until_bound("before", seconds=30)
        await space.until_bound("after", seconds=30)
        orders = [await until_ended(bus, pod.metadata.uid) for pod in (before, after)]
        assert [len(await bus.orders(pod.metadata.uid)) for pod in (before, after)] == [1, 1]

    assert took < 10, f"{took:.1f} s"
    victims = [victim.name for order in orders for victim in order.victims]
    assert sorted(victims) == ["a", "b"]
    assert denied(installed.events()) == []


async def _until_somebody_plans(space: Space, bus: BusReader) -> None:
    """Have the scheduler ask again and again, for pods that nobody can help, until a planner says so."""
    asked: list[str] = []

    async def planned() -> bool:
        (pod,) = await space.create(ours(f"asks-{len(asked)}", "neg", 1))
        asked.append(pod.metadata.uid)
        return any([await bus.decisions(uid) for uid in asked])

    await until("the successor plans", planned, seconds=30, every=0.5)


async def _leader(installed: Installed) -> tuple[Process, str]:
    async with aiohttp.ClientSession() as session:
        for planner in installed.planners:
            async with session.get(f"{planner[1]}/metrics") as answer:
                if "makeway_planner_leading 1.0" in await answer.text():
                    return planner
    raise AssertionError("no planner leads")
