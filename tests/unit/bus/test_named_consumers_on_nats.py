"""Consumers for programs of others: which there may be, and what becomes of them on a real nats-server."""

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY

from builders_bus import make_order
from fixtures_nats import ConnectBus, NatsServer
from makeway.bus.client import Bus
from makeway.bus.errors import StreamConflict
from makeway.bus.nats.jetstream import JetStreamError
from makeway.bus.streams.configs import EVICTOR_CONSUMER, drift
from makeway.bus.streams.named_consumers import consumer_config, parsed
from makeway.planner.service import consumer_lag


def test_consumers_are_read_with_the_streams_of_each() -> None:
    audit, bill = parsed(" audit = outcomes, orders ; bill=outcomes,outcomes; ")

    assert (audit.name, audit.streams, audit.user) == ("audit", ("outcomes", "orders"), "consumer-audit")
    assert (bill.name, bill.streams) == ("bill", ("outcomes",))
    assert parsed("") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("audit=outcomes;audit=orders", "consumer audit: the name is there twice"),
        ("audit=outcome", "consumer audit: no stream outcome; there are decisions, orders, begun, outcomes"),
        ("audit=control", "consumer audit: no stream control"),
        ("audit", "consumer audit: it names no stream"),
        ("audit=", "consumer audit: it names no stream"),
        ("Audit=outcomes", "consumer 'Audit': a name begins with a small letter"),
        ("a.b=outcomes", "consumer 'a.b'"),
        ("a*=outcomes", "consumer 'a\\*'"),
        (f"{'a' * 41}=outcomes", "has up to 40"),
        ("evictor=orders", "the evictors' own consumer"),
    ],
)
def test_what_cannot_be_a_consumer_is_refused_with_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parsed(text)


async def consumers(bus: Bus, stream: str) -> dict[str, dict[str, Any]]:
    answer = await bus.jetstream.api(f"CONSUMER.LIST.{stream}")
    return {info["name"]: info for info in answer["consumers"] or ()}


async def create(bus: Bus, stream: str, config: dict[str, Any]) -> None:
    where = f"{stream}.{config['name']}.{config['filter_subject']}"
    await bus.jetstream.api(f"CONSUMER.CREATE.{where}", {"stream_name": stream, "config": config})


@pytest.mark.nats
async def test_consumers_are_made_kept_as_they_must_be_and_go_with_their_entry(bus: Bus) -> None:
    orders, outcomes = bus.subjects.orders_stream, bus.subjects.outcomes_stream
    await bus.ensure_streams(consumers=parsed("audit=orders,outcomes;bill=outcomes"))
    for _ in range(2):
        assert (await consumers(bus, orders)).keys() == {"audit"}
        made = await consumers(bus, outcomes)
        assert made.keys() == {"audit", "bill"}
        wanted = consumer_config(bus.subjects, "audit", "outcomes")
        assert drift(wanted, made["audit"]["config"]) == {}
        created = made["audit"]["created"]

        changed = {**made["audit"]["config"], "max_ack_pending": 1}
        await create(bus, outcomes, changed)
        await bus.ensure_streams(consumers=parsed("audit=orders,outcomes;bill=outcomes"))
        assert (await consumers(bus, outcomes))["audit"]["created"] == created, "it keeps where it is"

    await bus.ensure_streams()
    assert (await consumers(bus, outcomes)).keys() == {"audit", "bill"}, "they were not looked at"
    await bus.ensure_streams(consumers=parsed("bill=outcomes"))
    assert (await consumers(bus, orders)).keys() == set()
    assert (await consumers(bus, outcomes)).keys() == {"bill"}


@pytest.mark.nats
async def test_one_with_another_filter_is_made_anew(bus: Bus) -> None:
    outcomes, wanted = bus.subjects.outcomes_stream, parsed("audit=outcomes")
    await bus.ensure_streams(consumers=wanted)
    made = (await consumers(bus, outcomes))["audit"]["config"]
    await bus.jetstream.api(f"CONSUMER.DELETE.{outcomes}.audit")
    other = {**made, "filter_subject": f"{bus.subjects.outcomes[:-1]}none", "ack_policy": "none"}
    await create(bus, outcomes, other)

    await bus.ensure_streams(consumers=wanted)

    found = (await consumers(bus, outcomes))["audit"]["config"]
    assert drift(consumer_config(bus.subjects, "audit", "outcomes"), found) == {}


@pytest.mark.nats
async def test_a_consumer_of_another_maker_is_left_alone_and_its_name_is_refused(bus: Bus) -> None:
    orders = bus.subjects.orders_stream
    for name in ("theirs", EVICTOR_CONSUMER):
        config = {"name": name, "durable_name": name, "ack_policy": "explicit"}
        await create(bus, orders, {**config, "filter_subject": bus.subjects.orders})

    await bus.ensure_streams(consumers=())
    with pytest.raises(
        StreamConflict, match="consumer theirs of stream MAKEWAY_ORDERS was not made by makeway"
    ):
        await bus.ensure_streams(consumers=parsed("theirs=orders"))

    assert (await consumers(bus, orders)).keys() == {"theirs", EVICTOR_CONSUMER}


@pytest.mark.nats
async def test_a_consumer_that_reads_nothing_holds_no_message_back_and_is_told_as_behind(bus: Bus) -> None:
    await bus.ensure_streams(consumers=parsed("audit=orders"))
    for number in range(20):
        await bus.publish_order(make_order("uid"), number)

    info = await bus.jetstream.api(f"STREAM.INFO.{bus.subjects.orders_stream}")
    kept = info["config"]["max_msgs_per_subject"]
    assert info["state"]["messages"] == kept
    labels = {"consumer": "audit", "stream": "orders"}
    # The server counts a consumer's messages a moment after it has stored or dropped them.
    async with asyncio.timeout(20):
        while REGISTRY.get_sample_value("makeway_bus_named_consumer_unread", labels) != kept:
            await consumer_lag.look_once(bus)
    await bus.ensure_streams(consumers=())
    await consumer_lag.look_once(bus)
    assert REGISTRY.get_sample_value("makeway_bus_named_consumer_unread", labels) is None


@pytest.mark.nats
async def test_a_keeper_that_may_not_ask_for_consumers_keeps_the_streams_where_none_is_wanted(
    connect_bus: ConnectBus, nats_server: NatsServer
) -> None:
    nats_server.extra = """
      authorization { users = [
        { user: "old", password: "p", permissions: {
            publish: { allow: [">"], deny: ["$JS.API.CONSUMER.>"] }, subscribe: [">"] } } ] }
    """
    nats_server.restart()
    keeper = await Bus.connect(f"nats://old:p@127.0.0.1:{nats_server.port}", name="streams/one")
    await keeper.keep_streams(consumers=())

    async with asyncio.timeout(20):
        while True:
            try:
                await keeper.jetstream.api(f"STREAM.INFO.{keeper.subjects.orders_stream}")
            except JetStreamError:
                await asyncio.sleep(0.1)
            else:
                break
    await keeper.close()
