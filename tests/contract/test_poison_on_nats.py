"""Evictor and planner on a real nats-server among messages nobody can read: put aside, in nobody's way."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from background import background
from builders_bus import make_outcome
from fixtures_nats import ConnectBus, NatsServer
from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.messages import EvictionOrder
from makeway.bus.streams.configs import evictor_config
from makeway.evictor.act.records import OrderRecords
from makeway.evictor.intake.deliveries import take_forever
from makeway.evictor.intake.service import Evictor, EvictorSettings
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.limits.slots import Slots
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import SystemClock
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger
from makeway.planner.service.orders.follower import OrderFollower
from unit.bus.test_hostile_messages_from_nats import HOSTILE, raw_publish
from unit.evictor.building import CLUSTER, a_pod, make_order
from unit.evictor.fakes import FakeCluster, parts_of

pytestmark = pytest.mark.nats


class World:
    """An evictor on a real bus, with a cluster in memory."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.cluster = FakeCluster(a_pod("a").build())
        self.registry = CollectorRegistry()
        metrics = EvictorMetrics(self.registry)
        self.slots = Slots(16, metrics)
        self.evictor = Evictor(
            EvictorSettings(cluster_uid=CLUSTER, identity="evictor-1", subjects=bus.subjects),
            parts_of(self.cluster, OrderRecords(bus), SystemClock(), metrics, ModeGuard("enforce")),
            clock=SystemClock(),
            slots=self.slots,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        orders = await self.bus.orders_consumer()
        try:
            async with background(take_forever(orders, self.evictor.handle, self.slots)) as [taking]:
                yield
                assert not taking.done()
        finally:
            await orders.close()

    async def carried_out(self) -> float:
        """Commit a healthy order; the seconds until its outcome stands."""
        started = time.monotonic()
        order = healthy()
        await self.bus.publish_order(order, 0)
        while await self.bus.outcome(order.order_id) is None:
            assert time.monotonic() - started < 60
            await asyncio.sleep(0.01)
        return time.monotonic() - started

    async def quarantined(self) -> Counter[str]:
        stream = self.bus.subjects.quarantine_stream
        read = [m async for m in self.bus.follow(stream, stop_at_end=True)]
        return Counter(m.headers["Makeway-Reason"] for m in read)

    async def until_quarantined(self, count: int, seconds: float = 20) -> Counter[str]:
        deadline = time.monotonic() + seconds
        while (found := await self.quarantined()).total() != count:
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.1)
        return found


def healthy() -> EvictionOrder:
    now = datetime.now(UTC)
    return make_order("a", created_at=now, not_after=now + timedelta(seconds=60))


def rubbish(order: EvictionOrder, count: int) -> list[tuple[str, bytes, str]]:
    """Subject, bytes and the reason for which they are put aside."""
    good = codec.wrap(order, "makeway/scheduler/x")
    kinds = [
        (b"\x00\xff\xfe", "not-json"),
        (b"{}", "invalid"),
        (good.replace(b"order.v1", b"order.v2"), "unknown-version"),
        (good.replace(b"dev.makeway.order.v1", b"com.example.x"), "unknown-type"),
        (b"[" * 100_000, "too-deep"),
        (good[:-1] + b" " * 900_000 + b"}", "wrong-subject"),
        (good, "wrong-subject"),
    ]
    return [(f"makeway.v1.orders.pod.bad-{n}", *kinds[n % len(kinds)]) for n in range(count)]


async def test_a_flood_of_rubbish_is_put_aside_in_a_second_of_work_and_nothing_is_given_out_twice(
    bus: Bus, nats_server: NatsServer
) -> None:
    world = World(bus)
    sent = rubbish(healthy(), 100)
    for subject, data, _ in sent:
        await bus.jetstream.publish(subject, data, headers={}, timeout_seconds=5)
    for where, payload, headers in HOSTILE.values():
        await raw_publish(nats_server, where, payload, headers)

    worked = time.process_time()  # of this process: what else the machine does delays it, and is not its work
    async with world.running():
        await world.carried_out()
        worked = time.process_time() - worked
        found = await world.until_quarantined(len(sent) + len(HOSTILE))

    expected = Counter(reason for _, _, reason in sent)
    assert {reason: found[reason] for reason in expected if reason not in ("not-json", "invalid")} == {
        reason: number for reason, number in expected.items() if reason not in ("not-json", "invalid")
    }
    name = evictor_config(bus.subjects)["name"]
    consumer = await bus.jetstream.api(f"CONSUMER.INFO.{bus.subjects.orders_stream}.{name}")
    assert consumer["delivered"]["consumer_seq"] == len(sent) + len(HOSTILE) + 1
    assert worked < 1, f"{len(sent)} bad messages stand before it"
    assert world.cluster.deletes() == ["a"]


async def test_without_a_quarantine_a_message_waits_for_one(bus: Bus) -> None:
    world = World(bus)
    await bus.jetstream.api("STREAM.DELETE.MAKEWAY_QUARANTINE")
    await bus.jetstream.publish("makeway.v1.orders.pod.x", b"{", headers={}, timeout_seconds=2)

    async with world.running():
        assert await world.carried_out() < 2
        await asyncio.sleep(3)
        await bus.ensure_streams()
        found = await world.until_quarantined(1, seconds=20)

    assert found == {"not-json": 1}
    assert (world.registry.get_sample_value("makeway_evictor_not_parked_messages_total") or 0) >= 1


async def test_two_planners_and_a_restarted_one_put_an_outcome_aside_once(connect_bus: ConnectBus) -> None:
    buses = [await connect_bus(f"planner/{n}") for n in range(3)]
    await buses[0].ensure_streams()
    order = healthy()
    forged = codec.wrap(make_outcome(order), "makeway/evictor/x")
    ends = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    endless = codec.wrap(make_order("a", order_id="ord-endless", not_after=ends), "makeway/scheduler/x")
    publish = buses[0].jetstream.publish
    await publish("makeway.v1.outcomes.x", b"\xff", headers={}, timeout_seconds=2)
    await publish("makeway.v1.outcomes.y", forged, headers={}, timeout_seconds=2)
    await publish("makeway.v1.orders.pod.urgent-uid", endless, headers={}, timeout_seconds=2)
    world = World(buses[0])
    ledgers = []

    for bus in buses:
        ledger = Ledger()
        ledgers.append(ledger)
        follower = OrderFollower(bus, ledger, PlannerMetrics(CollectorRegistry()), datetime.now(UTC))
        work = follower.follow_orders(), follower.follow_outcomes(), follower.quarantine_forever()
        async with background(*work) as parts:
            async with asyncio.timeout(20):
                while not follower.synced:  # noqa: ASYNC110 - there is no event for both
                    await asyncio.sleep(0.05)
            await asyncio.sleep(1)  # what it put aside again would be there by now
            assert not any(part.done() for part in parts)

    assert await world.until_quarantined(2) == {"not-json": 1, "wrong-subject": 1}
    assert [len(ledger) for ledger in ledgers] == [0, 0, 0]
