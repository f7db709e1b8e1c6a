"""A planner process from its parts: connections, snapshot, ledger, service, health, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog
from prometheus_client import REGISTRY

from makeway.bus.errors import BusError, BusUnavailable
from makeway.bus.service import Service
from makeway.core.policy.mode import Mode
from makeway.planner.metrics import Metrics
from makeway.planner.observe.loop import Observing
from makeway.planner.quota.decide import mode_of
from makeway.planner.quota.loop import QuotaLoop, QuotaSettings
from makeway.planner.recording.journal import Journal
from makeway.planner.recording.recorder import Recorder
from makeway.planner.service.class_warnings import ClassWarnings
from makeway.planner.service.configuration import Configuration
from makeway.planner.service.control import Control
from makeway.planner.service.decisions import Decisions
from makeway.planner.service.handler import Facts, Planner
from makeway.planner.service.ledger import Ledger
from makeway.planner.service.marks import Marks
from makeway.planner.service.order_follower import InFlight
from makeway.planner.service.queue_query import QueueAnswers, follow_queues
from makeway.planner.service.queue_warnings import QueueWarnings
from makeway.planner.service.quota_fence import PlannerFence
from makeway.planner.service.repair import Repairing
from makeway.planner.service.settling import settle_for_ever
from makeway.planner.service.status import Status
from makeway.planner.service.warmup import warm_up
from makeway.planner.service.watch import OtherClusterError, Watch
from makeway.planner.snapshot.changes import Enforce
from makeway.planner.snapshot.pending_updates import PIECE
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime import garbage
from makeway.runtime.connections import connected
from makeway.runtime.events import EventRecorder
from makeway.runtime.lease import Leadership, LeaseSettings, StepDown
from makeway.runtime.process import run_until_signalled
from makeway.runtime.settings import ConfigSettings, HttpSettings, KubeSettings, NatsSettings

_log = structlog.get_logger()


async def run(
    *,
    nats: NatsSettings,
    kube: KubeSettings,
    listen: HttpSettings,
    config: ConfigSettings,
    mode: Mode,
    lease: LeaseSettings | None,
    identity: str,
    record: bool = True,
) -> int:
    """Run a planner until it is told to stop; returns the exit code.

    `mode`: how far plugin and evictors are told to go at the most; planning changes nothing. `lease`: answer
    only while holding it; None answers always. `record`: keep what it sees for replays.

    Raises:
        ConfigurationError, ApiError, ApiUnavailable: the API server cannot be used at the start.
        BusError: NATS cannot be used as it is configured.
        ValueError, OSError: an option is wrong, or the address to listen on is taken.
    """
    async with contextlib.AsyncExitStack() as closing:
        opened = await closing.enter_async_context(
            connected("planner", identity, nats=nats, kube=kube, listen=listen, registry=REGISTRY)
        )
        api, bus, cluster_uid = opened.api, opened.bus, opened.cluster_uid
        said, _ = await opened.starting.reach(bus.control)

        warm_up()
        metrics, ledger = Metrics(REGISTRY), Ledger()
        journal = Journal(lambda: snapshot.undecided)
        snapshot = Snapshot(piece=PIECE, applied=journal.note)
        decisions = Decisions(bus, metrics, journal=journal)
        marks = Marks()
        events = EventRecorder(api, "makeway.dev/planner", identity)
        warnings = ClassWarnings(events)
        observing = Observing(identity, snapshot=snapshot, bus=bus, metrics=metrics, ours=ledger.removes)
        watch = Watch(api, snapshot, metrics, cluster_uid, pods=(marks, observing), classes=(warnings,))
        in_flight = InFlight(bus, ledger, metrics, datetime.now(UTC))
        configuration = Configuration(
            api, config, REGISTRY, events, said if said and said.cluster_uid == cluster_uid else None
        )
        policy = configuration.policy
        source = config.policy_object()

        def enforce() -> None:
            snapshot.apply(Enforce(configuration.in_force, policy.revision, source))

        policy.subscribe(enforce)
        configuration.brake.subscribe(enforce)
        follow_queues(configuration.queues, snapshot)
        queue_warnings = QueueWarnings(snapshot, events)

        def unsynced() -> str:
            if not watch.synced:
                return f"the snapshot is not complete: {watch.unhealthy()}"
            snapshot.serving = True
            if not in_flight.synced:
                return "orders and outcomes have not been read yet"
            return configuration.unsynced() or snapshot.backlog.unsettled

        planner = Planner(
            Facts(cluster_uid, identity),
            snapshot=snapshot,
            ledger=ledger,
            decisions=decisions,
            metrics=metrics,
            unsynced=unsynced,
            behind=watch.behind,
            brake=lambda: configuration.brake.current,
            observe=observing.expect,
        )
        repairing = Repairing(
            cluster_uid,
            marks=marks,
            ledger=ledger,
            bus=bus.repairs,
            metrics=metrics,
            synced=lambda: not unsynced(),
        )
        quotas = QuotaLoop(
            QuotaSettings(
                cluster_uid=cluster_uid,
                identity=identity,
                mode=lambda: mode_of(configuration.in_force, mode),
                ready=lambda: not unsynced(),
            ),
            snapshot=snapshot,
            ledger=ledger,
            orders=bus,
            decisions=decisions,
            metrics=metrics,
            tell=configuration.tell_of_queues,
        )
        control = Control(
            bus,
            cluster_uid,
            lambda: configuration.control_state(mode, cluster_uid),
            metrics,
            quotas.settled,
        )
        quotas.remember = control.changed
        configuration.subscribe(control.changed)
        configuration.subscribe(quotas.changed)
        metrics.watch_state(
            age=watch.age_seconds,
            revision=lambda: snapshot.revision,
            in_flight=lambda: len(ledger),
            marks=lambda: len(marks),
            comparing=lambda: len(observing),
            left_out=lambda: snapshot.kinds.left_out,
            sizes={
                "nodes": lambda: snapshot.node_count,
                "pods": lambda: len(snapshot.pods),
                "priorityclasses": lambda: len(snapshot.priority_classes),
                "poddisruptionbudgets": lambda: len(snapshot.budgets),
                "namespaces": lambda: len(snapshot.namespaces),
            },
        )
        recorder = Recorder(
            bus, snapshot, journal, metrics, cluster_uid=cluster_uid, identity=identity, unsynced=unsynced
        )

        def unfit() -> str:
            """Say why this planner cannot lead. A policy being applied is no reason: all apply it alike."""
            if not watch.synced or not in_flight.synced:
                return unsynced()
            return bus.disconnected() or configuration.unsynced()

        leadership = Leadership(api, lease, identity, unfit, watch.unhealthy) if lease else None
        fence = PlannerFence(bus.epochs, leadership)
        status = Status(
            identity,
            cluster_uid,
            mode,
            configuration=configuration,
            said=lambda: control.said,
            trouble=lambda: bus.healthy() or unsynced() or watch.unhealthy() or configuration.unhealthy(),
        )
        answering = await opened.starting.reach(partial(bus.components.answer, status.now))
        closing.push_async_callback(answering.unsubscribe)
        opened.starting.checks = lambda: {
            "nats": bus.healthy(),
            "snapshot": watch.unhealthy(),
            "configuration": configuration.unhealthy(),
            "synced": unsynced(),
        }
        _log.info(
            "planner_started",
            cluster_uid=cluster_uid,
            mode=mode,
            leader_elect=lease is not None,
            server=api.server,
            port=opened.server.port,
        )

        async def lead() -> None:
            services: list[Service] = []
            try:
                services.append(await bus.serve_plan(planner.handle))
                services.append(await bus.serve_queues(QueueAnswers(identity, snapshot, quotas).handle))
            except BusUnavailable as error:
                for service in services:
                    await service.unsubscribe()
                raise StepDown(str(error)) from error
            metrics.leading.set(1)
            status.leading = True
            configuration.begin_telling()
            warnings.begin()
            try:
                async with asyncio.TaskGroup() as parts:
                    parts.create_task(control.say_for_ever())
                    parts.create_task(quotas.lead(fence.get))
                    parts.create_task(queue_warnings.tell_for_ever())
                    if record:
                        parts.create_task(recorder.record_for_ever())
            finally:
                warnings.end()
                configuration.end_telling()
                metrics.leading.set(0)
                status.leading = False
                for service in services:
                    await service.unsubscribe()

        leading: Coroutine[Any, Any, object] = leadership.run(lead) if leadership else lead()
        garbage.set_aside()
        return await run_until_signalled(
            *watch.runs(),
            *configuration.runs(),
            settle_for_ever(snapshot.backlog),
            settle_for_ever(snapshot.upkeep, half_the_time=True),
            events.write_for_ever(),
            in_flight.follow_orders(),
            in_flight.follow_outcomes(),
            in_flight.put_aside_for_ever(),
            decisions.write_for_ever(),
            observing.look_for_ever(),
            observing.write_for_ever(),
            repairing.propose_for_ever(),
            leading,
            bus.until_lost(),
            expected=(BusError, OtherClusterError, StepDown),
        )
