"""The streams of the global account in the account of the parts, as the chart moves them on an upgrade."""

from __future__ import annotations

import json

import pytest

from builders_bus import make_order
from fixtures_nats import NatsServer
from makeway.bus.client import Bus, Last
from makeway.bus.permissions import server_accounts
from makeway.bus.streams import wrong_streams
from makeway.bus.subjects import Subjects

pytestmark = pytest.mark.nats


async def test_streams_that_were_moved_to_the_account_hold_what_they_held(nats_server: NatsServer) -> None:
    before = await Bus.connect(nats_server.url, name="streams/test")
    await before.ensure_streams()
    order = make_order("uid")
    await before.publish_order(order, 0)
    await before.close()

    nats_server.kill()
    store = nats_server.store / "jetstream"
    (store / "$G").rename(store / "MAKEWAY")
    users = {"streams": {"user": "streams", "password": "p"}}
    nats_server.extra = f"accounts: {json.dumps(server_accounts(Subjects(), users))}"
    nats_server.start()

    after = await Bus.connect(f"nats://streams:p@127.0.0.1:{nats_server.port}", name="streams/test")
    last = await after.last_order("uid")
    assert isinstance(last, Last)
    assert last.message == order
    assert await wrong_streams(after.jetstream, after.subjects) == {}
    await after.close()
