"""Compare-and-set publishing against a real nats-server."""

import asyncio

import pytest

from builders_bus import make_decision, make_group_order, make_order, make_outcome
from fixtures_nats import ConnectBus, NatsServer
from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.errors import BusUnavailable
from makeway.bus.messages import Void
from makeway.bus.nats.connection import ConnectionTimings
from makeway.bus.nats.jetstream import MSG_ID, JetStreamError
from makeway.bus.nats.publishing import AlreadyExists, MessageTooLarge, Published
from makeway.bus.orders import OrderWriter, voided
from makeway.bus.records import Last
from narrowing import as_a, there

pytestmark = pytest.mark.nats


async def test_of_two_writers_of_one_preemptor_one_gets_in(bus: Bus, connect_bus: ConnectBus) -> None:
    other = await connect_bus("test/two")
    orders = [make_order("uid-1"), make_order("uid-1")]

    answers = await asyncio.gather(bus.publish_order(orders[0], 0), other.publish_order(orders[1], 0))

    assert sorted(type(a).__name__ for a in answers) == ["AlreadyExists", "Published"]
    winner = orders[0] if isinstance(answers[0], Published) else orders[1]
    lost = next(a for a in answers if isinstance(a, AlreadyExists))
    assert codec.unwrap_order(there(lost.existing).data) == winner


async def test_the_next_order_of_a_preemptor_names_the_one_before_it(bus: Bus) -> None:
    first = as_a(Published, await bus.publish_order(make_order("uid-1"), 0))

    blind = await bus.publish_order(make_order("uid-1"), 0)
    second = await bus.publish_order(make_order("uid-1"), first.sequence)

    assert isinstance(blind, AlreadyExists)
    assert isinstance(second, Published)


async def test_orders_of_different_preemptors_do_not_stand_in_each_others_way(bus: Bus) -> None:
    answers = [await bus.publish_order(make_order(f"uid-{n}"), 0) for n in range(3)]

    assert [type(a) for a in answers] == [Published] * 3


async def test_a_groups_orders_have_a_subject_of_their_own_and_one_is_live(bus: Bus) -> None:
    order = make_group_order("uid-1")
    await bus.publish_order(make_order("uid-1"), 0)

    first = await bus.publish_order(order, 0)
    second = await bus.publish_order(make_group_order("uid-1"), 0)

    assert isinstance(first, Published)
    assert isinstance(second, AlreadyExists)
    last = as_a(Last, await bus.last_like(order))
    assert (last.message, last.sequence) == (order, first.sequence)


async def test_an_order_and_a_void_of_it_are_never_both_stored(bus: Bus, connect_bus: ConnectBus) -> None:
    order, other = make_order("uid-1"), OrderWriter(await connect_bus("test/two"))
    refused = voided(order, Void(reason="late", message="not in time"))
    before = as_a(Published, await bus.publish_order(make_order("uid-1"), 0))

    answers = await asyncio.gather(
        OrderWriter(bus).store(order, before.sequence), other.store(refused, before.sequence)
    )

    assert answers[0] == answers[1]
    assert answers[0] == await other.first(bus.subjects.order(order), before.sequence)
    info = await bus.jetstream.api("STREAM.INFO.MAKEWAY_ORDERS")
    assert info["state"]["messages"] == 2


async def test_an_order_has_one_outcome_and_the_second_writer_reads_the_first(bus: Bus) -> None:
    order = make_order()
    first = make_outcome(order)
    second = make_outcome(order, result="failed", evictor="evictor-2")

    assert isinstance(await bus.publish_outcome(first), Published)
    answer = await bus.publish_outcome(second)

    last = there(await bus.outcome(order.order_id))
    assert last.message == first
    assert codec.unwrap_outcome(there(as_a(AlreadyExists, answer).existing).data) == first


async def test_the_same_publish_repeated_is_stored_once_and_says_where(bus: Bus) -> None:
    order = make_order("uid-1")

    first = await bus.publish_order(order, 0)
    again = await bus.publish_order(order, 0)

    assert first == again
    info = await bus.jetstream.api("STREAM.INFO.MAKEWAY_ORDERS")
    assert info["state"]["messages"] == 1


async def test_a_part_of_a_recording_is_written_behind_the_part_before_alone(bus: Bus) -> None:
    first = await bus.publish_recording("rec-1", 0, b"first", 0)
    await bus.publish_recording("rec-2", 0, b"another", 0)
    second = await bus.publish_recording("rec-1", 1, b"second", first)

    assert second > first
    with pytest.raises(BusUnavailable, match="part 2 of recording rec-1 is not the last one stored"):
        await bus.publish_recording("rec-1", 3, b"fourth", second + 1)


async def test_a_publish_with_a_lost_answer_is_found_later(bus: Bus, nats_server: NatsServer) -> None:
    order = make_order("uid-1")
    # Stored under the same id, but so long ago that the stream's memory of ids is over.
    await bus.jetstream.api(
        "STREAM.UPDATE.MAKEWAY_ORDERS",
        {
            **(await bus.jetstream.api("STREAM.INFO.MAKEWAY_ORDERS"))["config"],
            "duplicate_window": 100_000_000,
        },
    )
    stored = await bus.jetstream.publish(
        bus.subjects.orders_of("pod", "uid-1"),
        codec.wrap(order, bus.source),
        headers={MSG_ID: order.order_id},
        timeout_seconds=2,
    )
    await asyncio.sleep(0.5)

    assert await bus.publish_order(order, 0) == Published(stored.sequence)


async def test_a_publish_during_a_server_restart_succeeds_once(bus: Bus, nats_server: NatsServer) -> None:
    order = make_order("uid-1")
    nats_server.kill()
    publishing = asyncio.create_task(bus.publish_order(order, 0))
    await asyncio.sleep(0.3)
    nats_server.start()

    assert isinstance(await publishing, Published)
    info = await bus.jetstream.api("STREAM.INFO.MAKEWAY_ORDERS")
    assert info["state"]["messages"] == 1


async def test_nothing_published_while_the_server_is_away_arrives_later(
    bus: Bus, nats_server: NatsServer
) -> None:
    nats_server.kill()
    with pytest.raises(BusUnavailable):
        await bus.publish_order(make_order("uid-1"), 0)
    back = asyncio.Event()
    bus.connection.add_listener(back.set)
    nats_server.start()
    await asyncio.wait_for(back.wait(), 10)
    await asyncio.sleep(0.5)

    assert await bus.last_order("uid-1") is None


async def test_a_message_that_the_stream_cannot_take_is_refused_for_good(bus: Bus) -> None:
    config = (await bus.jetstream.api("STREAM.INFO.MAKEWAY_DECISIONS"))["config"]
    await bus.jetstream.api("STREAM.UPDATE.MAKEWAY_DECISIONS", {**config, "max_msg_size": 100})

    with pytest.raises(MessageTooLarge):
        await bus.publish_decision(make_decision())


async def test_a_message_that_the_server_cannot_take_is_refused_for_good(bus: Bus) -> None:
    with pytest.raises(MessageTooLarge, match="more than the server takes"):
        await bus.publish_decision(make_decision(planner="x" * 2_000_000))


async def test_the_largest_message_is_stored_and_a_byte_more_ends_no_connection(bus: Bus) -> None:
    """The server counts the headers too."""
    headers = {"Nats-Msg-Id": "id", "traceparent": "00-é"}
    room = bus.jetstream.max_payload - len(
        "NATS/1.0\r\nNats-Msg-Id: id\r\ntraceparent: 00-é\r\n\r\n".encode()
    )
    subject = "makeway.v1.decisions.pod.a"

    with pytest.raises(JetStreamError, match="more than the server takes") as refused:
        await bus.jetstream.publish(subject, b"x" * (room + 1), headers=headers, timeout_seconds=5)
    assert refused.value.too_large

    assert (
        await bus.jetstream.publish(subject, b"x" * room, headers=headers, timeout_seconds=5)
    ).sequence == 1
    assert bus.healthy() == ""


async def test_who_asks_without_a_connection_leaves_nothing_behind(
    connect_bus: ConnectBus, nats_server: NatsServer
) -> None:
    bus = await connect_bus(timings=ConnectionTimings(probe_interval=600))  # the probe asks, too
    await bus.ensure_streams()
    await bus.last_order("uid-1")
    before = len(bus.connection.client._resp_map)
    nats_server.kill()

    for _ in range(3):
        with pytest.raises(BusUnavailable):
            await bus.last_order("uid-1")

    assert len(bus.connection.client._resp_map) == before


async def test_reading_gives_nothing_where_nothing_was_written(bus: Bus) -> None:
    assert await bus.last_order("uid-nobody") is None
    assert await bus.outcome("ord-none") is None
