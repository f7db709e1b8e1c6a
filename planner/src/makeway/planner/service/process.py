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
from makeway.bus.signing.keys import SigningKind
from makeway.core.policy.mode import Mode
from makeway.planner.service import consumer_lag
from makeway.planner.service.parts import Parts, PlannerContext
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
        parts = Parts(
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
        answering = await opened.starting.reach(partial(opened.bus.components.answer, parts.status))
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
            parts.repairing.propose_forever(),
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
    seen = parts.seen
    async with contextlib.AsyncExitStack() as closing:
        try:
            plans = await bus.serve_plan(partial(parts.planner.handle, parts.pods))
            closing.push_async_callback(plans.unsubscribe)
            group_plans = await bus.serve_group_plan(partial(parts.planner.handle, parts.groups))
            closing.push_async_callback(group_plans.unsubscribe)
            commits = await bus.serve_commits(parts.committer.handle)
            closing.push_async_callback(commits.unsubscribe)
            queries = await bus.serve_queues(parts.answer_queues)
            closing.push_async_callback(queries.unsubscribe)
        except BusUnavailable as error:
            raise StepDown(str(error)) from error
        closing.push_async_callback(parts.committer.stop)
        _set_leading(parts, leading=True)
        closing.callback(_set_leading, parts, leading=False)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(parts.control.publish_forever())
            tasks.create_task(parts.quotas.lead(parts.fence.get))
            tasks.create_task(seen.tolerations.keep_forever())
            tasks.create_task(parts.warnings.tell_forever())
            if record:
                tasks.create_task(parts.recorder.record_forever())


def _set_leading(parts: Parts, *, leading: bool) -> None:
    """Have a planner speak and act for all of them, or not."""
    parts.leading = parts.seen.observing.following = leading
    parts.seen.metrics.leading.set(leading)
    if leading:
        parts.committer.leading = True
        parts.seen.configuration.begin_telling()
    else:
        parts.seen.configuration.end_telling()
