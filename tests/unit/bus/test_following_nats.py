"""Following streams, against a real nats-server."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from nats.aio.msg import Msg
from prometheus_client import CollectorRegistry

from background import background
from builders_bus import make_order, make_outcome
from fixtures_nats import ConnectBus, NatsServer
from makeway.bus import metrics
from makeway.bus.client import Bus
from makeway.bus.messages import StreamPosition
from makeway.bus.nats.batches import Batches
from makeway.bus.nats.jetstream import StoredMessage
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger
from makeway.planner.service.orders.follower import OrderFollower

pytestmark = pytest.mark.nats


async def publish(bus: Bus, *uids: str) -> None:
    for uid in uids:
        await bus.publish_order(make_order(uid), 0)


def uid_of(message: StoredMessage) -> str:
    return message.subject.rpartition(".")[2]


async def take(messages: AsyncIterator[StoredMessage], count: int, seconds: float = 15) -> list[str]:
    async with asyncio.timeout(seconds):
        return [uid_of(await anext(messages)) for _ in range(count)]


def rebuilds(reason: str) -> float:
    return float(metrics.REBUILDS.labels("follow", reason)._value.get())


async def test_from_the_beginning_everything_comes_in_order_and_then_what_is_new(bus: Bus) -> None:
    await publish(bus, "a", "b")
    messages = bus.follow(bus.subjects.orders_stream)

    assert await take(messages, 2) == ["a", "b"]
    await publish(bus, "c")
    assert await take(messages, 1) == ["c"]


@pytest.mark.parametrize("restart", [False, True])
async def test_behind_the_last_only_what_is_new_comes_also_after_a_restart_before_it(
    bus: Bus, nats_server: NatsServer, restart: bool
) -> None:
    await publish(bus, "a")
    begun = asyncio.Event()
    messages = bus.follow(bus.subjects.orders_stream, after=1, caught_up=begun)
    reading = asyncio.create_task(take(messages, 1))
    await asyncio.wait_for(begun.wait(), 15)

    if restart:
        nats_server.kill()
        await asyncio.sleep(0.1)
        nats_server.start()
    await publish(bus, "b")

    assert await reading == ["b"]


async def test_from_a_time_what_was_stored_before_is_left_out(bus: Bus) -> None:
    await publish(bus, "a")
    await asyncio.sleep(0.05)
    between = datetime.now(UTC)
    await asyncio.sleep(0.05)
    await publish(bus, "b")

    messages = bus.follow(bus.subjects.orders_stream, since=between)

    assert await take(messages, 1) == ["b"]


async def test_how_long_ago_is_of_the_servers_clock(bus: Bus) -> None:
    await publish(bus, "a")
    await asyncio.sleep(1)

    messages = bus.follow(bus.subjects.orders_stream, since=timedelta(seconds=0.5))
    await publish(bus, "b")

    assert await take(messages, 1) == ["b"]


async def test_from_a_sequence_the_one_named_is_the_first(bus: Bus) -> None:
    await publish(bus, "a", "b", "c")

    messages = bus.follow(bus.subjects.orders_stream, after=1)

    assert await take(messages, 2) == ["b", "c"]


async def test_only_the_subjects_asked_for_come(bus: Bus) -> None:
    await publish(bus, "a", "b", "c")

    messages = bus.follow(
        bus.subjects.orders_stream,
        subjects=[bus.subjects.orders_of("pod", "a"), bus.subjects.orders_of("pod", "c")],
    )

    assert await take(messages, 2) == ["a", "c"]


async def test_a_reader_that_stops_at_the_end_ends_there_also_where_there_is_nothing(bus: Bus) -> None:
    nothing = bus.follow(bus.subjects.orders_stream, stop_at_end=True)
    assert [m async for m in nothing] == []

    await publish(bus, *(f"uid-{n}" for n in range(30)))
    everything = bus.follow(bus.subjects.orders_stream, stop_at_end=True)

    assert [m.sequence async for m in everything] == list(range(1, 31))


async def test_caught_up_is_told_only_when_the_last_message_was_worked_on(bus: Bus) -> None:
    await publish(bus, "a", "b")
    caught_up = asyncio.Event()
    messages = bus.follow(bus.subjects.orders_stream, caught_up=caught_up)

    await take(messages, 2)
    assert not caught_up.is_set()
    more = asyncio.create_task(take(messages, 1))
    await asyncio.wait_for(caught_up.wait(), 5)

    more.cancel()


async def test_caught_up_is_told_for_an_empty_stream(bus: Bus) -> None:
    caught_up = asyncio.Event()
    messages = bus.follow(bus.subjects.orders_stream, caught_up=caught_up)
    reading = asyncio.create_task(take(messages, 1))

    await asyncio.wait_for(caught_up.wait(), 5)

    reading.cancel()


async def test_after_a_server_restart_it_goes_on_where_it_was(bus: Bus, nats_server: NatsServer) -> None:
    await publish(bus, "a", "b")
    messages = bus.follow(bus.subjects.orders_stream)
    assert await take(messages, 1) == ["a"]
    reading = asyncio.create_task(take(messages, 2))
    await asyncio.sleep(0.1)

    nats_server.restart()
    await publish(bus, "c")

    assert await reading == ["b", "c"]


async def test_an_answer_that_stays_away_is_asked_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makeway.bus.nats.batches._SILENCE_SECONDS", 0.5)
    await publish(bus, "a")
    messages = bus.follow(bus.subjects.orders_stream)
    assert await take(messages, 1) == ["a"]
    before = rebuilds("unavailable")

    # The subscription's interest is taken away behind the client's back: nothing arrives any more.
    client = bus.connection.client
    for sid, subscription in list(client._subs.items()):
        if getattr(subscription._cb, "__qualname__", "").startswith("Batches"):
            await client._send_unsubscribe(sid)
    await publish(bus, "b")

    assert await take(messages, 1) == ["b"]
    assert rebuilds("unavailable") == before + 1


async def test_more_than_a_batch_is_read_once_in_order(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makeway.bus.nats.batches._BATCH", 7)
    await publish(bus, *(f"uid-{n}" for n in range(30)))
    everything = bus.follow(bus.subjects.orders_stream, stop_at_end=True)

    assert [m.sequence async for m in everything] == list(range(1, 31))


async def test_a_message_lost_on_the_way_is_read_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    await publish(bus, "a", "b", "c")
    put = Batches._on_message
    lost: list[str] = []

    async def lose_one(self: Batches, message: Msg) -> None:
        if message.headers and message.headers.get("Nats-Sequence") == "2" and not lost:
            lost.append("b")
            return
        await put(self, message)

    monkeypatch.setattr(Batches, "_on_message", lose_one)
    before = rebuilds("gap")

    assert await take(bus.follow(bus.subjects.orders_stream), 3) == ["a", "b", "c"]
    assert rebuilds("gap") == before + 1


async def test_a_stream_made_anew_is_read_from_its_beginning(bus: Bus) -> None:
    await publish(bus, "a", "b", "c")
    restarts: list[str] = []
    messages = bus.follow(bus.subjects.orders_stream, restarted=lambda: restarts.append("anew"))
    assert await take(messages, 3) == ["a", "b", "c"]
    reading = asyncio.create_task(take(messages, 1))
    await asyncio.sleep(0.2)
    assert restarts == []

    await bus.jetstream.api(f"STREAM.DELETE.{bus.subjects.orders_stream}")
    await bus.ensure_streams()
    await publish(bus, "d")

    assert await reading == ["d"]
    assert restarts == ["anew"]


async def test_a_stream_that_does_not_exist_yet_is_waited_for(bus: Bus) -> None:
    await bus.jetstream.api(f"STREAM.DELETE.{bus.subjects.orders_stream}")
    messages = bus.follow(bus.subjects.orders_stream)
    reading = asyncio.create_task(take(messages, 1))
    await asyncio.sleep(0.3)

    await bus.ensure_streams()
    await publish(bus, "a")

    assert await reading == ["a"]


async def test_a_service_is_woken_by_what_passes_and_does_not_wait_for_its_next_look(
    bus: Bus, connect_bus: ConnectBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makeway.bus.nats.wakeup.POLL_SECONDS", 60.0)
    monkeypatch.setattr("makeway.bus.nats.wakeup.LISTENING_SECONDS", 60.0)
    planner = await connect_bus(name="planner/one")
    messages = planner.follow(planner.subjects.orders_stream)
    reading = asyncio.create_task(take(messages, 2, seconds=10))
    await asyncio.sleep(0.3)

    await publish(bus, "a")
    await asyncio.sleep(0.1)
    await publish(bus, "b")

    assert await reading == ["a", "b"]


async def test_a_service_that_may_not_be_woken_looks_at_its_pace_and_is_ready(
    bus: Bus, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makeway.bus.nats.wakeup.LISTENING_SECONDS", 60.0)
    nats_server.extra = """
      authorization { users = [
        { user: "old", password: "p", permissions: { publish: [">"], subscribe: ["_INBOX.>"] } } ] }
    """
    nats_server.restart()
    planner = await Bus.connect(f"nats://old:p@127.0.0.1:{nats_server.port}", name="planner/one")
    messages = planner.follow(planner.subjects.orders_stream)
    reading = asyncio.create_task(take(messages, 1))
    await asyncio.sleep(0.3)

    await publish(planner, "a")

    assert await reading == ["a"]
    assert planner.healthy() == ""
    await planner.close()


async def test_whoever_reads_along_is_told_up_to_when_all_has_been_read(bus: Bus) -> None:
    await publish(bus, "a")
    began, until = time.monotonic(), list[float]()
    messages = bus.follow(bus.subjects.orders_stream, at_end=until.append)
    await take(messages, 1)
    assert until == [], "the last one is still being worked on"
    reading = asyncio.create_task(take(messages, 1))
    while len(until) < 2:  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.01)

    assert began < until[0] < until[1] < time.monotonic()
    reading.cancel()


async def created(bus: Bus) -> str:
    info = await bus.jetstream.api(f"STREAM.INFO.{bus.subjects.orders_stream}")
    return str(info["created"])


async def test_whoever_compares_is_told_how_far_the_caller_has_worked(bus: Bus) -> None:
    await publish(bus, "a", "b")
    told: list[StreamPosition] = []
    messages = bus.follow(bus.subjects.orders_stream, reached=told.append)
    await take(messages, 2)
    first = await created(bus)
    assert told == [StreamPosition(created=first, sequence=1)], "the last one is still being worked on"
    reading = asyncio.create_task(take(messages, 1))
    while told[-1].sequence < 2:  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.01)

    await bus.jetstream.api(f"STREAM.DELETE.{bus.subjects.orders_stream}")
    await bus.ensure_streams()
    await publish(bus, "c")
    await reading
    reading = asyncio.create_task(take(messages, 1))
    while told[-1].sequence != 1:  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.01)

    assert told[-1] == StreamPosition(created=await created(bus), sequence=1)
    assert told[-1].created != first
    reading.cancel()


async def test_what_was_stored_before_the_start_counts_as_worked_on(bus: Bus) -> None:
    await publish(bus, "a", "b")
    await asyncio.sleep(0.05)
    told, read = list[StreamPosition](), asyncio.Event()
    now = datetime.now(UTC)
    messages = bus.follow(bus.subjects.orders_stream, since=now, caught_up=read, reached=told.append)
    reading = asyncio.create_task(take(messages, 1))

    async with asyncio.timeout(15):
        await read.wait()

    assert told[0] == StreamPosition(created=await created(bus), sequence=2)
    reading.cancel()


async def test_a_ledger_knows_how_far_the_outcomes_were_read_whatever_they_say(bus: Bus) -> None:
    await bus.publish_outcome(make_outcome(make_order("a")))
    await bus.jetstream.publish("makeway.v1.outcomes.x", b"\xff", headers={}, timeout_seconds=2)
    ledger = Ledger()
    follower = OrderFollower(bus, ledger, PlannerMetrics(CollectorRegistry()), datetime.now(UTC))

    async with background(follower.follow_orders(), follower.follow_outcomes()), asyncio.timeout(15):
        while not follower.synced:  # noqa: ASYNC110 - there is no event for both
            await asyncio.sleep(0.01)

    assert ledger.outcomes_read is not None
    assert ledger.outcomes_read.sequence == 2


async def test_a_planner_is_unhealthy_while_its_orders_cannot_be_read(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makeway.planner.service.orders.follower.UNREAD_SECONDS", 2.0)
    follower = OrderFollower(bus, Ledger(), PlannerMetrics(CollectorRegistry()), datetime.now(UTC))

    async with background(follower.follow_orders(), follower.follow_outcomes()), asyncio.timeout(30):
        while not follower.synced:  # noqa: ASYNC110 - there is no event for both
            await asyncio.sleep(0.01)
        await asyncio.sleep(2.5)
        assert follower.unhealthy() == ""
        await bus.jetstream.api(f"STREAM.DELETE.{bus.subjects.orders_stream}")
        while not follower.unhealthy():  # noqa: ASYNC110 - nor for that
            await asyncio.sleep(0.1)
        assert bus.healthy() == ""
        await bus.ensure_streams()
        while follower.unhealthy():  # noqa: ASYNC110 - nor for that
            await asyncio.sleep(0.1)


async def test_reading_makes_no_consumer(bus: Bus) -> None:
    await publish(bus, "a")
    async for _ in bus.follow(bus.subjects.orders_stream, stop_at_end=True):
        pass

    info = await bus.jetstream.api(f"STREAM.INFO.{bus.subjects.orders_stream}")
    assert info["state"]["consumer_count"] == 0
