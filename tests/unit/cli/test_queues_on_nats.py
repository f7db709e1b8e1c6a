"""`makeway queues` against a real nats-server."""

import pytest

from fixtures_nats import NatsServer
from makeway.bus.client import Bus
from unit.cli.test_connect import makeway


@pytest.mark.nats
async def test_a_silent_planner_is_named(bus: Bus, nats_server: NatsServer) -> None:
    await bus.connection.client.subscribe(bus.subjects.queues)

    _, _, err = await makeway("queues", "--nats-url", nats_server.url, exits=3)

    assert err.endswith("; `makeway check` says which parts run\n")
