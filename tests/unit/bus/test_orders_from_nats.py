"""The evictors' consumer against a real nats-server."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from builders_bus import make_order
from fixtures_nats import ConnectBus, NatsServer
from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.errors import BusUnavailable, StreamConflict
from makeway.bus.nats.jetstream import JetStreamError
from makeway.bus.streams.orders_consumer import Delivery, OrdersConsumer
from narrowing import there

pytestmark = pytest.mark.nats

CREATE = "CONSUMER.CREATE.MAKEWAY_ORDERS.evictor.makeway.v1.orders.>"


async def given_back(consumer: OrdersConsumer) -> tuple[Delivery, Delivery]:
    """Give the next order back; return that delivery, and the one that follows."""
    first = there(await consumer.next(5))
    await first.nak(delay_seconds=0.1)
    second = there(await consumer.next(5))
    return first, second


async def config_of(bus: Bus) -> dict[str, Any]:
    """How the evictors' consumer is configured."""
    config: dict[str, Any] = (await bus.jetstream.api("CONSUMER.INFO.MAKEWAY_ORDERS.evictor"))["config"]
    return config


async def configure(bus: Bus, config: Mapping[str, Any]) -> None:
    """Make the evictors' consumer, or change it."""
    await bus.jetstream.api(CREATE, {"stream_name": "MAKEWAY_ORDERS", "config": config})


async def test_an_order_is_delivered_with_where_and_when_it_was_stored(bus: Bus) -> None:
    order = make_order("uid-1")
    consumer = await bus.orders_consumer()
    await bus.publish_order(order, 0)

    delivery = there(await consumer.next(5))

    assert codec.unwrap_order(delivery.data) == order
    assert (delivery.subject, delivery.sequence, delivery.deliveries) == ("makeway.v1.orders.pod.uid-1", 1, 1)
    await delivery.ack_sync()
    assert await consumer.next(0.3) is None
    await consumer.close()


async def test_orders_that_were_there_before_the_first_evictor_are_delivered(bus: Bus) -> None:
    await bus.publish_order(make_order("uid-1"), 0)

    there(await (await bus.orders_consumer()).next(5))


async def test_an_order_given_back_comes_again_and_is_counted(bus: Bus) -> None:
    consumer = await bus.orders_consumer()
    await bus.publish_order(make_order("uid-1"), 0)

    _, second = await given_back(consumer)

    assert second.deliveries == 2


async def test_a_terminated_order_never_comes_again(bus: Bus) -> None:
    consumer = await bus.orders_consumer()
    await bus.publish_order(make_order("uid-1"), 0)
    delivery = there(await consumer.next(5))

    await delivery.term("not an order")

    info = await bus.jetstream.api("CONSUMER.INFO.MAKEWAY_ORDERS.evictor")
    assert info["num_ack_pending"] == 0
    assert await consumer.next(0.3) is None


async def test_two_evictors_share_the_orders(bus: Bus, connect_bus: ConnectBus) -> None:
    other = await connect_bus("test/two")
    consumers = [await bus.orders_consumer(), await other.orders_consumer()]
    for n in range(6):
        await bus.publish_order(make_order(f"uid-{n}"), 0)

    taken = [await consumers[n % 2].next(5) for n in range(6)]

    assert sorted(d.sequence for d in taken if d) == [1, 2, 3, 4, 5, 6]


async def test_orders_go_on_after_a_restart_of_the_server(bus: Bus, nats_server: NatsServer) -> None:
    consumer = await bus.orders_consumer()
    assert await consumer.next(0.2) is None

    waiting = asyncio.create_task(consumer.next(20))
    await asyncio.sleep(0.1)
    nats_server.restart()
    await asyncio.sleep(0.1)
    await bus.publish_order(make_order("uid-1"), 0)

    delivery = there(await waiting)
    await delivery.ack_sync()


async def test_a_consumer_that_somebody_deletes_is_made_again(bus: Bus) -> None:
    consumer = await bus.orders_consumer()
    waiting = asyncio.create_task(consumer.next(10))
    await asyncio.sleep(0.1)

    await bus.jetstream.api("CONSUMER.DELETE.MAKEWAY_ORDERS.evictor")
    await bus.publish_order(make_order("uid-1"), 0)

    assert await waiting is not None


async def test_a_lost_consumer_starts_with_the_orders_that_may_be_alive(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = await bus.orders_consumer()
    await bus.publish_order(make_order("uid-old"), 0)
    assert await consumer.next(5) is not None
    monkeypatch.setattr("makeway.bus.streams.orders_consumer.LIVE_LOOK_BACK", timedelta(seconds=0.5))
    await asyncio.sleep(1)

    await bus.jetstream.api("CONSUMER.DELETE.MAKEWAY_ORDERS.evictor")
    await bus.publish_order(make_order("uid-new"), 0)
    delivery = there(await consumer.next(15))

    assert delivery.subject.endswith("uid-new")


async def test_two_evictors_making_the_consumer_at_once_share_it(bus: Bus, connect_bus: ConnectBus) -> None:
    other = await connect_bus()

    first, second = await asyncio.gather(bus.orders_consumer(), other.orders_consumer())
    await bus.publish_order(make_order("uid-1"), 0)
    taken = await asyncio.gather(first.next(1), second.next(1))

    assert sum(delivery is not None for delivery in taken) == 1


async def test_a_consumer_configured_otherwise_is_brought_back(bus: Bus) -> None:
    await bus.orders_consumer()
    ours = await config_of(bus)
    await configure(bus, {**ours, "ack_wait": 1_000_000_000})

    await bus.orders_consumer()

    assert (await config_of(bus))["ack_wait"] == ours["ack_wait"]


async def test_the_consumer_of_an_older_version_goes_on_where_it_is(bus: Bus) -> None:
    await bus.orders_consumer()
    ours = await config_of(bus)
    await bus.jetstream.api("CONSUMER.DELETE.MAKEWAY_ORDERS.evictor")
    del ours["opt_start_time"]
    await configure(bus, {**ours, "deliver_policy": "all"})

    await bus.orders_consumer()

    assert (await config_of(bus))["deliver_policy"] == "all"


async def test_a_consumer_in_its_place_that_cannot_be_changed_is_made_anew(bus: Bus) -> None:
    await bus.publish_order(make_order("uid-1"), 0)
    other = {
        "durable_name": "evictor",
        "name": "evictor",
        "filter_subject": "makeway.v1.orders.>",
        "deliver_policy": "new",
        "ack_policy": "explicit",
    }
    await configure(bus, other)

    consumer = await bus.orders_consumer()

    assert await consumer.next(5) is not None


@pytest.mark.parametrize(
    "takeover",
    [
        {"filter_subject": "makeway.v1.orders.none"},
        {"headers_only": True},
        {"max_ack_pending": 1},
        {"max_deliver": 1},
        {"inactive_threshold": 1_000_000_000_000},
        {"deliver_subject": "elsewhere"},
        {"pause_until": "2100-01-01T00:00:00Z"},
    ],
    ids=lambda takeover: next(iter(takeover)),
)
async def test_a_consumer_that_another_login_changes_is_noticed_and_set_right_and_no_order_is_lost(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, takeover: dict[str, Any]
) -> None:
    monkeypatch.setattr("makeway.bus.streams.orders_consumer._COMPARE_SECONDS", 0.2)
    consumer = await bus.orders_consumer()
    ours = await config_of(bus)
    if "deliver_subject" in takeover:
        await bus.jetstream.api("CONSUMER.DELETE.MAKEWAY_ORDERS.evictor")
        ours.pop("max_waiting")
    changed = {**ours, **takeover}
    if "pause_until" in takeover:
        await bus.jetstream.api("CONSUMER.PAUSE.MAKEWAY_ORDERS.evictor", takeover)
    else:
        await bus.jetstream.api(
            f"CONSUMER.CREATE.MAKEWAY_ORDERS.evictor.{changed['filter_subject']}",
            {"stream_name": "MAKEWAY_ORDERS", "config": changed},
        )
    await bus.publish_order(make_order("uid-1"), 0)
    await asyncio.sleep(0.2)
    seen: list[str] = []
    keeping = asyncio.create_task(consumer.keep_forever())

    async with asyncio.timeout(10):
        while not (seen and not consumer.unhealthy()):
            if next(iter(takeover)) in consumer.unhealthy():
                seen.append(consumer.unhealthy())
            await asyncio.sleep(0.02)

    delivery = there(await consumer.next(10))
    assert len(delivery.data) > 0
    keeping.cancel()


async def test_without_a_stream_there_is_no_consumer_and_the_error_says_so(connect_bus: ConnectBus) -> None:
    bus = await connect_bus()

    with pytest.raises(BusUnavailable, match="stream not found"):
        await bus.orders_consumer()


async def test_what_was_fetched_and_not_taken_is_given_back_on_close(bus: Bus) -> None:
    first, second = await bus.orders_consumer(), await bus.orders_consumer()
    assert await first.next(0.1) is None  # its pull is still with the server
    await bus.publish_order(make_order("uid-1"), 0)
    await asyncio.sleep(0.2)

    await first.close()

    assert await second.next(5) is not None


@pytest.mark.parametrize(
    ("refusal", "passes"),
    [
        # What nats-server says while it deletes the namesake.
        ((500, 10012, "error creating store for consumer"), True),
        ((400, 10149, "consumer does not exist"), True),
        ((500, 10012, "deliver policy can not be updated"), False),
    ],
)
async def test_only_a_refusal_that_passes_is_tried_again(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, refusal: tuple[int, int, str], passes: bool
) -> None:
    refusals = [JetStreamError("CONSUMER.CREATE", *refusal)]
    api = bus.jetstream.api

    async def refuse_once(subject: str, request: Mapping[str, Any] | None = None) -> Any:
        if subject.startswith("CONSUMER.CREATE") and refusals:
            raise refusals.pop()
        return await api(subject, request)

    consumer = await bus.orders_consumer()
    await consumer.close()
    await bus.publish_order(make_order("uid-1"), 0)
    monkeypatch.setattr(bus.jetstream, "api", refuse_once)

    if passes:
        assert await consumer.next(10) is not None
    else:
        with pytest.raises(StreamConflict, match=refusal[-1]):
            await consumer.next(10)


async def test_an_order_keeps_its_trace_in_every_delivery(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    consumer = await bus.orders_consumer()
    monkeypatch.setattr("makeway.bus.tracing.headers", lambda: {"traceparent": traceparent})
    await bus.publish_order(make_order("uid-1"), 0)

    first, second = await given_back(consumer)

    assert (first.traceparent, second.traceparent) == (traceparent, traceparent)
