"""A planner process: connect, make the parts, answer while leading, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from functools import partial
from typing import Any

import structlog
from prometheus_client import REGISTRY

from makeway.bus.client import Bus
from makeway.bus.errors import BusError, BusUnavailable
from makeway.bus.nats.serving import Responder
from makeway.bus.signing.keys import SigningKind
from makeway.core.policy.mode import Mode
from makeway.planner.service import consumer_lag
from makeway.planner.service.parts import Parts, PlannerContext, parts_of
from makeway.planner.service.warmup import warm_up
from makeway.runtime import garbage
from makeway.runtime.connections import OtherClusterError, connected
from makeway.runtime.lease import LeaseSettings, StepDown
from makeway.runtime.process import run_until_signalled
from makeway.runtime.settings import ServiceSettings

_log = structlog.get_logger()


async def run(
    settings: ServiceSettings,
    *,
    mode: Mode,
    lease: LeaseSettings | None,
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
            connected(
                "planner",
                settings,
                signs=(SigningKind.ORDER, SigningKind.CONTROL),
                registry=REGISTRY,
            )
        )
        stored, _ = await opened.starting.reach(opened.bus.control)
        warm_up()
        parts = parts_of(
            PlannerContext(
                identity=settings.identity,
                mode=mode,
                lease=lease,
                config=settings.config,
                api=opened.api,
                bus=opened.bus,
                cluster_uid=opened.cluster_uid,
                remembered=stored if stored and stored.cluster_uid == opened.cluster_uid else None,
                registry=REGISTRY,
            )
        )
        answering = await opened.starting.reach(partial(opened.bus.components.answer, parts.status.now))
        closing.push_async_callback(answering.unsubscribe)
        opened.starting.checks = lambda: {**parts.checks(), "keys": opened.keys.unhealthy()}
        _log.info(
            "planner_started",
            cluster_uid=opened.cluster_uid,
            mode=mode,
            leader_elect=lease is not None,
            server=opened.api.server,
            port=opened.server.port,
        )
        lead = partial(_lead, opened.bus, parts, record=record)
        leading: Coroutine[Any, Any, object] = parts.leadership.run(lead) if parts.leadership else lead()
        garbage.set_aside()
        return await run_until_signalled(
            *parts.seen.runs(),
            parts.deciding.repairing.propose_forever(),
            consumer_lag.watch_forever(opened.bus),
            leading,
            opened.keys.keep_forever(),
            opened.bus.until_lost(),
            expected=(BusError, OtherClusterError, StepDown),
        )


async def _lead(bus: Bus, parts: Parts, *, record: bool) -> None:
    """Answer requests, order for quotas, and tell what is in force, until it is cancelled.

    Raises:
        StepDown: NATS takes no subscription.
    """
    seen, deciding = parts.seen, parts.deciding
    services: list[Responder] = []
    try:
        services.append(await bus.serve_plan(deciding.planner.handle))
        services.append(await bus.serve_group_plan(deciding.group_planner.handle))
        services.append(await bus.serve_commits(deciding.committer.handle))
        services.append(await bus.serve_queues(deciding.queue_answers.handle))
    except BusUnavailable as error:
        await _unsubscribe(services)
        raise StepDown(str(error)) from error
    seen.metrics.leading.set(1)
    parts.status.leading = True
    deciding.committer.leading = True
    seen.observing.following = True
    seen.configuration.begin_telling()
    seen.class_warnings.begin()
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(deciding.control.publish_forever())
            tasks.create_task(deciding.quotas.lead(parts.fence.get))
            tasks.create_task(seen.tolerations.keep_forever())
            tasks.create_task(deciding.queue_warnings.tell_forever())
            if record:
                tasks.create_task(deciding.recorder.record_forever())
    finally:
        seen.class_warnings.end()
        seen.configuration.end_telling()
        seen.observing.following = False
        seen.metrics.leading.set(0)
        parts.status.leading = False
        await deciding.committer.stop()
        await _unsubscribe(services)


async def _unsubscribe(services: list[Responder]) -> None:
    for service in services:
        await service.unsubscribe()
