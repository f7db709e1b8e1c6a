"""Streams are created, brought back, or refused; against a real nats-server."""

import asyncio
import contextlib
from typing import Any

import pytest

from builders_bus import make_order
from fixtures_nats import ConnectBus, NatsServer
from makeway.bus import metrics
from makeway.bus.client import Bus
from makeway.bus.errors import BusUnavailable, StreamConflict
from makeway.bus.nats.jetstream import JetStreamError
from makeway.bus.nats.publishing import Published
from makeway.bus.streams import configs as streams
from makeway.bus.subjects import Subjects
from narrowing import there


async def config_of(bus: Bus, stream: str) -> dict[str, Any]:
    return dict((await bus.jetstream.api(f"STREAM.INFO.{stream}"))["config"])


@pytest.mark.nats
async def test_every_stream_is_created_as_it_is_written_down(bus: Bus) -> None:
    for wanted in streams.stream_configs(bus.subjects):
        assert streams.drift(wanted, await config_of(bus, wanted["name"])) == {}


@pytest.mark.nats
async def test_many_processes_may_start_at_once(connect_bus: ConnectBus) -> None:
    buses = [await connect_bus(f"test/{n}") for n in range(4)]

    await asyncio.gather(*(bus.ensure_streams() for bus in buses))


@pytest.mark.nats
async def test_what_drifted_is_brought_back_and_what_is_not_ours_stays(bus: Bus) -> None:
    stream = bus.subjects.orders_stream
    config = await config_of(bus, stream)
    await bus.jetstream.api(
        f"STREAM.UPDATE.{stream}",
        {**config, "max_age": 3600 * 10**9, "discard": "new", "description": "the operator's words"},
    )

    await bus.ensure_streams()

    found = await config_of(bus, stream)
    assert (found["max_age"], found["discard"]) == (config["max_age"], "old")
    assert found["description"] == "the operator's words"


@pytest.mark.nats
@pytest.mark.parametrize(
    "change",
    [
        {"republish": {"src": "makeway.v1.outcomes.>", "dest": "makeway.v1.orders.>"}},
        {"sources": [{"name": "MAKEWAY_DECISIONS"}]},
        {
            "subject_transform": {
                "src": "makeway.v1.outcomes.*",
                "dest": "makeway.v1.orders.pod.{{wildcard(1)}}",
            }
        },
        {"max_msgs": 1},
        {"allow_rollup_hdrs": True, "deny_purge": False},
        {"no_ack": True},
        {"subjects": ["makeway.v1.outcomes.none"]},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_any_field_of_a_stream_is_brought_back(connect_bus: ConnectBus, change: dict[str, Any]) -> None:
    bus = await connect_bus()
    outcomes = streams.stream_configs(bus.subjects)[1]
    await bus.jetstream.api(f"STREAM.CREATE.{outcomes['name']}", {**outcomes, **change})
    field = next(iter(change))

    wrong = await streams.wrong_streams(bus.jetstream, bus.subjects)
    assert field in wrong[outcomes["name"]]
    await bus.ensure_streams()

    assert await streams.wrong_streams(bus.jetstream, bus.subjects) == {}
    assert not (await config_of(bus, outcomes["name"])).get("republish")


@pytest.mark.nats
async def test_no_message_of_a_stream_can_be_removed(bus: Bus) -> None:
    for config in streams.stream_configs(bus.subjects):
        stream = config["name"]
        with pytest.raises(JetStreamError, match="purge not permitted"):
            await bus.jetstream.api(f"STREAM.PURGE.{stream}")
        with pytest.raises(JetStreamError, match="message delete not permitted"):
            await bus.jetstream.api(f"STREAM.MSG.DELETE.{stream}", {"seq": 1})


@pytest.mark.nats
async def test_who_only_watches_says_what_is_missing_and_makes_nothing(connect_bus: ConnectBus) -> None:
    bus = await connect_bus()

    await bus.watch_streams()

    assert metrics.STREAMS_WRONG._value.get() == 8
    assert set((await streams.wrong_streams(bus.jetstream, bus.subjects)).values()) == {"it does not exist"}
    await bus.ensure_streams()
    await bus.watch_streams()
    assert metrics.STREAMS_WRONG._value.get() == 0


@pytest.mark.nats
async def test_a_deleted_stream_is_made_by_who_keeps_it(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makeway.bus.client._KEEP_SECONDS", 0.1)
    await bus.keep_streams()

    await bus.jetstream.api(f"STREAM.DELETE.{bus.subjects.orders_stream}")

    async with asyncio.timeout(5):
        while await streams.wrong_streams(bus.jetstream, bus.subjects):  # noqa: ASYNC110 - on the server
            await asyncio.sleep(0.05)


@pytest.mark.nats
async def test_messages_survive_a_reconciliation(bus: Bus) -> None:
    await bus.jetstream.publish("makeway.v1.orders.pod.x", b"{}", headers={}, timeout_seconds=2)
    config = await config_of(bus, bus.subjects.orders_stream)
    await bus.jetstream.api(f"STREAM.UPDATE.{config['name']}", {**config, "max_msgs_per_subject": 3})

    await bus.ensure_streams()

    stored = there(await bus.jetstream.last_message(bus.subjects.orders_stream, "makeway.v1.orders.pod.x"))
    assert stored.data == b"{}"


@pytest.mark.nats
@pytest.mark.parametrize(("field", "value"), [("retention", "workqueue"), ("storage", "memory")])
async def test_a_stream_that_cannot_be_changed_is_refused_with_what_to_do(
    connect_bus: ConnectBus, field: str, value: str
) -> None:
    bus = await connect_bus()
    config = streams.stream_configs(bus.subjects)[0]
    await bus.jetstream.api(f"STREAM.CREATE.{config['name']}", {**config, "max_bytes": 1 << 20, field: value})

    with pytest.raises(StreamConflict, match=f"has {field} '{value}'.*use another subject prefix"):
        await bus.ensure_streams()


@pytest.mark.nats
async def test_anothers_stream_on_our_subjects_is_refused_with_a_reason(connect_bus: ConnectBus) -> None:
    bus = await connect_bus()
    await bus.jetstream.api("STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["makeway.v1.>"]})

    with pytest.raises(StreamConflict, match="stream MAKEWAY_ORDERS: subjects overlap"):
        await bus.ensure_streams()


@pytest.mark.nats
async def test_more_replicas_than_the_server_can_keep_are_refused_with_its_reason(
    connect_bus: ConnectBus,
) -> None:
    bus = await connect_bus()

    with pytest.raises(StreamConflict, match="replicas > 1 not supported"):
        await bus.ensure_streams(replicas=3)


@pytest.mark.nats
@pytest.mark.parametrize(
    ("limits", "because"),
    [
        ("max_payload: 64KB", r"at most 65536 bytes and makeway sends up to 1048576: raise max_payload"),
        (
            'accounts: {A: {jetstream: {max_file: 1GB}, users: [{user: "a", password: "a"}]}}',
            r"streams take 2085 MiB at most, and this account of NATS has 1024 of 1024 MiB left: .*max_file",
        ),
        (
            'accounts: {A: {jetstream: {max_streams: 5}, users: [{user: "a", password: "a"}]}}',
            r"8 streams are missing, and NATS allows this account 5, of which it has 0: .*max_streams",
        ),
        (
            "jetstream: {max_file_store: 1GB}",
            r"NATS has no \d+ MiB of storage left for it: raise max_file_store",
        ),
    ],
)
async def test_a_nats_without_the_room_is_refused_before_the_first_stream_is_made(
    nats_server: NatsServer, limits: str, because: str
) -> None:
    nats_server.kill()
    nats_server.extra = limits
    nats_server.start()
    bus = await Bus.connect(f"nats://a:a@127.0.0.1:{nats_server.port}", name="streams/test")

    with pytest.raises(StreamConflict, match=because):
        await bus.ensure_streams()

    assert "max_file_store" in limits or (await bus.jetstream.api("INFO"))["streams"] == 0
    await bus.close()


def test_streams_that_are_there_need_no_room() -> None:
    full = {"storage": 10, "reserved_storage": 1 << 31, "limits": {"max_storage": 1 << 31}, "streams": 8}
    config = streams.epochs_config(Subjects())

    assert "take 1 MiB at most" in streams.lacks(full, 1 << 20, [config], 1)
    assert not streams.lacks({**full, "reserved_storage": 0}, 1 << 20, [config], 3)
    tiered = {"limits": {"max_storage": -1}, "tiers": {"R3": full}}
    assert not streams.lacks(tiered, 1 << 20, [config], 1)
    assert "take 3 MiB at most" in streams.lacks(tiered, 1 << 20, [config], 3)


def test_every_limit_of_every_stream_is_set() -> None:
    subjects = Subjects()
    for config in streams.stream_configs(subjects):
        assert config["retention"] == "limits"
        assert all(config[limit] > 0 for limit in ("max_bytes", "max_msg_size", "max_msgs_per_subject"))
        # What is in force does not age.
        assert (config["max_age"] == 0) == (config["name"] == subjects.control_stream)


def test_a_zero_that_the_server_leaves_out_is_no_drift() -> None:
    assert streams.drift({"max_age": 0, "deny_delete": False}, {}) == {}
    assert streams.drift({"max_age": 5}, {}) == {"max_age": (None, 5)}


@pytest.mark.nats
async def test_a_server_that_lost_all_is_set_up_again(bus: Bus, nats_server: NatsServer) -> None:
    await bus.keep_streams()
    consumer = await bus.orders_consumer()
    await bus.publish_order(make_order("uid-before"), 0)
    reader = bus.follow(bus.subjects.orders_stream)
    assert (await anext(reader)).subject.endswith("uid-before")
    reading = asyncio.ensure_future(anext(reader))
    delivery = there(await consumer.next(5))
    await delivery.ack_sync()

    nats_server.lose_everything()
    order = make_order("uid-after")
    async with asyncio.timeout(30):
        # Until the streams are there again the server has no answer, as soon as it is asked.
        while True:
            with contextlib.suppress(BusUnavailable):
                answer = await bus.publish_order(order, 0)
                break

    assert isinstance(answer, Published)
    async with asyncio.timeout(15):
        assert (await reading).subject.endswith("uid-after")
        after = await consumer.next(15)
    assert there(after).subject.endswith("uid-after")
