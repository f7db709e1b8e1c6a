"""A running control plane as tests use it: its parts stopped, killed, frozen and started from async code."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import nats
from nats.js import JetStreamContext

from integration.builders import NEVER_PREEMPTS, PRIORITY_CLASSES
from integration.bus_reader import BusReader, read_bus
from makeway.core.policy.external import ANNOTATION, EXTERNAL
from makeway.dev.audit_log import AuditLog
from makeway.dev.checker.history import Accounts
from makeway.dev.cluster import DevCluster
from makeway.dev.info import ClusterInfo
from makeway.dev.nats_identities import DEVELOPER
from makeway.dev.options import EVICTOR, NATS, NOMINATOR, PLANNER, SCHEDULER
from makeway.dev.processes import Process
from makeway.dev.scheduler import LEASE_NAMESPACE, STOCK_USER, is_stock, lease_name
from makeway.runtime.kube import Api

_PROMISES_NEED = (NATS, SCHEDULER, EVICTOR, NOMINATOR, "kube-apiserver", "etcd")
"""While one of these is away on purpose, nobody is expected to keep to a bound in time."""


class RunningCluster:
    """One control plane. Components are those of `makeway.dev.options.COMPONENTS`."""

    def __init__(self, owned: DevCluster) -> None:
        self.owned = owned
        self.info: ClusterInfo = owned.info
        self._replicas: dict[str, list[str]] = {}
        self._away: dict[str, datetime] = {}
        self._outages: list[tuple[datetime, datetime]] = []
        self.external = NOMINATOR in owned.options.components
        """Whether makeway preempts from outside the scheduler: all classes but one are opted in."""
        for name, value in PRIORITY_CLASSES.items():
            opted_in = self.external and name != NEVER_PREEMPTS
            owned.api.apply(
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name, "annotations": {ANNOTATION: EXTERNAL} if opted_in else {}},
                    "value": value,
                    "preemptionPolicy": "Never"
                    if opted_in or name == NEVER_PREEMPTS
                    else "PreemptLowerPriority",
                }
            )

    def process(self, component: str) -> Process:
        """The component's process: its pid, restarts, log."""
        return self.owned.process(component)

    def replicas(self, service: str) -> list[str]:
        """The names of a service's processes."""
        return [service, *self._replicas.get(service, [])]

    def start_replica(self, service: str) -> None:
        """Start another planner, evictor or scheduler, and wait until it is ready."""
        self._replicas.setdefault(service, []).append(self.owned.start_replica(service).program.name)

    async def stop(self, component: str) -> None:
        """End it in an orderly way."""
        self._leaves(component)
        await asyncio.to_thread(self.process(component).stop)

    async def kill(self, component: str) -> None:
        """End it by SIGKILL; it stays away until `start`."""
        self._leaves(component)
        await asyncio.to_thread(self.process(component).kill)

    async def start(self, component: str) -> None:
        """Start it on the same ports and wait until it is ready."""
        process = self.process(component)
        await asyncio.to_thread(process.start)
        await asyncio.to_thread(process.wait_ready)
        self._returns(component)

    async def pause(self, component: str) -> None:
        """Freeze it: its connections stay, nothing is answered."""
        self._leaves(component)
        self.process(component).pause()

    async def resume(self, component: str) -> None:
        """Let it go on."""
        self.process(component).resume()
        self._returns(component)

    async def heal(self) -> None:
        """Have everything that tests crash running and ready again."""
        for component in (
            NATS,
            *(name for one in (PLANNER, EVICTOR, SCHEDULER) for name in self.replicas(one)),
        ):
            self.process(component).resume()
            await self.start(component)

    async def end_lease(self, service: str) -> None:
        """Give a dead leader's Lease back, as an orderly end does, so that nobody waits for its time."""
        elects = "--leader-elect" in self.owned.options.planner_arguments
        leases = {SCHEDULER: f"{LEASE_NAMESPACE}/leases/{lease_name(self.owned.options)}"}
        leases |= {PLANNER: "makeway-system/leases/makeway-planner"} if elects else {}
        leases[NOMINATOR] = "makeway-system/leases/makeway-nominator"
        if lease := leases.get(service):
            async with self.connect() as api:
                await api.request(
                    "PATCH",
                    f"/apis/coordination.k8s.io/v1/namespaces/{lease}",
                    body=b'{"spec": {"holderIdentity": null}}',
                    content_type="application/merge-patch+json",
                )

    def accounts(self) -> Accounts:
        """The users of its parts, as the audit log names them."""
        stock = is_stock(self.owned.options)
        return replace(Accounts(), scheduler=STOCK_USER) if stock else Accounts()

    def outages(self, now: datetime) -> tuple[tuple[datetime, datetime], ...]:
        """When tests had stopped a part that promises with a bound in time need."""
        return (*self._outages, *((begin, now) for begin in self._away.values()))

    def _leaves(self, component: str) -> None:
        if component in _PROMISES_NEED:
            self._away.setdefault(component, datetime.now(UTC))

    def _returns(self, component: str) -> None:
        if begin := self._away.pop(component, None):
            self._outages.append((begin, datetime.now(UTC)))

    @asynccontextmanager
    async def without(self, component: str) -> AsyncIterator[None]:
        """Stop it for the length of a block, and have it ready again after."""
        await self.stop(component)
        try:
            yield
        finally:
            await self.start(component)

    @asynccontextmanager
    async def frozen(self, component: str) -> AsyncIterator[None]:
        """Freeze it for the length of a block."""
        await self.pause(component)
        try:
            yield
        finally:
            await self.resume(component)

    @asynccontextmanager
    async def connect(self, account: str = "") -> AsyncIterator[Api]:
        """Connect to the API server as the administrator, or as `planner`, `evictor` or `scheduler`."""
        path = self.info.kubeconfigs[account] if account else self.info.kubeconfig
        api = await Api.connect(kubeconfig=str(path), user_agent="makeway-tests")
        try:
            yield api
        finally:
            await api.close()

    @asynccontextmanager
    async def bus(self) -> AsyncIterator[BusReader]:
        """Read what was said on the bus."""
        async with read_bus(
            self.info.nats_url, self.owned.options.subject_prefix, self._nats_context()
        ) as reader:
            yield reader

    @asynccontextmanager
    async def jetstream(self) -> AsyncIterator[JetStreamContext]:
        """A connection to the raw streams."""
        connection = await nats.connect(
            self.info.nats_url, connect_timeout=5, allow_reconnect=False, tls=self._nats_context()
        )
        try:
            yield connection.jetstream(timeout=5)
        finally:
            await connection.close()

    def _nats_context(self) -> ssl.SSLContext | None:
        identity = self.owned.nats_identity(DEVELOPER)
        return identity.context() if identity else None

    def audit(self) -> AuditLog:
        """The audit log from now on."""
        return AuditLog(self.info.audit_log)

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as the administrator."""
        return await asyncio.to_thread(lambda: self.owned.kubectl(*arguments, stdin=stdin))
