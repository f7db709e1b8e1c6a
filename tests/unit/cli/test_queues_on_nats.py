"""`makeway queues` against a real nats-server."""

import pytest

from fixtures_nats import NatsServer
from makeway.bus.client import Bus
from unit.cli.test_connect import makeway


@pytest.mark.nats
async def test_a_silent_planner_is_named_while_it_is_waited_for(bus: Bus, nats_server: NatsServer) -> None:
    await bus.connection.client.subscribe(bus.subjects.queues)

    _, _, err = await makeway("queues", "--nats-url", nats_server.url, exits=3)

    assert err.splitlines()[0] == "makeway: no planner answers yet"
    assert err.endswith("; makeway check says which parts run\n")
