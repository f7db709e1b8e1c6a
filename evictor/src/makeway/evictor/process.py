"""An evictor process from its parts: connections, the service, health, and how it ends."""

from __future__ import annotations

import contextlib

import structlog
from prometheus_client import REGISTRY

from makeway.bus.client import Bus
from makeway.bus.errors import BusError
from makeway.core.mode import Mode
from makeway.evictor.cluster import ApiCluster
from makeway.evictor.events import Events
from makeway.evictor.intake import take_for_ever
from makeway.evictor.live_orders import StreamOrders
from makeway.evictor.metrics import Metrics
from makeway.evictor.probe import ApiProbe, OtherClusterError
from makeway.evictor.records import BusRecords
from makeway.evictor.repair import Repairing
from makeway.evictor.retry import SystemClock
from makeway.evictor.service import Evictor, Settings
from makeway.runtime import http
from makeway.runtime.kube import Api
from makeway.runtime.process import run_until_signalled
from makeway.runtime.settings import HttpSettings, KubeSettings, NatsSettings

_log = structlog.get_logger()


async def run(
    *,
    nats: NatsSettings,
    kube: KubeSettings,
    listen: HttpSettings,
    mode: Mode,
    concurrency: int,
    identity: str,
) -> int:
    """Run an evictor until it is told to stop; returns the exit code.

    Raises:
        ConfigurationError, ApiError, ApiUnavailable: the API server cannot be used at the start.
        BusError: NATS cannot be used at the start.
        ValueError, OSError: an option is wrong, or the address to listen on is taken.
    """
    async with contextlib.AsyncExitStack() as closing:
        api = await Api.connect(
            kubeconfig=str(kube.kubeconfig) if kube.kubeconfig else None,
            context=kube.context,
            user_agent=f"makeway-evictor/{identity}",
        )
        closing.push_async_callback(api.close)
        cluster_uid = await api.cluster_uid()
        bus = await Bus.connect(
            nats.servers(), name=f"evictor/{identity}", prefix=nats.subject_prefix, creds=nats.creds
        )
        closing.push_async_callback(bus.close)
        await bus.ensure_streams(nats.replicas)
        orders = await bus.orders_consumer()
        closing.push_async_callback(orders.close)

        metrics, clock = Metrics(REGISTRY), SystemClock()
        cluster = ApiCluster(api, metrics)
        events = Events(cluster, clock, metrics, identity)
        probe = ApiProbe(api, cluster_uid)
        evictor = Evictor(
            Settings(cluster_uid=cluster_uid, identity=identity, mode=mode, subjects=bus.subjects),
            cluster=cluster,
            records=BusRecords(bus),
            clock=clock,
            metrics=metrics,
            events=events,
        )
        repairing = Repairing(
            cluster_uid, mode, cluster=cluster, orders=StreamOrders(bus), clock=clock, metrics=metrics
        )
        repairs = await bus.repairs.serve(repairing.handle)
        closing.push_async_callback(repairs.unsubscribe)
        server = await http.serve(
            listen.listen,
            ready=lambda: {
                "nats": bus.healthy(),
                "orders": orders.unhealthy(),
                "kubernetes": probe.unhealthy(),
            },
            live=dict,
            registry=REGISTRY,
        )
        closing.push_async_callback(server.close)
        _log.info("evictor_started", cluster_uid=cluster_uid, mode=mode, server=api.server, port=server.port)
        return await run_until_signalled(
            take_for_ever(orders, evictor.handle, concurrency),
            events.write_for_ever(),
            probe.probe_for_ever(),
            bus.until_lost(),
            expected=(BusError, OtherClusterError),
        )
