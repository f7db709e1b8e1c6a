"""Proposing the repair of marks left behind, for as long as the process lives.

Every replica does: the standby too watches pods and orders, and a proposal that comes twice does nothing
the second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import NoReturn, Protocol

import structlog

from makeway.bus.errors import BusError
from makeway.bus.messages import API_VERSION
from makeway.bus.repairs import RepairProposal
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger
from makeway.planner.service.orders.marks import Marks
from makeway.runtime.failpoints import failpoint

ROUND_SECONDS = 1.0
"""Between two looks at the marks."""

_log = structlog.get_logger()


class RepairPublisher(Protocol):
    """What is used of the bus."""

    async def propose(self, proposal: RepairProposal) -> None:
        """Send a proposal; raises BusError."""


@dataclass(eq=False)
class RepairProposer:
    """The loop from marks to proposals. `synced()`: whether the ledger and the pods are complete."""

    cluster_uid: str
    _: KW_ONLY
    marks: Marks
    ledger: Ledger
    bus: RepairPublisher
    metrics: PlannerMetrics
    synced: Callable[[], bool]

    async def propose_forever(self) -> NoReturn:
        """Run as a part of the process."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            if self.synced():
                await self.propose_once(datetime.now(UTC))

    async def propose_once(self, now: datetime) -> None:
        """Propose what is due; what the bus does not take is proposed again later."""
        for pod in self.marks.due(self.ledger.in_flight(now)):
            proposal = RepairProposal(
                api_version=API_VERSION,
                cluster_uid=self.cluster_uid,
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
            )
            await failpoint("planner.before-proposal")
            try:
                await self.bus.propose(proposal)
            except BusError as error:
                _log.warning("repair_not_proposed", victim_uid=pod.uid, error=str(error))
                return
            self.metrics.proposals.inc()
            _log.info("repair_proposed", victim=f"{pod.namespace}/{pod.name}", victim_uid=pod.uid)
