"""A planner with everything round it that it needs, and what it writes down."""

import asyncio
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from makeway.bus.commit import Offer
from makeway.bus.decisions import DecisionRecord
from makeway.bus.errors import BusUnavailable
from makeway.core.policy.brake import RELEASED, Brake
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger
from makeway.planner.plan.decision import Decision
from makeway.planner.recording.decisions import BEHIND_SECONDS, Decisions
from makeway.planner.recording.journal import Journal
from makeway.planner.service.handler import Planner
from makeway.planner.snapshot.state import Snapshot


class Answering:
    """`failures`: how often it cannot publish, from now on. `bound`: pods that the ledger takes for bound."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        unsynced: Callable[[], str] = str,
        behind: bool = False,
        brake: Brake = RELEASED,
        limit: int = 10,
        journal: Journal | None = None,
    ) -> None:
        self.registry = CollectorRegistry()
        self.metrics = PlannerMetrics(self.registry)
        self.records: list[DecisionRecord] = []
        self.observed: list[Decision] = []
        self.offers: list[Offer] = []
        self.failures = 0
        self.bound: set[str] = set()
        self.ledger = Ledger(self.bound.__contains__)
        self.snapshot = snapshot
        self.decisions = Decisions(self, self.metrics, limit, journal=journal)
        self.planner = Planner(
            "cluster-1",
            "planner-1",
            snapshot=snapshot,
            ledger=self.ledger,
            decisions=self.decisions,
            metrics=self.metrics,
            unsynced=unsynced,
            behind=lambda _: behind,
            brake=lambda: brake,
            seal=self._seal,
            observe=self.observed.append,
        )

    def _seal(self, offer: Offer) -> str:
        self.offers.append(offer)
        return "sealed"

    async def publish_decision(self, record: DecisionRecord) -> None:
        if self.failures:
            self.failures -= 1
            raise BusUnavailable("down")
        self.records.append(record)

    async def written(self) -> list[DecisionRecord]:
        task = asyncio.create_task(self.decisions.write_forever())
        await asyncio.sleep(BEHIND_SECONDS + 0.05)
        task.cancel()
        return self.records

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0
