"""What the loop does where a message about one queue cannot be read."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry

from makeway.bus.client import Last
from makeway.bus.errors import Malformed
from makeway.bus.messages import DecisionRecord, EvictionOrder, Fence, Outcome, Victim
from makeway.bus.publishing import AlreadyExists, Published
from makeway.core.facts import PodFacts
from makeway.planner.decisions import Decisions
from makeway.planner.ledger import Ledger
from makeway.planner.metrics import Metrics
from makeway.planner.quota_loop import QuotaLoop, QuotaSettings
from makeway.planner.snapshot import Snapshot
from unit.core.queue_building import queue, tree
from unit.planner.building import make_pod, make_snapshot

FENCE = Fence(kind="kv", name="makeway-planner", epoch=1)
AT_ONCE = timedelta(milliseconds=1)
SECONDS = 5
"""Long enough for many rounds."""


class FakeBus:
    """Keeps the orders; has a last order of one queue, or outcomes, that cannot be read."""

    def __init__(self, *, last: str = "", outcomes: bool = False) -> None:
        self.orders: list[EvictionOrder] = []
        self.published = asyncio.Event()
        self._last = last
        self._outcomes = outcomes

    async def last_quota_order(self, queue: str) -> Last[EvictionOrder] | None:
        if queue == self._last:
            raise Malformed("not-json", "an order")
        return None

    async def outcome(self, order_id: str) -> Last[Outcome] | None:
        if self._outcomes:
            raise Malformed("not-json", "an outcome")
        return None

    async def publish_order(
        self, order: EvictionOrder, expected_last_sequence: int
    ) -> Published | AlreadyExists:
        self.orders.append(order)
        self.published.set()
        return Published(sequence=1)

    async def publish_decision(self, record: DecisionRecord) -> None:
        pass


def lowered() -> Snapshot:
    """Two queues that use more than their maximum, which fires at once."""
    queues = [replace(queue(name, maximum={"cpu": 50}), delay=AT_ONCE) for name in ("a", "b")]
    paths = ("root.a", "root.b")
    pods = [
        make_pod(path, "n1", labels={"queue": path}, facts=PodFacts(queue=path, scheduled_micros=0))
        for path in paths
    ]
    snapshot = make_snapshot(["n1"], pods)
    snapshot.adopt(tree(*queues), "queues-1")
    return snapshot


async def led(bus: FakeBus, ledger: Ledger, path: str, *ready: bool) -> list[str]:
    """Lead until there is an order for a queue, and give the queues that there are orders for by then.

    `ready`: what is answered first to the questions whether there is something to plan on; then True.
    """
    answers = iter(ready)
    metrics = Metrics(CollectorRegistry())
    loop = QuotaLoop(
        QuotaSettings(
            cluster_uid="cluster",
            identity="planner",
            mode=lambda: "enforce",
            ready=lambda: next(answers, True),
        ),
        snapshot=lowered(),
        ledger=ledger,
        orders=bus,
        decisions=Decisions(bus, metrics),
        metrics=metrics,
        tell=lambda event_type, reason, note: None,
    )

    async def fence() -> Fence:
        return FENCE

    leading = asyncio.create_task(loop.lead(fence))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            while path not in {one.queue for one in bus.orders}:
                await bus.published.wait()
                bus.published.clear()
    leading.cancel()
    return [one.queue for one in bus.orders]


def order(path: str, not_after: datetime) -> EvictionOrder:
    return EvictionOrder(
        order_id="ord-1",
        kind="quota",
        cluster_uid="cluster",
        fence=FENCE,
        writer="planner",
        created_at=not_after - timedelta(seconds=120),
        not_after=not_after,
        queue=path,
        victims=(
            Victim(
                namespace="default",
                name=path,
                uid=path,
                node="n1",
                priority=0,
                grace_period_seconds=30,
                rule="quota",
            ),
        ),
    )


async def test_a_last_order_that_cannot_be_read_makes_its_own_queue_wait_and_no_other() -> None:
    assert await led(FakeBus(last="root.a"), Ledger(), "root.b") == ["root.b"]


async def test_no_quota_is_planned_for_on_pods_that_are_just_being_counted_anew() -> None:
    # Asked before each of two rounds, of which the first starts the timers; then for each queue.
    assert await led(FakeBus(), Ledger(), "root.b", True, True, False) == ["root.b"]


async def test_an_outcome_that_cannot_be_read_is_none_and_other_queues_go_on() -> None:
    ledger = Ledger()
    ledger.ordered(order("root.a", datetime.now(UTC) + timedelta(seconds=30)))

    assert await led(FakeBus(outcomes=True), ledger, "root.b") == ["root.b"]


async def test_an_order_whose_outcome_cannot_be_read_is_over_after_its_deadline() -> None:
    ledger = Ledger()
    # Live in the first round, over in the second.
    ledger.ordered(order("root.a", datetime.now(UTC) - timedelta(seconds=1.9)))

    assert "root.a" in await led(FakeBus(outcomes=True), ledger, "root.a")
