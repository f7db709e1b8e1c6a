"""A nominator process from its parts: connections, what it follows, the Lease, and how it ends."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, Literal

import structlog
from prometheus_client import REGISTRY

from makeway.bus.codec import source
from makeway.bus.component_status import ComponentStatus
from makeway.bus.errors import BusError
from makeway.bus.following import follow_control, follow_outcomes
from makeway.bus.messages import LIVE_LOOK_BACK, Fence
from makeway.core.k8s.event import EventType, Regarding
from makeway.core.k8s.objects import Pod, PriorityClass
from makeway.core.policy.external import ANNOTATION, EXTERNAL
from makeway.core.policy.mode import Mode
from makeway.nominator.cluster import NominatorApi
from makeway.nominator.decide import Writer
from makeway.nominator.metrics import NominatorMetrics
from makeway.nominator.parts import NominatorParts
from makeway.nominator.pending import PendingPods, PriorityClasses
from makeway.nominator.service import Nominator
from makeway.nominator.shadow import ShadowScheduler
from makeway.nominator.streams import StreamsRead
from makeway.runtime import garbage
from makeway.runtime.brake import BrakeMetrics, BrakeReader
from makeway.runtime.connections import OtherClusterError, connected
from makeway.runtime.events import EventRecorder
from makeway.runtime.lease import Leadership, LeaseSettings, StepDown
from makeway.runtime.listwatch import ListWatch, Resource
from makeway.runtime.process import component_status, run_until_signalled
from makeway.runtime.server_clock import HeldClock
from makeway.runtime.settings import ServiceSettings

Verify = Literal["none", "shadow"]
"""Who verifies plans before they are carried out."""

_log = structlog.get_logger()


async def run(
    settings: ServiceSettings,
    *,
    mode: Mode,
    verify: Verify,
    lease: LeaseSettings,
) -> int:
    """Run a nominator until it is told to stop; returns the exit code.

    Raises:
        ConfigurationError, ApiError, ApiUnavailable: the API server cannot be used at the start.
        BusError: NATS cannot be used as it is configured.
        ValueError, OSError: an option is wrong, or the address to listen on is taken.
    """
    config, identity = settings.config, settings.identity
    async with contextlib.AsyncExitStack() as closing:
        opened = await closing.enter_async_context(
            connected("nominator", settings, signs=(), registry=REGISTRY)
        )
        api, bus, cluster_uid = opened.api, opened.bus, opened.cluster_uid
        metrics = NominatorMetrics(REGISTRY)
        events = EventRecorder(api, "makeway.dev/nominator", identity)
        brake = BrakeReader(api, BrakeMetrics(REGISTRY), metrics, namespace=config.namespace)
        streams = StreamsRead(mode)
        clock = HeldClock(api, "nominator", metrics.clock_ahead)

        def refuse_class(item: PriorityClass) -> None:
            if leadership.leading:
                events.record(*_class_refused(item))

        pods = PendingPods()
        classes = PriorityClasses(refuse_class)
        watched_pods = ListWatch(
            api, Resource("pods", "/api/v1/pods", Pod, field_selector="spec.nodeName="), pods, metrics
        )
        watched_classes = ListWatch(
            api,
            Resource("priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses", PriorityClass),
            classes,
            metrics,
        )

        def synced() -> str:
            if missing := streams.unsynced():
                return missing
            for one in (watched_classes, watched_pods):
                if not one.synced.is_set():
                    return one.unhealthy()
            return brake.unsynced()

        def unfit() -> str:
            return bus.healthy() or watched_pods.unhealthy() or clock.unfit()

        leadership = Leadership(api, lease, identity, unfit=unfit, impaired=clock.impaired)

        def fence() -> Fence:
            return Fence(kind="lease", namespace=lease.namespace, name=lease.name, epoch=leadership.epoch)

        nominator = Nominator(
            NominatorParts(
                bus=bus,
                cluster=NominatorApi(api),
                pods=pods,
                classes=classes,
                streams=streams,
                brake=brake,
                metrics=metrics,
                writer=Writer(cluster_uid=cluster_uid, source=source("nominator", identity), fence=fence),
                synced=synced,
                shadow=ShadowScheduler(bus, metrics) if verify == "shadow" else None,
            )
        )

        pods.tell = nominator.changed

        async def lead() -> None:
            metrics.leading.set(1)
            for item in classes.refused():
                refuse_class(item)
            try:
                await nominator.lead()
            finally:
                metrics.leading.set(0)

        def checks() -> dict[str, str]:
            return {
                "nats": bus.healthy(),
                "mode": streams.unsynced(),
                "pods": watched_pods.unhealthy(),
                "priorityclasses": watched_classes.unhealthy(),
                "brake": brake.unhealthy(),
                "clock": clock.impaired(),
                "keys": opened.keys.unhealthy(),
            }

        def status() -> ComponentStatus:
            return nominator_status(
                identity,
                cluster_uid,
                streams,
                leading=leadership.leading,
                trouble="; ".join(filter(None, [*checks().values(), nominator.trouble()])),
                brake=brake.current.scope(),
                signatures=bus.signatures.describe(),
            )

        answering = await opened.starting.reach(partial(bus.components.answer, status))
        closing.push_async_callback(answering.unsubscribe)
        opened.starting.checks = checks
        _log.info(
            "nominator_started",
            cluster_uid=cluster_uid,
            mode=mode,
            server=api.server,
            port=opened.server.port,
        )
        garbage.set_aside()
        return await run_until_signalled(
            clock.read_forever(),
            watched_pods.run(),
            watched_classes.run(),
            follow_control(
                bus,
                cluster_uid,
                take=streams.take,
                refused=metrics.decode_errors.labels("control").inc,
                caught_up=streams.control_read,
            ),
            follow_outcomes(
                bus,
                cluster_uid,
                LIVE_LOOK_BACK,
                take=nominator.ended,
                refused=metrics.decode_errors.labels("outcomes").inc,
                reached=streams.reached,
            ),
            brake.run(),
            events.write_forever(),
            leadership.run(lead),
            opened.keys.keep_forever(),
            bus.until_lost(),
            expected=(BusError, OtherClusterError, StepDown),
        )


def _class_refused(item: PriorityClass) -> tuple[Regarding, EventType, str, str, str]:
    about = Regarding("scheduling.k8s.io/v1", "PriorityClass", "", item.metadata.name, item.metadata.uid)
    note = (
        f"{ANNOTATION}: {EXTERNAL} has no effect without preemptionPolicy: Never, since the scheduler would "
        "preempt for these pods as well; make the class anew with Never, or remove the annotation"
    )
    return about, "Warning", "ExternalPreemptionRefused", "Preemption", note


def nominator_status(identity: str, cluster_uid: str, streams: StreamsRead, **own: Any) -> ComponentStatus:
    """Return how one nominator is; `own`: the fields that the streams do not tell."""
    return component_status(
        "nominator",
        identity,
        cluster_uid,
        streams.state,
        mode=streams.mode(""),
        own_mode=streams.own_mode,
        namespace_modes=streams.modes(),
        policy_revision=streams.state.policy_revision if streams.state else "",
        **own,
    )
