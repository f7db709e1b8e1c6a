"""An evictor process, from the product's own parts: only the API server and NATS behind it are models."""

import asyncio

import structlog
from prometheus_client import CollectorRegistry

from makeway.core.policy.brake import RELEASED, Brake
from makeway.core.policy.document import Policy
from makeway.evictor.act import cluster as edge
from makeway.evictor.act.records import OrderRecords
from makeway.evictor.intake.control import keep_to_control
from makeway.evictor.intake.deliveries import take_forever
from makeway.evictor.intake.live_orders import StreamOrders
from makeway.evictor.intake.repair import MarkRepair
from makeway.evictor.intake.service import Evictor, EvictorSettings
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.limits.slots import Slots
from makeway.evictor.metrics import EvictorMetrics
from protocol.cluster import CLUSTER, Cluster, ClusterApi
from protocol.loop import Process
from protocol.streams import SUBJECTS, Nats, Orders, SimulatedBus
from protocol.world import World
from unit.evictor.fakes import parts_of

_METRICS = EvictorMetrics(CollectorRegistry())
CONCURRENCY = 8


def order_in_hand() -> str:
    """The order that the running task works on."""
    return str(structlog.contextvars.get_contextvars().get("order_id", ""))


async def _no_brake() -> Brake:
    return RELEASED


def start_evictor(world: World, cluster: Cluster, nats: Nats, process: Process, policy: Policy) -> None:
    """Begin an evictor process, under a policy."""
    bus = SimulatedBus(nats, process, "evictor")
    api = edge.Cluster(ClusterApi(world, cluster, process, order_in_hand), _METRICS, _no_brake)  # type: ignore[arg-type]
    guard = ModeGuard("enforce", lambda: policy)
    control_read = asyncio.Event()
    slots = Slots(CONCURRENCY, _METRICS)
    evictor = Evictor(
        EvictorSettings(cluster_uid=CLUSTER, identity=process.identity, subjects=SUBJECTS),
        parts_of(api, OrderRecords(bus), process, _METRICS, guard, identity=process.identity),
        clock=process,
        slots=slots,
    )
    repair = MarkRepair(
        CLUSTER, guard, cluster=api, orders=StreamOrders(bus), clock=process, metrics=_METRICS
    )

    async def take() -> None:
        await control_read.wait()
        nats.repairs[process] = repair.handle
        await take_forever(Orders(nats, process), evictor.handle, slots)

    process.spawn(keep_to_control(bus, CLUSTER, guard, _METRICS, caught_up=control_read, now=process.now))
    process.spawn(take())
