"""`makeway audit` as a process beside a real nats-server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from builders_bus import make_decision, make_order, make_outcome
from fixtures_nats import NatsServer
from forked_command import run_forked
from makeway.bus.client import Bus

pytestmark = pytest.mark.nats

COMMAND = [sys.executable, "-c", "from makeway.cli.main import main; main()", "audit"]


@asynccontextmanager
async def audit(server: NatsServer, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
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


async def lines_of(server: NatsServer, *options: str) -> list[dict[str, object]]:
    asked = ["audit", "--nats-url", server.url, "-o", "json", "--no-follow", *options]
    code, out, err = await run_forked(asked, os.environ)
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


async def publish_one_preemption(bus: Bus, uid: str = "uid-preemptor") -> str:
    order = make_order(uid)
    await bus.publish_decision(make_decision(preemptor=order.preemptor))
    await bus.publish_order(order, 0)
    await bus.publish_outcome(make_outcome(order))
    return order.order_id


async def test_the_past_is_told_in_the_order_in_which_it_happened(bus: Bus, nats_server: NatsServer) -> None:
    for n in range(3):
        await publish_one_preemption(bus, f"uid-{n}")

    lines = await lines_of(nats_server)

    assert [line["kind"] for line in lines] == ["decision", "order", "outcome"] * 3


async def test_only_what_is_asked_for_is_told(bus: Bus, nats_server: NatsServer) -> None:
    first = await publish_one_preemption(bus, "uid-1")
    await publish_one_preemption(bus, "uid-2")

    assert len(await lines_of(nats_server, "--order", first)) == 2
    assert await lines_of(nats_server, "--namespace", "nobody") == []
    assert len(await lines_of(nats_server, "--since", "1h")) == 6
    await asyncio.sleep(1.1)
    assert await lines_of(nats_server, "--since", "1s") == []


async def test_rubbish_in_a_stream_is_told_and_does_not_end_it(bus: Bus, nats_server: NatsServer) -> None:
    await bus.jetstream.publish("makeway.v1.orders.pod.x", b"\x1b[31m", headers={}, timeout_seconds=2)
    await publish_one_preemption(bus)

    lines = await lines_of(nats_server)

    assert len(lines) == 4
    (malformed,) = [line["malformed"] for line in lines if "malformed" in line]
    assert msgspec.convert(malformed, dict)["reason"] == "not-json"


async def test_what_comes_is_told_as_it_comes_across_a_restart_of_the_server(
    bus: Bus, nats_server: NatsServer
) -> None:
    await publish_one_preemption(bus, "uid-1")
    async with audit(nats_server, "-o", "json", "--since", "1h") as process:
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
    async with audit(nats_server, "--subject-prefix", "other") as process:
        _, err = await asyncio.wait_for(process.communicate(), 30)

    assert process.returncode == 1
    assert err.decode().startswith("makeway: there is no stream OTHER_DECISIONS on this NATS")
    assert len(err.splitlines()) == 1
