"""What a publisher can put round a payload ends no connection and stalls no consumer."""

import asyncio
import contextlib

import pytest

from builders_bus import make_order
from fixtures_nats import ConnectBus, NatsServer
from makeway.bus import metrics
from makeway.bus.client import Bus
from makeway.bus.streams.quarantine import QuarantinedMessage
from unit.bus.test_quarantine import parked

pytestmark = pytest.mark.nats


async def raw_publish(server: NatsServer, subject: bytes, payload: bytes, headers: bytes = b"") -> None:
    """Publish past any client library, which would refuse to."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    if headers:
        head = b"HPUB %s %d %d\r\n" % (subject, len(headers), len(headers) + len(payload))
    else:
        head = b"PUB %s %d\r\n" % (subject, len(payload))
    writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n' + head + headers + payload + b"\r\nPING\r\n")
    async with asyncio.timeout(5):
        while b"PONG" not in await reader.readline():
            pass
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


HOSTILE = {
    "a subject that is no UTF-8": (b"makeway.v1.orders.pod.\xff\xfe", b"{}", b""),
    "a subject that a terminal obeys": (b"makeway.v1.orders.pod.\x1b[31m", b"{}", b""),
    "headers that are no UTF-8": (b"makeway.v1.orders.pod.a", b"{}", b"NATS/1.0\r\nA\xff: \xfe\r\n\r\n"),
    "headers that are none": (b"makeway.v1.orders.pod.b", b"{}", b"NATS/1.0\r\n\x00\x01:::\r\n\r\n"),
    "a status of its own": (b"makeway.v1.orders.pod.c", b"", b"NATS/1.0 404 Not Found\r\n\r\n"),
    "a status in a header": (b"makeway.v1.orders.pod.d", b"", b"NATS/1.0\r\nStatus: 409\r\n\r\n"),
    "nothing at all": (b"makeway.v1.orders.pod.e", b"", b""),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_it_is_delivered_and_what_follows_too(bus: Bus, nats_server: NatsServer, name: str) -> None:
    orders = await bus.orders_consumer()
    subject, payload, headers = HOSTILE[name]
    await raw_publish(nats_server, subject, payload, headers)
    await bus.publish_order(make_order("healthy"), 0)
    before = rebuilds()

    hostile, healthy = await orders.next(5), await orders.next(5)
    await orders.close()

    assert hostile is not None
    assert hostile.data == payload
    assert healthy is not None
    assert healthy.subject == "makeway.v1.orders.pod.healthy"
    assert (hostile.deliveries, healthy.deliveries) == (1, 1)
    assert rebuilds() == before, "neither waits for a pull that has broken"
    assert bus.healthy() == ""


def rebuilds() -> float:
    """Return how often consumers were made anew in this process."""
    samples = (one for metric in metrics.REBUILDS.collect() for one in metric.samples)
    return sum(one.value for one in samples if one.name.endswith("_total"))


async def test_a_follower_reads_on_behind_all_of_them(bus: Bus, nats_server: NatsServer) -> None:
    for subject, payload, headers in HOSTILE.values():
        await raw_publish(nats_server, subject, payload, headers)
    await bus.publish_order(make_order("healthy"), 0)

    read = [m async for m in bus.follow("MAKEWAY_ORDERS", stop_at_end=True)]

    assert len(read) == len(HOSTILE) + 1
    assert read[-1].subject == "makeway.v1.orders.pod.healthy"


async def test_a_plan_request_on_a_hostile_reply_subject_does_not_end_the_service(
    connect_bus: ConnectBus, nats_server: NatsServer
) -> None:
    served, asker = await connect_bus("planner/one"), await connect_bus("asker/one")

    async def answer(data: bytes, _sender: str) -> bytes:
        return data

    await served.serve_plan(answer)
    await raw_publish(nats_server, b"makeway.v1.plan \xff\xff", b"{}")
    await raw_publish(nats_server, b"makeway.v1.plan", b"{}")

    assert await asker.request_plan(b"ping", 2) == b"ping"


async def test_a_message_is_parked_once_by_however_many(connect_bus: ConnectBus) -> None:
    buses = [await connect_bus(f"evictor/{n}") for n in range(3)]
    await buses[0].ensure_streams()

    await asyncio.gather(*(bus.quarantine(parked()) for bus in buses))
    await buses[0].quarantine(parked(b"\x00\xff" * 600_000))

    stored = [m async for m in buses[0].follow("MAKEWAY_QUARANTINE", stop_at_end=True)]
    assert [m.subject for m in stored] == ["makeway.v1.quarantine.evictor"] * 2


async def test_a_hostile_subject_can_be_parked(bus: Bus, nats_server: NatsServer) -> None:
    orders = await bus.orders_consumer()
    await raw_publish(nats_server, b"makeway.v1.orders.pod.\xff", b"\xff")
    delivery = await orders.next(5)
    await orders.close()
    assert delivery is not None

    await bus.quarantine(
        QuarantinedMessage(
            component="evictor",
            subject=delivery.subject,
            stream="MAKEWAY_ORDERS",
            sequence=delivery.sequence,
            reason="not-json",
            detail="\x1b[2J\r\nNats-Msg-Id: forged",
            deliveries=1,
            published_at=delivery.published_at,
            data=delivery.data,
        )
    )

    (stored,) = [m async for m in bus.follow("MAKEWAY_QUARANTINE", stop_at_end=True)]
    assert (
        stored.headers["Makeway-Subject"] == "makeway.v1.orders.pod.\\\\xff"
        or "xff" in stored.headers["Makeway-Subject"]
    )
    assert "forged" in stored.headers["Makeway-Detail"]
    assert stored.headers["Nats-Msg-Id"].startswith("quarantine-evictor-")


@pytest.mark.parametrize(
    "header", [b"traceparent: x", b"traceparent: " + b"a" * 8000, b"traceparent: \xff", b"traceparent"]
)
async def test_an_order_with_a_trace_that_is_none_is_delivered_as_any(
    bus: Bus, nats_server: NatsServer, header: bytes
) -> None:
    orders = await bus.orders_consumer()
    block = b"NATS/1.0\r\n" + header + b"\r\n\r\n"
    await raw_publish(nats_server, b"makeway.v1.orders.pod.a", b"{}", block)

    delivery = await orders.next(5)
    await orders.close()

    assert delivery is not None
    assert (delivery.data, delivery.traceparent) == (b"{}", "")
