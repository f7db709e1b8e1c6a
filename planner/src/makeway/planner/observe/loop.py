"""Mode `observe`: what DefaultPreemption does about each pod that was planned for, compared with the plan.

It hears of each decision before the plugin does, and so before DefaultPreemption acts; the rest it sees in
the pods' list-watch. Nothing waits for it, and what it cannot keep up with is dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final, NoReturn, Protocol

import msgspec
import structlog

from makeway.bus.comparison import Comparison
from makeway.bus.errors import BusError
from makeway.core.k8s.disruption import preempted_by
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.quantity import QuantityError
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.observe import comparing
from makeway.planner.observe.comparing import Observed, comparison_of
from makeway.planner.observe.pairing import ComparedPair, Evicted, Pairing
from makeway.planner.plan.decision import Decision
from makeway.planner.snapshot.records import pod_record
from makeway.planner.snapshot.state import Snapshot

POLL_SECONDS: Final = 0.5
"""Between two looks for pairs of which nothing more is expected."""

QUEUE_LIMIT: Final = 1024
"""Comparisons that may wait to be written; at about a kilobyte each."""

_TOLD_LIMIT: Final = 10_000

_log = structlog.get_logger()


class ComparisonPublisher(Protocol):
    """What is used of the bus."""

    async def publish_comparison(self, comparison: Comparison) -> None:
        """Store it; raises BusError."""


class _Status(msgspec.Struct, rename="camel"):
    nominated_node_name: str | None = None


class _RequestPod(msgspec.Struct):
    """The one thing that is looked at of a request's pod."""

    status: _Status = msgspec.field(default_factory=_Status)


_asking: Final = msgspec.json.Decoder(_RequestPod)


class ObserveLoop:
    """One planner's; a handler of the pods' list-watch too.

    `ours`: whether one of makeway's own orders removes a pod.
    """

    def __init__(
        self,
        identity: str,
        *,
        snapshot: Snapshot,
        bus: ComparisonPublisher,
        metrics: PlannerMetrics,
        ours: Callable[[str], bool],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._identity = identity
        self._snapshot = snapshot
        self._bus = bus
        self._metrics = metrics
        self._now = now
        self._pairing = Pairing(ours)
        self._observed: dict[str, Observed] = {}
        self._marked: set[str] = set()
        self._told: dict[str, tuple[object, ...]] = {}
        self._queue: asyncio.Queue[Comparison] = asyncio.Queue(QUEUE_LIMIT)

    def __len__(self) -> int:
        """How many plans wait for their counterpart."""
        return len(self._pairing)

    def expect(self, decision: Decision) -> None:
        """Take a decision that was made in mode `observe`, on the snapshot as it is now."""
        nominated = _asking.decode(decision.request.pod).status.nominated_node_name or ""
        pairs = self._pairing.expect(comparing.expected(self._snapshot, decision, nominated))
        self._conclude(pairs)
        self._observed[decision.question.preemptor.uid] = comparing.observed(self._snapshot, decision)

    # What the list-watch calls.

    def put(self, item: Pod) -> None:
        """Note a nomination, a binding, or a new mark."""
        uid = item.metadata.uid
        if self._pairing.waits_for(uid):
            self._pairing.nominated(uid, item.status.nominated_node_name or "", self._now())
            if item.spec.node_name:
                self._conclude(self._pairing.ended(uid, item.spec.node_name))
        scheduler = preempted_by(item)
        if not scheduler:
            self._marked.discard(uid)
        elif uid not in self._marked:
            self._marked.add(uid)
            self._mark(item, scheduler)

    def drop(self, item: Pod) -> None:
        """Note that a pod is gone."""
        self._forget(item.metadata.uid)

    def retain(self, uids: set[str]) -> None:
        """Note that pods which a complete list does not have are gone."""
        for uid in (self._marked | self._observed.keys() | self._told.keys()) - uids:
            self._forget(uid)

    # What runs.

    async def poll_forever(self) -> NoReturn:
        """Conclude what nothing more is expected of."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if self._observed:
                self._conclude(self._pairing.due(self._now()))

    async def write_forever(self) -> NoReturn:
        """Write comparisons in the order in which they were made."""
        while True:
            comparison = await self._queue.get()
            try:
                await self._bus.publish_comparison(comparison)
            except BusError as error:
                self._metrics.comparison_records.labels("failed").inc()
                _log.warning("comparison_not_written", decision_id=comparison.decision_id, error=str(error))
            else:
                self._metrics.comparison_records.labels("written").inc()

    # -------------------------------------------------------------------------------- inner work

    def _mark(self, item: Pod, scheduler: str) -> None:
        if not self._observed:
            return
        try:
            pod = pod_record(item)
        except QuantityError:
            return  # the snapshot's own feed says so
        self._pairing.evicted(
            Evicted(pod, comparing.gone(self._snapshot, pod), scheduler=scheduler, at=self._now())
        )

    def _forget(self, uid: str) -> None:
        self._marked.discard(uid)
        self._told.pop(uid, None)
        self._conclude(self._pairing.ended(uid, ""))
        self._observed.pop(uid, None)

    def _conclude(self, pairs: Iterable[ComparedPair]) -> None:
        for pair in pairs:
            seen = self._observed.pop(pair.expected.uid, None)
            comparison = comparison_of(seen, pair, self._identity, self._now()) if seen is not None else None
            if comparison is not None and not self._said_before(comparison):
                self._say(comparison)

    def _said_before(self, comparison: Comparison) -> bool:
        """Report whether the last word about this pod was the same and nothing has happened since.

        A pod that no component makes room for is planned for again and again.
        """
        ours = comparison.makeway
        answer = (comparison.result, *((ours.node, ours.victims) if ours is not None else ()))
        uid = comparison.preemptor.uid
        before = self._told.pop(uid, None)
        self._told[uid] = answer
        while len(self._told) > _TOLD_LIMIT:
            del self._told[next(iter(self._told))]
        return comparison.result == "makewayOnly" and before == answer

    def _say(self, comparison: Comparison) -> None:
        self._metrics.compared(comparison)
        _log.info(
            "compared",
            pod=f"{comparison.preemptor.namespace}/{comparison.preemptor.name}",
            pod_uid=comparison.preemptor.uid,
            decision_id=comparison.decision_id,
            result=comparison.result,
            decided_by=comparison.decided_by,
            shared=comparison.shared,
        )
        try:
            self._queue.put_nowait(comparison)
        except asyncio.QueueFull:
            self._metrics.comparison_records.labels("dropped").inc()
