"""`makeway history --follow` as a process beside a real nats-server."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from builders_bus import make_decision, make_order, make_outcome
from fixtures_nats import NatsServer
from makeway.bus.client import Bus

pytestmark = pytest.mark.nats

COMMAND = [sys.executable, "-c", "from makeway.cli.main import main; main()", "history", "--follow"]


@asynccontextmanager
async def followed(server: NatsServer, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "--nats-url",
        server.url,
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def lines_of(server: NatsServer, count: int, *options: str) -> list[dict[str, object]]:
    """Return the first lines that are printed of what is past."""
    async with followed(server, "-o", "json", "--since", "1h", *options) as process, asyncio.timeout(30):
        assert process.stdout
        return [json.loads(await process.stdout.readline()) for _ in range(count)]


async def publish_one_preemption(bus: Bus, uid: str = "uid-preemptor") -> str:
    order = msgspec.structs.replace(make_order(uid), decision_id=f"dec-{uid}")
    await bus.publish_decision(make_decision(decision_id=order.decision_id, preemptor=order.preemptor))
    await bus.publish_order(order, 0)
    await bus.publish_outcome(make_outcome(order))
    return order.order_id


async def test_the_past_is_told_as_it_was_stored(bus: Bus, nats_server: NatsServer) -> None:
    for n in range(3):
        await publish_one_preemption(bus, f"uid-{n}")

    lines = await lines_of(nats_server, 9)

    kinds = [line["kind"] for line in lines]
    assert kinds == ["decision", "order", "outcome"] * 3


async def test_only_what_concerns_a_namespace_is_told(bus: Bus, nats_server: NatsServer) -> None:
    await publish_one_preemption(bus, "uid-1")
    order = msgspec.structs.replace(make_order("uid-2"), decision_id="dec-2")
    assert order.preemptor is not None
    elsewhere = msgspec.structs.replace(order.preemptor, namespace="elsewhere")
    await bus.publish_decision(make_decision(decision_id=order.decision_id, preemptor=elsewhere))
    await bus.publish_order(msgspec.structs.replace(order, preemptor=elsewhere), 0)
    await bus.publish_outcome(make_outcome(order))

    lines = await lines_of(nats_server, 3, "--namespace", "elsewhere")

    assert [line["kind"] for line in lines] == ["decision", "order", "outcome"]
    assert {line["event"]["data"].get("orderId") for line in lines[1:]} == {order.order_id}  # type: ignore[index]


async def test_as_text_a_preemption_is_a_line_in_flight_and_one_once_it_has_ended(
    bus: Bus, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    await publish_one_preemption(bus)
    async with followed(nats_server, "--since", "1h") as process, asyncio.timeout(30):
        assert process.stdout
        live, ended = [(await process.stdout.readline()).decode() for _ in range(2)]

    assert live[2] == live[5] == ended[2] == ended[5] == ":"
    assert "  in flight " in live
    assert live.split()[-1] == "left"
    assert "  succeeded" in ended
    assert max(len(live), len(ended)) <= 80


async def test_rubbish_in_a_stream_is_told_and_does_not_end_it(bus: Bus, nats_server: NatsServer) -> None:
    await bus.jetstream.publish("makeway.v1.orders.pod.x", b"\x1b[31m", headers={}, timeout_seconds=2)
    await publish_one_preemption(bus)

    lines = await lines_of(nats_server, 4)

    assert len(lines) == 4
    (malformed,) = [line["malformed"] for line in lines if "malformed" in line]
    assert msgspec.convert(malformed, dict)["reason"] == "not-json"


async def test_what_comes_is_told_at_once_across_a_restart(bus: Bus, nats_server: NatsServer) -> None:
    await publish_one_preemption(bus, "uid-1")
    async with followed(nats_server, "-o", "json", "--since", "1h") as process:
        assert process.stdout
        async with asyncio.timeout(30):
            first = [json.loads(await process.stdout.readline()) for _ in range(3)]
            nats_server.restart()
            second = await publish_one_preemption(bus, "uid-2")
            then = [json.loads(await process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 10) == 130

    assert [line["kind"] for line in first] == ["decision", "order", "outcome"]
    assert sorted(str(line["kind"]) for line in then) == ["decision", "order", "outcome"]
    assert second in {line["event"]["data"].get("orderId") for line in then}


async def test_without_streams_it_says_what_may_be_wrong(nats_server: NatsServer) -> None:
    async with followed(nats_server, "--subject-prefix", "other") as process:
        _, err = await asyncio.wait_for(process.communicate(), 30)

    assert process.returncode == 1
    assert err.decode().startswith("makeway: there is no stream OTHER_DECISIONS on this NATS")
    assert len(err.splitlines()) == 1
