"""Which orders work at once: what waits holds up nothing, and more important orders go first."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from prometheus_client import CollectorRegistry

from makeway.bus.messages import EvictionOrder, NominationToClear, Victim
from makeway.core.k8s.objects import Pod
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.core.policy.rules import PreemptorFacts
from makeway.evictor.act.nominations import clear_listed
from makeway.evictor.act.rollback import LONGEST, RollbackRun
from makeway.evictor.act.work import OrderWork
from makeway.evictor.intake import deliveries
from makeway.evictor.intake.deliveries import take_forever
from makeway.evictor.intake.service import Evictor, EvictorSettings
from makeway.evictor.judge.verdicts import Deleted
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.limits.slots import AT_ONCE, Slots, Turn
from makeway.evictor.metrics import EvictorMetrics
from unit.evictor.building import (
    CLUSTER,
    NOW,
    a_pod,
    awaiting,
    make_order,
    make_outcome,
    make_preemptor,
    make_victim,
)
from unit.evictor.fakes import SERVER_ERROR, UNAVAILABLE, FakeCluster, FakeDelivery, FakeRecords, parts_of

TURNS = 60
"""Of the event loop at most, in which everything that need not wait is done."""


async def let_others_run() -> None:
    """Give the event loop to all others until each waits, for `TURNS` at most."""
    loop: Any = asyncio.get_running_loop()
    for _ in range(TURNS):
        if not loop._ready:
            return
        await asyncio.sleep(0)


class OrderedClock:
    """Virtual time for many: it goes on to the next moment at which one wakes, once all others wait."""

    def __init__(self) -> None:
        self.time = NOW
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def now(self) -> datetime:
        return self.time

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        until = self.time + timedelta(seconds=seconds)
        heapq.heappush(self._sleepers, (until, next(self._numbers), woken))
        await woken

    async def run(self, seconds: float) -> None:
        """Let so much time go by."""
        end = self.time + timedelta(seconds=seconds)
        while True:
            await let_others_run()
            if not self._sleepers or self._sleepers[0][0] > end:
                self.time = end
                return
            self.time, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)


class Stream:
    """Hands out deliveries as they are put."""

    def __init__(self) -> None:
        self.deliveries: asyncio.Queue[FakeDelivery] = asyncio.Queue()
        self.handed: list[FakeDelivery] = []

    def put(self, *orders: EvictionOrder) -> None:
        for order in orders:
            self.deliveries.put_nowait(FakeDelivery(order))

    async def next(self, timeout_seconds: float) -> FakeDelivery | None:
        self.handed.append(await self.deliveries.get())
        return self.handed[-1]


class Running:
    """An evictor with a few slots that takes orders."""

    def __init__(self, slots: int, *victims: str) -> None:
        self.cluster = FakeCluster(*(a_pod(name).build() for name in victims))
        self.policy = Policy()
        self.records, self.clock, self.stream = FakeRecords(), OrderedClock(), Stream()
        metrics = EvictorMetrics(CollectorRegistry())
        self.slots = Slots(slots, metrics)
        guard = ModeGuard("enforce", lambda: self.policy)
        self.evictor = Evictor(
            EvictorSettings(cluster_uid=CLUSTER, identity="evictor-1"),
            parts_of(self.cluster, self.records, self.clock, metrics, guard),
            clock=self.clock,
            slots=self.slots,
        )
        self.taking: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def taking_orders(
        self, drain_seconds: float = deliveries.DRAIN_SECONDS, ready: asyncio.Event | None = None
    ) -> AsyncIterator[None]:
        """Take orders during the block; its end waits so long, in real time, for those that are under way."""
        taking = take_forever(self.stream, self.evictor.handle, self.slots, ready=ready)
        self.taking = asyncio.create_task(taking)
        try:
            yield
        finally:
            self.taking.cancel()
            with patch.object(deliveries, "DRAIN_SECONDS", drain_seconds):
                await asyncio.wait([self.taking])


def order_of(name: str, *, namespace: str = "default", priority: int = 1000) -> EvictionOrder:
    return make_order(
        make_victim(name, namespace=namespace),
        order_id=f"ord-{name}",
        preemptor=make_preemptor(priority=priority),
    )


async def test_orders_whose_deletes_fail_again_and_again_hold_up_no_healthy_order() -> None:
    dead = [f"dead-{number}" for number in range(32)]
    world = Running(32, *dead, "healthy")
    for name in dead:
        world.cluster.always_fail("delete", name, SERVER_ERROR)

    async with world.taking_orders():
        world.stream.put(*(order_of(name, namespace="dead") for name in dead))
        await world.clock.run(3)
        world.stream.put(order_of("healthy"))
        await world.clock.run(1)

        assert world.records.outcomes["ord-healthy"].result == "succeeded"
        # The others are tried again meanwhile, and end with their time.
        assert set(world.records.outcomes) == {"ord-healthy"}
        assert len(world.cluster.deletes()) > 3 * 32
        await world.clock.run(60)
    assert all(delivery.said[-1:] == ["ack"] for delivery in world.stream.handed)
    assert len(world.records.outcomes) == 33


async def test_an_order_of_higher_priority_passes_those_that_came_before_it() -> None:
    names = ["first", "low", "mid", "high"]
    world = Running(1, *names)
    world.cluster.slow["get_pod", "first"] = 30

    async with world.taking_orders():
        world.stream.put(*(order_of(name, priority=1000 + 10 * place) for place, name in enumerate(names)))
        for _ in range(10):
            await world.clock.run(0)

    assert world.cluster.deletes() == ["first", "high", "mid", "low"]


async def test_an_order_that_waits_for_another_holds_no_slot() -> None:
    world = Running(1, "waits", "other")
    waits = make_order("waits", order_id="ord-waits", awaited=awaiting("ord-0"))

    async with world.taking_orders():
        world.stream.put(waits)
        await world.clock.run(1)
        world.stream.put(order_of("other"))
        await world.clock.run(1)
        assert world.cluster.deletes() == ["other"]

        world.records.outcomes["ord-0"] = make_outcome("ord-0", "succeeded")
        await world.clock.run(5)
        assert world.cluster.deletes() == ["other", "waits"]


async def test_orders_that_have_not_begun_are_given_back_at_once_when_the_process_is_told_to_stop() -> None:
    world = Running(1, "first", "second")
    world.cluster.slow["get_pod", "first"] = 5 * TURNS

    async with world.taking_orders():
        world.stream.put(order_of("first"), order_of("second"))
        await world.clock.run(0)

    assert [delivery.said for delivery in world.stream.handed] == [["ack"], ["nak"]]
    assert world.cluster.deletes() == ["first"]


async def test_a_rollback_that_is_answered_500_for_ever_ends_and_says_what_is_left() -> None:
    world = Running(1, "a", "b")
    world.cluster.always_fail("delete", "a", SERVER_ERROR)
    world.cluster.always_fail("clear_mark", "a", SERVER_ERROR)

    async with world.taking_orders():
        world.stream.put(make_order("a", "b"))
        await world.clock.run(60 + LONGEST.total_seconds() + 1)

        outcome = world.records.outcomes["ord-1"]
        assert (outcome.result, outcome.reason) == ("failed", "deadline")
        assert outcome.message.endswith("; not rolled back: mark of default/a")
        assert outcome.rollback is not None
        assert outcome.rollback.nomination_reverted
    assert world.stream.handed[0].said[-1] == "ack"


async def test_an_order_keeps_its_slot_while_one_victim_waits_to_try_again_and_others_are_at_work() -> None:
    """Each order has one victim that is answered 500 at once, and five whose delete hangs for ten seconds."""
    orders, slots = 60, 32
    world = Running(slots, *(f"{order}-{victim}" for order in range(orders) for victim in range(6)))
    hanging: Counter[str] = Counter()
    most = 0

    async def delete(victim: Victim, resource_version: str, **_: float) -> Deleted | None:
        nonlocal most
        if victim.name.endswith("-0"):
            raise SERVER_ERROR
        order = victim.name.split("-")[0]
        hanging[order] += 1
        most = max(most, sum(1 for count in hanging.values() if count))
        await world.clock.sleep(10)
        hanging[order] -= 1
        raise UNAVAILABLE

    world.cluster.delete = delete  # type: ignore[method-assign]
    # The clock of those that hang goes on no more.
    async with world.taking_orders(drain_seconds=0.1):
        world.stream.put(
            *(
                make_order(
                    *(make_victim(f"{order}-{victim}", namespace="dead") for victim in range(6)),
                    order_id=f"ord-{order}",
                )
                for order in range(orders)
            )
        )
        await world.clock.run(30)
    assert 0 < most <= slots


@pytest.mark.parametrize("clearing", ["marks", "nominations"])
async def test_an_order_keeps_its_slot_while_a_pod_waits_and_a_request_runs(clearing: str) -> None:
    cluster, clock, metrics = FakeCluster(), OrderedClock(), EvictorMetrics(CollectorRegistry())
    slots = Slots(1, metrics)
    order = make_order(
        "a",
        "b",
        nominations_to_clear=tuple(NominationToClear("default", name, f"{name}-uid") for name in ("a", "b")),
    )
    turn = slots.turn(order, 1, clock)
    hanging = 0

    async def get_pod(_: str, name: str) -> Pod | None:
        nonlocal hanging
        if name == "a":
            raise SERVER_ERROR
        hanging += 1
        await clock.sleep(2)
        hanging -= 1
        return None

    cluster.get_pod = get_pod  # type: ignore[method-assign, assignment]
    parts = parts_of(cluster, FakeRecords(), clock, metrics, ModeGuard("enforce"))
    work = OrderWork(order, parts, turn, stored_at=NOW)
    work.preemptor = PreemptorFacts(1000)

    async def clear() -> None:
        await turn.enter()
        if clearing == "marks":
            await RollbackRun(work).run(order.victims)
        else:
            await clear_listed(work)

    beside: list[int] = []

    async def follow() -> None:
        await slots.turn(order_of("next"), 2, clock).enter()
        beside.append(hanging)

    tasks = [asyncio.create_task(clear()), asyncio.create_task(follow())]
    await clock.run(5)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert beside == [0], "the next order begins, but beside no request of this one"


async def test_of_the_victims_of_one_order_sixteen_are_under_way_at_the_same_time() -> None:
    names = [f"p{number}" for number in range(3 * AT_ONCE)]
    world = Running(1, *names)
    plain, under_way, most = world.cluster.delete, 0, 0

    async def delete(victim: Victim, resource_version: str, **_: float) -> Deleted | None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await world.clock.sleep(0.1)
        under_way -= 1
        return await plain(victim, resource_version)

    world.cluster.delete = delete  # type: ignore[method-assign]
    async with world.taking_orders():
        world.stream.put(make_order(*names))
        await world.clock.run(5)

    assert most == AT_ONCE == 16
    assert world.records.outcomes["ord-1"].result == "succeeded"


# ------------------------------------------------------------------------------------- slots alone


def turns(slots: Slots, clock: OrderedClock, namespace: str, count: int) -> list[Turn]:
    return [slots.turn(order_of(f"{namespace}-{n}", namespace=namespace), n, clock) for n in range(count)]


class Worker:
    """Tries again and again; each try takes ten seconds, each pause one."""

    working: set[Worker]

    def __init__(self, turn: Turn, working: set[Worker]) -> None:
        self.turn, self.working = turn, working

    async def work(self, clock: OrderedClock) -> None:
        await self.turn.enter()
        while True:
            self.working.add(self)
            await clock.sleep(10)
            self.working.discard(self)
            await self.turn.sleep(1)


@pytest.mark.parametrize("orders", [32, 200])
async def test_a_namespace_whose_requests_hang_takes_a_quarter_of_the_slots(orders: int) -> None:
    clock, working = OrderedClock(), set[Worker]()
    slots = Slots(32, EvictorMetrics(CollectorRegistry()))
    workers = [Worker(turn, working) for turn in turns(slots, clock, "hangs", orders)]
    tasks = [asyncio.create_task(worker.work(clock)) for worker in workers]
    most = []

    await clock.run(10.5)
    for _ in range(60):
        await clock.run(1)
        most.append(len(working))
    (other,) = turns(slots, clock, "other", 1)
    async with asyncio.timeout(1):
        await other.enter()

    assert max(most) == slots.share == 8
    for task in tasks:
        task.cancel()


async def test_a_namespace_of_which_none_fails_may_take_every_slot() -> None:
    clock = OrderedClock()
    slots = Slots(8, EvictorMetrics(CollectorRegistry()))

    async with asyncio.timeout(1):
        for turn in turns(slots, clock, "busy", 8):
            await turn.enter()


async def test_what_has_begun_goes_before_what_has_not_whatever_its_priority() -> None:
    clock, entered = OrderedClock(), list[str]()
    slots = Slots(1, EvictorMetrics(CollectorRegistry()))
    begun, holder = (slots.turn(order_of(name, priority=1), 1, clock) for name in ("begun", "holder"))
    fresh = slots.turn(order_of("fresh", priority=2000), 2, clock)
    await begun.enter()
    begun.leave()
    await holder.enter()

    async def enter(name: str, turn: Turn) -> None:
        await turn.enter()
        entered.append(name)
        turn.leave()

    async with asyncio.TaskGroup() as group:
        group.create_task(enter("fresh", fresh))
        group.create_task(enter("begun", begun))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        holder.leave()

    assert entered == ["begun", "fresh"]


async def test_one_who_is_cancelled_while_it_waits_leaves_the_line() -> None:
    clock = OrderedClock()
    slots = Slots(1, EvictorMetrics(CollectorRegistry()))
    holder, gone, next_one = turns(slots, clock, "a", 3)
    await holder.enter()
    waiting = [asyncio.create_task(turn.enter()) for turn in (gone, next_one)]
    await asyncio.sleep(0)

    waiting[0].cancel()
    await asyncio.wait([waiting[0]])
    holder.leave()

    async with asyncio.timeout(1):
        await waiting[1]


async def test_a_slot_is_free_when_the_last_of_an_orders_tasks_ends_its_work_and_another_waits() -> None:
    clock = OrderedClock()
    slots = Slots(1, EvictorMetrics(CollectorRegistry()))
    turn, other = turns(slots, clock, "a", 2)
    waits = asyncio.create_task(other.enter())

    async with turn.work():
        idle = asyncio.create_task(turn.idle(10))
        await clock.run(1)
        assert not waits.done()
    await clock.run(1)

    assert waits.done()
    idle.cancel()


async def test_an_order_that_waits_for_others_is_given_back_at_once_when_the_process_ends() -> None:
    world = Running(4, "a", "b")
    world.policy = Policy(limits=PolicyLimits(victims_per_minute=1, victims_per_order=1))
    world.evictor.parts.caps.count({"default": 1}, NOW)
    async with world.taking_orders(drain_seconds=3600.0):
        world.stream.put(order_of("a"), make_order("b", order_id="ord-b", awaited=awaiting("never")))
        await world.clock.run(3)
        assert [one.said for one in world.stream.handed] == [[], []]

    assert [one.said for one in world.stream.handed] == [["nak"], ["nak"]]
    assert world.records.outcomes == {}
