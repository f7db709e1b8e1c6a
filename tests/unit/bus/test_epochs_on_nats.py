import asyncio

import pytest

from fixtures_nats import ConnectBus, NatsServer
from makeway.bus.client import Bus

pytestmark = pytest.mark.nats


async def test_epochs_begin_at_one_and_grow(bus: Bus) -> None:
    await bus.epochs.ensure()

    assert await bus.epochs.current("default-scheduler") == 0
    assert [await bus.epochs.increment("default-scheduler") for _ in range(3)] == [1, 2, 3]
    assert await bus.epochs.current("default-scheduler") == 3
    assert await bus.epochs.current("another") == 0


async def test_no_two_schedulers_get_the_same_epoch(bus: Bus, connect_bus: ConnectBus) -> None:
    await bus.epochs.ensure()
    buses = [bus, *[await connect_bus(f"test/{n}") for n in range(3)]]

    epochs = await asyncio.gather(*(b.epochs.increment("s") for b in buses for _ in range(2)))

    assert sorted(epochs) == list(range(1, 9))


async def test_epochs_survive_a_restart_of_the_server(bus: Bus, nats_server: NatsServer) -> None:
    await bus.epochs.ensure()
    await bus.epochs.increment("s")
    back = asyncio.Event()
    bus.connection.add_listener(back.set)

    nats_server.restart()
    await asyncio.wait_for(back.wait(), 15)

    assert await bus.epochs.increment("s") == 2


@pytest.mark.parametrize("key", ["", "a b", "*", ".a", "a..b"])
async def test_a_key_that_is_none_is_refused(bus: Bus, key: str) -> None:
    with pytest.raises(ValueError, match="cannot be a key"):
        await bus.epochs.current(key)
