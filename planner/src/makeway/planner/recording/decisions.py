"""Decision records on their way to the bus, off the path of replies.

A reply never waits for its record: records go into a bounded queue, and one that finds it full is
dropped and counted.
"""

from __future__ import annotations

import asyncio
from dataclasses import KW_ONLY, dataclass
from typing import NoReturn, Protocol

import structlog

from makeway.bus.decisions import DecisionRecord
from makeway.bus.errors import BusError
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.decision import Decision, QuotaInputs, record_of
from makeway.planner.recording.journal import Journal
from makeway.runtime.failpoints import failpoint

QUEUE_LIMIT = 1024
"""Decisions that may wait; at a few kilobytes each."""

BEHIND_SECONDS = 0.02
"""How long a decision waits before its record is written, so that its reply is out by then."""

_log = structlog.get_logger()


class DecisionPublisher(Protocol):
    """What is used of the bus."""

    async def publish_decision(self, record: DecisionRecord) -> object:
        """Store a record; raises BusError."""


@dataclass(eq=False)
class Decisions:
    """The queue of decisions and the one task that writes them. `journal`: notes them too, for replays."""

    bus: DecisionPublisher
    metrics: PlannerMetrics
    limit: int = QUEUE_LIMIT
    _: KW_ONLY
    journal: Journal | None = None

    def __post_init__(self) -> None:
        self._queue: asyncio.Queue[Decision | DecisionRecord] = asyncio.Queue(self.limit)

    def put(self, decision: Decision | DecisionRecord) -> None:
        """Take a decision, or a record that is one already, to be written later. Never waits."""
        if self.journal is not None and isinstance(decision, Decision):
            decision = self.journal.decided(decision)
        try:
            self._queue.put_nowait(decision)
        except asyncio.QueueFull:
            self.metrics.decisions.labels("dropped").inc()
            _log.warning("decision_dropped", decision_id=decision.decision_id, waiting=self._queue.qsize())

    def put_quota(self, record: DecisionRecord, inputs: QuotaInputs) -> None:
        """Take the record of a decision about a quota, and what it was made from besides the snapshot."""
        self.put(record if self.journal is None else self.journal.quota_decided(record, inputs))

    async def write_forever(self) -> NoReturn:
        """Write decisions in the order in which they were taken."""
        while True:
            decision = await self._queue.get()
            # The loop's next turn is the reply's, and writing a record takes longer than sending a reply.
            await asyncio.sleep(BEHIND_SECONDS)
            await self._write(decision)
            while not self._queue.empty():
                await self._write(self._queue.get_nowait())

    async def _write(self, decision: Decision | DecisionRecord) -> None:
        try:
            await failpoint("planner.before-record")
            await self.bus.publish_decision(
                record_of(decision) if isinstance(decision, Decision) else decision
            )
            await failpoint("planner.after-record")
        except BusError as error:
            self.metrics.decisions.labels("failed").inc()
            _log.warning("decision_not_written", decision_id=decision.decision_id, error=str(error))
        else:
            self.metrics.decisions.labels("written").inc()
