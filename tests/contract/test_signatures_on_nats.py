"""A planner that requires signatures, on a real nats-server: what does not hold counts for nothing."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from background import background
from builders_bus import make_outcome
from builders_keys import signatures
from fixtures_nats import ConnectBus
from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger
from makeway.planner.service.orders.follower import OrderFollower
from unit.evictor.building import make_order

pytestmark = pytest.mark.nats


async def forge_outcomes(bus: Bus, count: int, name: str) -> None:
    """Store outcomes that nobody signed, each on the subject of its order."""
    for number in range(count):
        outcome = make_outcome(make_order("a", order_id=f"ord-{name}-{number}"))
        subject = bus.subjects.outcome(outcome.order_id)
        data = codec.wrap(outcome, "makeway/evictor/forger")
        await bus.jetstream.publish(subject, data, headers={}, timeout_seconds=2)


async def quarantined(bus: Bus) -> Counter[str]:
    stream = bus.subjects.quarantine_stream
    read = [m async for m in bus.follow(stream, stop_at_end=True)]
    return Counter(m.headers["Makeway-Reason"] for m in read)


@asynccontextmanager
async def following(bus: Bus, ledger: Ledger) -> AsyncIterator[None]:
    """A planner's followers, once they have read what was there."""
    follower = OrderFollower(bus, ledger, PlannerMetrics(CollectorRegistry()), datetime.now(UTC))
    async with background(
        follower.follow_orders(), follower.follow_outcomes(), follower.quarantine_forever()
    ):
        async with asyncio.timeout(10):
            while not follower.synced:  # noqa: ASYNC110 - there is no event for both
                await asyncio.sleep(0.01)
        yield


async def test_a_planner_that_starts_after_a_key_was_retired_floods_neither_the_quarantine_nor_the_log(
    bus: Bus, connect_bus: ConnectBus
) -> None:
    planner = await connect_bus("planner/1")
    planner.signatures = signatures()
    await forge_outcomes(bus, 100, "before")

    with capture_logs() as logs:
        async with following(planner, Ledger()):
            await asyncio.sleep(0.5)

    assert await quarantined(bus) == {}
    assert [line["event"] for line in logs].count("old_messages_unverified") == 1
    assert "message_malformed" not in [line["event"] for line in logs]


async def test_an_outcome_that_is_forged_while_a_planner_runs_is_put_aside_and_ends_no_order(
    bus: Bus, connect_bus: ConnectBus
) -> None:
    planner, ledger = await connect_bus("planner/1"), Ledger()
    planner.signatures = signatures()
    now = datetime.now(UTC)
    order = make_order("a", order_id="ord-live-0", created_at=now)

    async with following(planner, ledger):
        ledger.ordered(order)
        await forge_outcomes(bus, 1, "live")
        async with asyncio.timeout(20):
            while not (found := await quarantined(bus)):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.05)

        assert found == {"unsigned": 1}
        assert len(ledger) == 1
        await planner.publish_outcome(make_outcome(order))
        async with asyncio.timeout(20):
            while len(ledger):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.05)


async def test_others_have_their_turn_while_many_messages_are_followed(bus: Bus) -> None:
    await forge_outcomes(bus, 256, "many")
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(others())
    stream = bus.subjects.outcomes_stream
    seen = [turns async for _ in bus.follow(stream, stop_at_end=True)]
    other.cancel()

    assert max(Counter(seen).values()) <= 64
