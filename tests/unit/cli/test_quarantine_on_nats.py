"""`makeway quarantine` against a real nats-server."""

from __future__ import annotations

import base64
import json
import os
from datetime import UTC, datetime

import pytest

from builders_bus import make_order
from fixtures_nats import NatsServer
from forked_command import run_forked
from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.follow import Start
from unit.bus.test_quarantine import parked

pytestmark = pytest.mark.nats

SUBJECT = "makeway.v1.orders.pod.x"


async def call(server: NatsServer, *arguments: str) -> tuple[int, str, str]:
    code, out, err = await run_forked(["quarantine", *arguments, "--nats-url", server.url], os.environ)
    assert "Traceback" not in err
    return code, out, err


async def quarantine(bus: Bus, data: bytes = b'{"a":1}', **changes: object) -> int:
    """Store a message and put it aside; its sequence in its stream."""
    ack = await bus.jetstream.publish(SUBJECT, data, headers={}, timeout_seconds=2)
    await bus.quarantine(
        parked(data, subject=SUBJECT, sequence=ack.sequence, published_at=datetime.now(UTC), **changes)
    )
    return ack.sequence


async def test_an_empty_quarantine_says_so(bus: Bus, nats_server: NatsServer) -> None:
    assert await call(nats_server, "list") == (0, "", "Nothing is in quarantine.\n")


async def test_what_was_put_aside_is_listed_and_the_filters_choose(bus: Bus, nats_server: NatsServer) -> None:
    await quarantine(bus, b"a", reason="not-json")
    await quarantine(bus, b"b", reason="invalid", component="planner")

    _, table, _ = await call(nats_server, "list", "-o", "wide")
    _, lines, _ = await call(nats_server, "list", "-o", "json", "--component", "planner")
    _, none, _ = await call(nats_server, "list", "-o", "json", "--reason", "too-deep")

    assert "not-json" in table
    assert SUBJECT in table
    assert [json.loads(line)["reason"] for line in lines.splitlines()] == ["invalid"]
    assert none == ""


async def test_a_payload_is_shown_escaped_and_cut(bus: Bus, nats_server: NatsServer) -> None:
    hostile = b"\x1b[2J\xff\xe2\x80\xae" + b"x" * 10_000
    await quarantine(bus, hostile, detail="bad\r\nthing")

    _, short, _ = await call(nats_server, "show", "1")
    _, full, _ = await call(nats_server, "show", "1", "--full")
    _, as_json, _ = await call(nats_server, "show", "1", "-o", "json")

    assert "\x1b" not in short
    assert "\u202e" not in short
    assert "\\x1b[2J\\xff\\u202e" in short
    assert "more bytes; --full shows them" in short
    assert "x" * 10_000 in full
    assert base64.b64decode(json.loads(as_json)["payload"]) == hostile


async def test_a_replay_comes_on_its_own_subject_once_and_is_noted(bus: Bus, nats_server: NatsServer) -> None:
    data = codec.wrap(make_order("x"), "makeway/scheduler/a")
    sequence = await quarantine(bus, data)

    code, told, _ = await call(nats_server, "replay", "1")
    again, _, why = await call(nats_server, "replay", "1")
    _, listed, _ = await call(nats_server, "list", "-o", "json")

    assert (code, again) == (0, 1)
    assert f"as {sequence + 1} of MAKEWAY_ORDERS" in told
    assert "was replayed already" in why
    (line,) = listed.splitlines()
    assert json.loads(line)["replayedAs"] == sequence + 1
    stored = [m async for m in bus.follow("MAKEWAY_ORDERS", start=Start.beginning(), stop_at_end=True)]
    assert [m.data for m in stored] == [data, data]


async def test_an_interrupted_replay_is_only_marked(bus: Bus, nats_server: NatsServer) -> None:
    sequence = await quarantine(bus)
    copy = await bus.jetstream.publish(
        SUBJECT, b'{"a":1}', headers={"Makeway-Replay-Of": "1"}, timeout_seconds=2
    )

    code, told, _ = await call(nats_server, "replay", "1")

    assert code == 0
    assert copy.sequence == sequence + 1
    assert f"as {copy.sequence} of" in told


async def test_a_replay_supersedes_nothing_newer(bus: Bus, nats_server: NatsServer) -> None:
    await quarantine(bus)
    await bus.jetstream.publish(SUBJECT, b"newer", headers={}, timeout_seconds=2)

    code, _, why = await call(nats_server, "replay", "1")

    assert code == 1
    assert "something newer stands on" in why


async def test_what_is_kept_in_part_is_not_replayed(bus: Bus, nats_server: NatsServer) -> None:
    await quarantine(bus, b"x" * 1_000_000)

    code, _, why = await call(nats_server, "replay", "1")

    assert code == 1
    assert "is kept in part only" in why


async def test_messages_are_dropped_by_number_or_by_filter_and_the_originals_stay(
    bus: Bus, nats_server: NatsServer
) -> None:
    for number in range(4):
        await quarantine(bus, b"%d" % number, reason="invalid" if number else "not-json")

    assert (await call(nats_server, "drop", "2"))[1] == "dropped 1 message\n"
    assert (await call(nats_server, "drop", "--all", "--reason", "invalid"))[1] == "dropped 2 messages\n"
    _, listed, _ = await call(nats_server, "list", "-o", "json")

    assert [json.loads(line)["reason"] for line in listed.splitlines()] == ["not-json"]
    info = await bus.jetstream.api("STREAM.INFO.MAKEWAY_ORDERS")
    assert info["state"]["messages"] == 4


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["show", "7"], 1, "there is no message 7 in quarantine"),
        (["drop"], 2, "give numbers, or --all"),
        (["drop", "1", "--all"], 2, "give numbers, or --all"),
        (["drop", "1", "--reason", "invalid"], 2, "go with --all"),
        (["list", "--subject-prefix", "other"], 1, "there is no stream OTHER_QUARANTINE on this NATS"),
    ],
)
async def test_what_cannot_be_done_is_said_in_one_sentence(
    bus: Bus, nats_server: NatsServer, arguments: list[str], code: int, why: str
) -> None:
    got, _, err = await call(nats_server, *arguments)

    assert got == code
    assert why in " ".join(err.replace("│", "").split())
