"""Orders in trouble of one namespace, in whatever number, hold up no healthy order of another."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec import structs

from makeway.bus.messages import PAST_DEADLINE, EvictionOrder
from makeway.evictor.act.holds import NAMESPACE_SHARE
from makeway.evictor.intake.deliveries import take_forever
from makeway.evictor.limits import hand
from makeway.evictor.limits.hand import (
    GIVE_BACK_SECONDS,
    MAX_IN_HAND,
    MOST_DELIVERIES,
    PLACE_BYTES,
    SHARE,
    places_of,
)
from unit.evictor.building import NOW, make_order
from unit.evictor.fakes import SERVER_ERROR, FakeDelivery
from unit.evictor.test_service import World, no_slots, running
from unit.evictor.test_slots import Running, Stream, order_of


class Given(FakeDelivery):
    """A delivery that comes again when it was given back, after its delay."""

    def __init__(self, stream: Redelivering, order: EvictionOrder, deliveries: int = 1) -> None:
        super().__init__(order, deliveries)
        self._stream, self._order = stream, order
        self.sequence = stream.sequences.setdefault(order.order_id, len(stream.sequences) + 1)
        stream.in_hand += 1
        stream.most_in_hand = max(stream.most_in_hand, stream.in_hand)

    async def ack_sync(self) -> None:
        await super().ack_sync()
        self._stream.in_hand -= 1

    async def nak(self, delay_seconds: float = 0.0) -> None:
        await super().nak(delay_seconds)
        self._stream.in_hand -= 1
        self._stream.given_back.append(delay_seconds)
        self._stream.names.add(self._order.order_id)
        again = asyncio.create_task(self._stream.come_again(self._order, self.deliveries + 1, delay_seconds))
        self._stream.coming.add(again)
        again.add_done_callback(self._stream.coming.discard)


class Redelivering(Stream):
    """A stream with a consumer that delivers again."""

    def __init__(self, world: Running) -> None:
        super().__init__()
        self._world = world
        self._left: asyncio.Queue[tuple[EvictionOrder, int]] = asyncio.Queue()
        self.given_back: list[float] = []
        self.names: set[str] = set()
        self.sequences: dict[str, int] = {}
        self.coming: set[asyncio.Task[None]] = set()
        self.in_hand = self.most_in_hand = 0

    def put(self, *orders: EvictionOrder) -> None:
        for order in orders:
            self._left.put_nowait((order, 1))

    async def come_again(self, order: EvictionOrder, deliveries: int, delay: float) -> None:
        await self._world.clock.sleep(delay)
        self._left.put_nowait((order, deliveries))

    async def next(self, timeout_seconds: float) -> FakeDelivery | None:
        order, deliveries = await self._left.get()
        self.handed.append(Given(self, order, deliveries))
        return self.handed[-1]


def in_trouble(count: int, *healthy: str) -> tuple[list[str], Running, Redelivering]:
    """So many victims whose deletes fail, in a world with others, and its stream of orders."""
    dead = [f"dead-{number}" for number in range(count)]
    world = Running(32, *dead, *healthy)
    stream = world.stream = Redelivering(world)
    for name in dead:
        world.cluster.always_fail("delete", name, SERVER_ERROR)
    return dead, world, stream


async def test_any_number_of_orders_in_trouble_holds_up_no_healthy_one() -> None:
    dead, world, stream = in_trouble(MAX_IN_HAND + 10, "healthy")

    async with world.taking_orders(drain_seconds=0.1):
        stream.put(*(order_of(name, namespace="dead") for name in dead))
        await world.clock.run(6)
        stream.put(order_of("healthy"))
        await world.clock.run(1.5)

        assert world.records.outcomes["ord-healthy"].result == "succeeded"
        # All of those in trouble live, and some are tried again and again.
        assert set(world.records.outcomes) == {"ord-healthy"}
        assert stream.most_in_hand <= MAX_IN_HAND
        assert set(stream.given_back) == {GIVE_BACK_SECONDS}


async def test_orders_that_were_given_back_have_their_end_and_none_is_put_aside() -> None:
    dead, world, stream = in_trouble(SHARE + 20)

    async with world.taking_orders():
        stream.put(*(order_of(name, namespace="dead") for name in dead))
        await world.clock.run(90)

    assert stream.given_back
    assert len(world.records.outcomes) == len(dead)
    assert max(one.deliveries for one in stream.handed) < MOST_DELIVERIES


async def test_an_order_that_was_given_back_ends_when_its_time_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds later, the planner would take it that no evictor is there, and plan for no pod."""
    monkeypatch.setattr(hand, "SHARE", 2)
    names = ("old", "older", "short")
    world = Running(32, *names)
    stream = world.stream = Redelivering(world)
    for name in names:
        world.cluster.always_fail("delete", name, SERVER_ERROR)
    short = structs.replace(order_of("short"), not_after=NOW + timedelta(seconds=3))

    async with world.taking_orders(drain_seconds=0.1):
        stream.put(order_of("old", priority=2000), order_of("older", priority=2000), short)
        await world.clock.run(20)

        assert stream.names == {"ord-short"}
        assert world.records.outcomes["ord-short"].finished_at < short.not_after + PAST_DEADLINE


async def test_an_order_that_was_given_back_is_held_for_that_until_it_ends() -> None:
    dead, world, stream = in_trouble(SHARE + 1)
    held: list[tuple[str, str]] = []

    async with world.taking_orders():
        stream.put(*(order_of(name, namespace="dead") for name in dead))
        for _ in range(20):
            await world.clock.run(1)
            for one in world.evictor.parts.holds.due(world.clock.now()):
                one.told = one.reason
                held.append((one.order.order_id, one.reason))
        [beyond] = [name for name, reason in held if reason == NAMESPACE_SHARE]
        assert [reason for name, reason in held if name == beyond] == [NAMESPACE_SHARE]
        await world.clock.run(90)

    over: set[str] = set()
    while orders := world.evictor.parts.holds.take_over():
        over |= {order.order_id for order in orders}
    assert beyond in over


@pytest.mark.parametrize("shared", ["SHARE", "MOST_WAITING"])
async def test_the_least_important_of_the_orders_that_wait_is_given_back(
    monkeypatch: pytest.MonkeyPatch, shared: str
) -> None:
    monkeypatch.setattr(hand, shared, 3)
    names = ("low", "old", "young", "important", "another")
    world = Running(32, *names)
    stream = world.stream = Redelivering(world)
    for name in names:
        world.cluster.always_fail("delete", name, SERVER_ERROR)
    low, old, young = order_of("low", priority=500), order_of("old"), order_of("young")

    async with world.taking_orders():
        stream.put(old, young, low)
        await world.clock.run(3)
        assert stream.names == set()
        stream.put(order_of("important", priority=2000))
        await world.clock.run(20)
        assert stream.names == {"ord-low"}
        stream.put(order_of("another", priority=2000))
        await world.clock.run(20)
        assert stream.names == {"ord-low", "ord-young"}
        await world.clock.run(90)

    assert len(world.records.outcomes) == 5
    assert world.evictor.parts.holds.due(world.clock.now()) == []


async def test_an_important_order_enters_before_those_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand, "SHARE", 2)
    names = ("a", "b", "c", "d", "e", "important")
    world = Running(1, *names)
    stream = world.stream = Redelivering(world)
    for name in names:
        world.cluster.always_fail("delete", name, SERVER_ERROR)

    async with world.taking_orders(drain_seconds=0.1):
        stream.put(order_of("a"), order_of("b"))
        await world.clock.run(3)
        world.cluster.slow["get_pod", "c"] = 10_000
        stream.put(order_of("c"))
        await asyncio.sleep(0)
        stream.put(order_of("d", priority=10), order_of("e", priority=20), order_of("important"))
        for _ in range(50):
            await asyncio.sleep(0)

        assert stream.names == {"ord-d"}


async def test_a_few_orders_in_trouble_are_given_back_to_nobody() -> None:
    dead, world, stream = in_trouble(SHARE)

    async with world.taking_orders():
        stream.put(*(order_of(name, namespace="dead") for name in dead))
        await world.clock.run(90)

    assert stream.given_back == []
    assert len(world.records.outcomes) == SHARE


async def test_a_second_delivery_of_an_order_under_way_waits_for_the_first() -> None:
    world = World(*running("a"))
    world.cluster.slow["delete", "a"] = 200
    order = make_order("a")
    world.records.orders[order.preemptor_uid] = order
    first, second = FakeDelivery(order), FakeDelivery(order, 2)

    await asyncio.gather(world.evictor.handle(first), world.evictor.handle(second))

    assert (first.said, second.said) == (["ack"], ["ack"])
    assert world.cluster.deletes() == ["a"]
    assert [name for operation, name in world.cluster.calls if operation == "mark"] == ["a"]


def test_an_order_takes_places_by_its_size() -> None:
    assert [places_of(size) for size in (0, PLACE_BYTES - 1, PLACE_BYTES, 8 * PLACE_BYTES)] == [1, 1, 2, 9]


async def test_large_orders_fill_the_hand_before_many_small_ones_would() -> None:
    taken = 0
    never = asyncio.Event()

    class Large:
        async def next(self, timeout_seconds: float) -> FakeDelivery | None:
            return FakeDelivery(b" " * (3 * PLACE_BYTES))

    async def handle(delivery: object) -> None:
        nonlocal taken
        taken += 1
        await never.wait()

    taking = asyncio.create_task(take_forever(Large(), handle, no_slots(), most=10))
    for _ in range(50):
        await asyncio.sleep(0)

    assert taken == 3  # four places each: the third is begun with eight taken
    never.set()
    taking.cancel()
    await asyncio.wait([taking])
