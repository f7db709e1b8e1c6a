"""An evictor process from its parts: connections, the service, health, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Final, NoReturn

import structlog
from prometheus_client import REGISTRY

from makeway.bus.component_status import ComponentStatus
from makeway.bus.errors import BusError
from makeway.bus.following import follow_outcomes
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.bus.signing.keys import SigningKind
from makeway.core.policy.mode import Mode
from makeway.core.queues.queue_exempt import queue_exempt_namespaces
from makeway.evictor.act.cluster import Cluster
from makeway.evictor.act.events import QUEUE_LIMIT, Events
from makeway.evictor.act.following import FollowedMembers
from makeway.evictor.act.holds import TellingOfHolds
from makeway.evictor.act.records import OrderRecords
from makeway.evictor.act.toleration_reads import TolerationReads
from makeway.evictor.act.work import EvictorParts
from makeway.evictor.intake.breaker_store import BreakerStore
from makeway.evictor.intake.control import keep_to_control
from makeway.evictor.intake.deliveries import take_forever
from makeway.evictor.intake.live_orders import StreamOrders
from makeway.evictor.intake.probe import ApiProbe
from makeway.evictor.intake.repair import MarkRepair
from makeway.evictor.intake.service import Evictor, EvictorSettings
from makeway.evictor.intake.wasted import WastedVictims
from makeway.evictor.judge.fences import Fences
from makeway.evictor.limits.breaker import Breaker
from makeway.evictor.limits.caps import Caps
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.limits.queue_guard import QueueGuard
from makeway.evictor.limits.slots import Slots
from makeway.evictor.limits.windows import TEN_MINUTES
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import SystemClock
from makeway.runtime import garbage
from makeway.runtime.brake import BrakeMetrics, BrakeReader
from makeway.runtime.config import Config
from makeway.runtime.config_kinds import POLICY, QUEUES
from makeway.runtime.config_metrics import ConfigMetrics
from makeway.runtime.config_sources import ConfigMapSource
from makeway.runtime.connections import OtherClusterError, connected
from makeway.runtime.events import EventRecorder
from makeway.runtime.process import component_status, run_until_signalled, until_set
from makeway.runtime.settings import ServiceSettings

QUEUES_WAIT_SECONDS: Final = 10.0
"""How long the first order waits for the queues to be read: without them quota orders are refused."""

_log = structlog.get_logger()


async def run(
    settings: ServiceSettings,
    *,
    mode: Mode,
    concurrency: int,
    fences: Fences,
) -> int:
    """Run an evictor until it is told to stop; returns the exit code.

    Raises:
        ConfigurationError, ApiError, ApiUnavailable: the API server cannot be used at the start.
        BusError: NATS cannot be used as it is configured.
        ValueError, OSError: an option is wrong, or the address to listen on is taken.
    """
    config, identity = settings.config, settings.identity
    async with contextlib.AsyncExitStack() as closing:
        # A delete that waits for a connection could be sent after its order has expired: the slots, and
        # `AT_ONCE` of each order, bound the requests instead.
        opened = await closing.enter_async_context(
            connected(
                "evictor",
                settings,
                signs=(SigningKind.OUTCOME,),
                registry=REGISTRY,
                connections=0,
            )
        )
        api, bus, cluster_uid = opened.api, opened.bus, opened.cluster_uid
        said, _ = await opened.starting.reach(bus.control)
        if said is None or said.cluster_uid != cluster_uid:
            said = None
        orders = await opened.starting.reach(bus.orders_consumer)
        closing.push_async_callback(orders.close)

        metrics, clock, config_metrics = EvictorMetrics(REGISTRY), SystemClock(), ConfigMetrics(REGISTRY)
        policy = Config(POLICY, config_metrics, remembered=said.policy_revision if said else "")
        brake = BrakeReader(api, BrakeMetrics(REGISTRY), config_metrics, namespace=config.namespace)
        breaker = Breaker(clock, metrics, clock.set_anew)
        breaker_store = BreakerStore(api, breaker, namespace=config.namespace)
        mode_guard = ModeGuard(
            mode,
            lambda: policy.current,
            lambda: brake.current,
            breaker.refusal_of,
            own_namespace=config.namespace,
        )
        breaker.subscribe(mode_guard.changed)
        brake.subscribe(mode_guard.changed)
        known, control_read, outcomes_read = asyncio.Event(), asyncio.Event(), asyncio.Event()

        def policy_changed() -> None:
            mode_guard.changed()
            if not policy.unsynced():
                known.set()

        policy.subscribe(policy_changed)
        source = ConfigMapSource(api, policy, config_metrics, namespace=config.namespace)
        queues = Config(QUEUES, config_metrics)
        queues_source = ConfigMapSource(api, queues, config_metrics, namespace=config.namespace)
        queues_read = asyncio.Event()
        queues.subscribe(queues_read.set)
        queue_guard = QueueGuard(
            queues,
            queues_source.unhealthy,
            lambda: queue_exempt_namespaces(policy.current, config.namespace),
        )
        members = FollowedMembers(api, metrics)
        tolerations = TolerationReads(api, namespace=config.namespace)
        cluster = Cluster(api, metrics, brake.fresh, members.members, tolerations.read)
        recorder = EventRecorder(
            api, "makeway.dev/evictor", identity, limit=QUEUE_LIMIT, dropped=metrics.events_dropped
        )
        events = Events(recorder)
        probe = ApiProbe(api, cluster_uid, clock, breaker.clock_read)
        wasted = WastedVictims(cluster, clock, breaker)
        slots = Slots(concurrency, metrics)
        caps = Caps(mode_guard.rates, identity, metrics)
        caps.show_recent(clock.now)

        def ended_anywhere(outcome: Outcome) -> None:
            # What was evicted lately counts wherever it was, also before this process began.
            caps.ended(outcome, clock.now())

        def ended(order: EvictionOrder, outcome: Outcome) -> None:
            breaker.ended(outcome)
            wasted.follow(order, outcome)

        evictor = Evictor(
            EvictorSettings(cluster_uid=cluster_uid, identity=identity, subjects=bus.subjects, fences=fences),
            EvictorParts(
                cluster=cluster,
                records=OrderRecords(bus),
                metrics=metrics,
                events=events,
                mode_guard=mode_guard,
                queue_guard=queue_guard,
                caps=caps,
            ),
            clock=clock,
            slots=slots,
            ended=ended,
            signatures=bus.signatures,
            forged=partial(breaker.report, "signatures"),
        )
        telling = TellingOfHolds(evictor.parts.holds, cluster, events, clock)
        mark_repair = MarkRepair(
            cluster_uid, mode_guard, cluster=cluster, orders=StreamOrders(bus), clock=clock, metrics=metrics
        )

        def untold() -> str:
            told = {"the control state": control_read, "the outcomes of orders": outcomes_read}
            missing = " and ".join(name for name, read in told.items() if not read.is_set())
            return missing and f"no order is taken before NATS has told {missing}"

        def checks() -> dict[str, str]:
            return {
                "nats": bus.healthy(),
                "orders": orders.unhealthy() or untold(),
                "kubernetes": probe.unhealthy(),
                "configuration": source.unhealthy() or policy.unsynced(),
                "brake": brake.unhealthy(),
                "breaker": breaker_store.unsynced(),
                "keys": opened.keys.unhealthy(),
            }

        def ready() -> dict[str, str]:
            found = checks()
            return found | {"breaker": found["breaker"] or breaker.everywhere()}

        def status() -> ComponentStatus:
            everywhere, namespace_modes = mode_guard.modes()
            control = mode_guard.control
            return component_status(
                "evictor",
                identity,
                cluster_uid,
                control,
                mode=everywhere,
                own_mode=mode,
                namespace_modes=namespace_modes,
                policy_revision=policy.revision,
                told_policy_revision=control.policy_revision if control else "",
                leading=True,
                brake=brake.current.scope(),
                trouble="; ".join(filter(None, (*checks().values(), queues_source.unhealthy()))),
                caps=caps.describe(clock.now()),
                breaker=breaker.describe(),
                signatures=bus.signatures.describe(),
            )

        answering = await opened.starting.reach(partial(bus.components.answer, status))
        closing.push_async_callback(answering.unsubscribe)
        opened.starting.checks = ready
        _log.info(
            "evictor_started", cluster_uid=cluster_uid, mode=mode, server=api.server, port=opened.server.port
        )

        async def take() -> NoReturn:
            # What restrains an order has to be known before the first is touched.
            await known.wait()
            await brake.known.wait()
            await control_read.wait()
            await outcomes_read.wait()
            await breaker_store.known.wait()
            # Not waited for without end: orders of pods do not depend on the queues.
            await until_set(queues_read, QUEUES_WAIT_SECONDS)
            repairs = await bus.repairs.serve(mark_repair.handle)
            closing.push_async_callback(repairs.unsubscribe)
            await take_forever(orders, evictor.handle, slots, ready=probe.usable)

        garbage.set_aside()
        return await run_until_signalled(
            take(),
            source.run(),
            queues_source.run(),
            brake.run(),
            keep_to_control(bus, cluster_uid, mode_guard, metrics, caught_up=control_read),
            follow_outcomes(bus, cluster_uid, TEN_MINUTES, take=ended_anywhere, caught_up=outcomes_read),
            breaker_store.keep_forever(),
            members.run(),
            wasted.look_forever(),
            recorder.write_forever(),
            telling.tell_forever(),
            probe.probe_forever(),
            orders.keep_forever(),
            opened.keys.keep_forever(),
            bus.until_lost(),
            expected=(BusError, OtherClusterError),
        )
