"""A planner process from its parts: connections, snapshot, ledger, service, health, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

import structlog
from prometheus_client import REGISTRY

from makeway.bus.client import Bus
from makeway.bus.errors import BusError
from makeway.core.mode import Mode
from makeway.planner.decisions import Decisions
from makeway.planner.inflight import InFlight
from makeway.planner.ledger import Ledger
from makeway.planner.marks import Marks
from makeway.planner.metrics import Metrics
from makeway.planner.repair import Repairing
from makeway.planner.service import Facts, Planner
from makeway.planner.snapshot import Snapshot
from makeway.planner.warmup import warm_up
from makeway.planner.watch import OtherClusterError, Watch
from makeway.runtime import http
from makeway.runtime.kube import Api
from makeway.runtime.lease import Leadership, LeaseSettings
from makeway.runtime.process import run_until_signalled
from makeway.runtime.settings import HttpSettings, KubeSettings, NatsSettings

_log = structlog.get_logger()


async def run(
    *,
    nats: NatsSettings,
    kube: KubeSettings,
    listen: HttpSettings,
    mode: Mode,
    lease: LeaseSettings | None,
    identity: str,
) -> int:
    """Run a planner until it is told to stop; returns the exit code.

    `mode` is only told: planning changes nothing. `lease`: answer only while holding it; None answers always.

    Raises:
        ConfigurationError, ApiError, ApiUnavailable: the API server cannot be used at the start.
        BusError: NATS cannot be used at the start.
        ValueError, OSError: an option is wrong, or the address to listen on is taken.
    """
    async with contextlib.AsyncExitStack() as closing:
        api = await Api.connect(
            kubeconfig=str(kube.kubeconfig) if kube.kubeconfig else None,
            context=kube.context,
            user_agent=f"makeway-planner/{identity}",
        )
        closing.push_async_callback(api.close)
        cluster_uid = await api.cluster_uid()
        bus = await Bus.connect(
            nats.servers(), name=f"planner/{identity}", prefix=nats.subject_prefix, creds=nats.creds
        )
        closing.push_async_callback(bus.close)
        await bus.ensure_streams(nats.replicas)

        warm_up()
        metrics, snapshot, ledger = Metrics(REGISTRY), Snapshot(), Ledger()
        decisions = Decisions(bus, metrics)
        marks = Marks()
        watch = Watch(api, snapshot, metrics, cluster_uid, pods=(marks,))
        in_flight = InFlight(bus, ledger, metrics, datetime.now(UTC))

        def unsynced() -> str:
            if not watch.synced:
                return f"the snapshot is not complete: {watch.unhealthy()}"
            return "" if in_flight.synced else "orders and outcomes have not been read yet"

        planner = Planner(
            Facts(cluster_uid, identity),
            snapshot=snapshot,
            ledger=ledger,
            decisions=decisions,
            metrics=metrics,
            unsynced=unsynced,
            behind=watch.behind,
        )
        repairing = Repairing(
            cluster_uid,
            marks=marks,
            ledger=ledger,
            bus=bus.repairs,
            metrics=metrics,
            synced=lambda: not unsynced(),
        )
        metrics.watch_state(
            age=watch.age_seconds,
            revision=lambda: snapshot.revision,
            in_flight=lambda: len(ledger),
            marks=lambda: len(marks),
            sizes={
                "nodes": lambda: snapshot.node_count,
                "pods": lambda: len(snapshot.pods),
                "priorityclasses": lambda: len(snapshot.priority_classes),
                "poddisruptionbudgets": lambda: len(snapshot.budgets),
                "namespaces": lambda: len(snapshot.namespaces),
            },
        )
        server = await http.serve(
            listen.listen,
            ready=lambda: {"nats": bus.healthy(), "snapshot": watch.unhealthy(), "synced": unsynced()},
            live=dict,
            registry=REGISTRY,
        )
        closing.push_async_callback(server.close)
        _log.info(
            "planner_started",
            cluster_uid=cluster_uid,
            mode=mode,
            leader_elect=lease is not None,
            server=api.server,
            port=server.port,
        )

        async def answer() -> None:
            service = await bus.serve_plan(planner.handle)
            metrics.leading.set(1)
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                metrics.leading.set(0)
                await service.unsubscribe()

        leading: Coroutine[Any, Any, object] = (
            Leadership(api, lease, identity).run(answer) if lease else answer()
        )
        return await run_until_signalled(
            *watch.runs(),
            in_flight.follow_orders(),
            in_flight.follow_outcomes(),
            in_flight.put_aside_for_ever(),
            decisions.write_for_ever(),
            repairing.propose_for_ever(),
            leading,
            bus.until_lost(),
            expected=(BusError, OtherClusterError),
        )
