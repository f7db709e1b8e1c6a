"""`makeway history --unreadable` against a real nats-server."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest

from fixtures_nats import NatsServer
from makeway.bus.client import Bus
from makeway.cli.check.bus import parked_result
from unit.bus.test_quarantine import parked
from unit.cli.test_connect import makeway

SUBJECT = "makeway.v1.orders.pod.x"


async def call(server: NatsServer, *arguments: str) -> tuple[int, str, str]:
    return await makeway("history", "--unreadable", *arguments, "--nats-url", server.url)


async def put_aside(bus: Bus, data: bytes, **changes: object) -> None:
    """Store a message and put it aside."""
    ack = await bus.jetstream.publish(SUBJECT, data, headers={}, timeout_seconds=2)
    await bus.quarantine(
        parked(data, subject=SUBJECT, sequence=ack.sequence, published_at=datetime.now(UTC), **changes)
    )


@pytest.mark.nats
async def test_without_a_message_that_was_put_aside_it_says_so(bus: Bus, nats_server: NatsServer) -> None:
    assert await call(nats_server) == (0, "", "no message was put aside\n")


@pytest.mark.nats
async def test_what_was_put_aside_is_listed_escaped_and_whole(bus: Bus, nats_server: NatsServer) -> None:
    hostile = b"\x1b[2J\xff\xe2\x80\xae" + b"x" * 10_000
    await put_aside(bus, hostile, reason="not-json", detail="bad\r\nthing \u202e")
    await put_aside(bus, b"b", reason="invalid", component="planner")

    _, table, _ = await call(nats_server, "-o", "wide")
    _, data, _ = await call(nats_server, "-o", "json")
    _, recent, _ = await call(nats_server, "-o", "json", "--since", "1m")

    head, first, second = table.splitlines()
    assert head.split()[:4] == ["AGE", "TIME", "BY", "REASON"]
    assert "not-json" in first
    assert SUBJECT in first
    assert "planner" in second
    assert "\u202e" not in table
    found = json.loads(data)
    assert [one["reason"] for one in found] == ["not-json", "invalid"]
    assert base64.b64decode(found[0]["payload"]) == hostile
    assert len(json.loads(recent)) == 2


def test_a_check_warns_for_a_day_of_what_was_put_aside() -> None:
    now = datetime(2026, 11, 1, tzinfo=UTC)
    state = {"messages": 2, "last_ts": (now - timedelta(hours=3)).isoformat()}

    (result,) = parked_result(state, now)

    assert (result.state, result.detail) == ("warning", "2 messages put aside, the last 3h ago")
    assert list(parked_result(state, now + timedelta(days=1))) == []
    assert list(parked_result({"messages": 0, "last_ts": "0001-01-01T00:00:00Z"}, now)) == []
