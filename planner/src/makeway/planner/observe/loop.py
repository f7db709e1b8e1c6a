"""What others preempt, compared with what makeway would have done.

In mode `observe` it hears of each decision before the plugin does, and so before DefaultPreemption acts; the
rest it sees in the pods' list-watch. Which marks are others' `authors` says, of pods and groups alike. For a
preemption that no scheduler asked about, it plans once the first mark and the nomination have both been seen,
as of before that mark. Nothing waits for it, and what it cannot keep up with is dropped and counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn, Protocol

import structlog

from makeway.bus.comparison import Comparison
from makeway.bus.errors import BusError
from makeway.bus.messages import Outcome
from makeway.core.k8s.authorship import writers_of_mark
from makeway.core.k8s.disruption import preempted_by, preempted_for_group
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.quantity import QuantityError
from makeway.core.recent import Recent
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.observe.authors import Authors
from makeway.planner.observe.comparer import Comparer
from makeway.planner.observe.comparing import gone
from makeway.planner.observe.loops import A, PreemptionLoops, by_owner, hold_back, owner_of
from makeway.planner.observe.marks import Evicted
from makeway.planner.observe.pairing import UnaskedPreemption
from makeway.planner.observe.past import ShortPast
from makeway.planner.orders.ledger import Ledger
from makeway.planner.plan.decision import Decision
from makeway.planner.plan.result import PlanRefusal
from makeway.planner.snapshot.records import PodRecord, pod_record
from makeway.planner.snapshot.state import Snapshot

POLL_SECONDS: Final = 0.5
"""Between two looks for pairs of which nothing more is expected."""

QUEUE_LIMIT: Final = 1024
"""Comparisons that may wait to be written; at about a kilobyte each."""

_TOLD_LIMIT: Final = 10_000

_OWN: Final = "makeway"
"""Stands for the scheduler in a loop of makeway's own orders."""

_log = structlog.get_logger()


class ComparisonPublisher(Protocol):
    """What is used of the bus."""

    async def publish_comparison(self, comparison: Comparison) -> None:
        """Store it; raises BusError."""


@dataclass(eq=False)
class ObserveLoop:
    """One planner's; a handler of the pods' list-watch too.

    `following`: whether to plan for preemptions that no scheduler asked about; the planner that leads does.
    `unsynced()`: what is missing before there is anything to plan on.
    """

    following = False

    identity: str
    _: KW_ONLY
    snapshot: Snapshot
    bus: ComparisonPublisher
    metrics: PlannerMetrics
    ledger: Ledger
    past: ShortPast
    cluster_uid: str = ""
    unsynced: Callable[[], str] = str
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._loops = PreemptionLoops()
        self._unasked: asyncio.Queue[UnaskedPreemption] = asyncio.Queue(QUEUE_LIMIT)
        self._authors = Authors(self.ledger)

        def comparer(served: Callable[[str], bool], *, of_groups: bool) -> Comparer:
            return Comparer(
                self.identity,
                of_groups=of_groups,
                snapshot=self.snapshot,
                past=self.past,
                cluster_uid=self.cluster_uid,
                preempted=self._preempted,
                unsynced=self.unsynced,
                served=served,
            )

        self._pods = comparer(self.ledger.makes_room_for, of_groups=False)
        self._gangs = comparer(lambda _: False, of_groups=True)
        self._both = (self._gangs, self._pods)
        self._marked: set[str] = set()
        self._told = Recent[str, tuple[object, ...]](_TOLD_LIMIT)
        self._queue: asyncio.Queue[Comparison] = asyncio.Queue(QUEUE_LIMIT)

    def __len__(self) -> int:
        """How many plans wait for their counterpart."""
        return sum(len(one.pairing) for one in self._both)

    def loops(self) -> int:
        """Return how many pairs of owners preempt each other, or one the other, again and again."""
        return self._loops.count(self.now())

    def told_loops(self) -> str:
        """Say which; empty where there are none."""
        return self._loops.describe(self.now())

    def hold_back(self, preemptors: Sequence[PodRecord], plan: A, now: datetime) -> A | PlanRefusal:
        """Leave out of a plan what goes on with a loop; see `makeway.planner.observe.loops`."""
        return hold_back(self._loops, preemptors, plan, now)

    def expect(self, decision: Decision) -> None:
        """Take a decision that was made in mode `observe`, on the snapshot as it is now."""
        comparer = self._pods if decision.request.group is None else self._gangs
        self._say_all(comparer.expect(decision, self.now()))

    # What the list-watch calls.

    def put(self, item: Pod) -> None:
        """Note a nomination, a binding, a new mark, or that a mark was taken back."""
        uid, now = item.metadata.uid, self.now()
        for one in self._both:
            one.put(item, now)
        scheduler = preempted_by(item)
        if scheduler and uid not in self._marked:
            self._marked.add(uid)
            self._mark(item, scheduler)
        elif not scheduler and uid in self._marked:
            self._marked.discard(uid)
            if item.metadata.deletion_timestamp is None:
                self._authors.withdraw(uid)
                for one in self._both:
                    one.pairing.withdrawn(uid, item.spec.node_name or "")
        self._plan_for(self._pods.unasked(now, anew=True))

    def drop(self, item: Pod) -> None:
        """Note that a pod is gone."""
        uid = item.metadata.uid
        for one in self._both:
            one.pairing.drop(uid, self.now())
        self._marked.discard(uid)
        self._told.pop(uid, None)

    def retain(self, uids: set[str]) -> None:
        """Note that pods which a complete list does not have are gone."""
        for one in self._both:
            one.pairing.retain(uids, self.now())
        self._marked &= uids
        for uid in self._told.keys() - uids:
            del self._told[uid]

    # What the ledger calls.

    def ended(self, outcome: Outcome) -> None:
        """Take in how one of makeway's own orders ended; what it has evicted counts for loops, once."""
        preemptor = self._made_room_for(outcome)
        for one in outcome.victims if preemptor is not None else ():
            victim = self._known(one.uid) if one.result == "deleted" else None
            if preemptor is not None and victim is not None:
                self._preempted(preemptor, victim, self.now(), _OWN)

    def orders_read(self) -> None:
        """Go on with the marks that are held: more orders have been read."""
        if not len(self._authors):
            return
        for mark in self._authors.of_others():
            (self._gangs if mark.for_group else self._pods).pairing.evicted(mark)
        self._plan_for(self._pods.unasked(self.now(), anew=True))

    # What runs.

    async def poll_forever(self) -> NoReturn:
        """Conclude what nothing more is expected of; nothing, while it is not known whose a mark is."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self.orders_read()
            if len(self._authors):
                continue
            for comparer in self._both:
                now = self.now()
                self._plan_for(comparer.unasked(now))
                self._say_all(comparer.due(now))

    async def plan_forever(self) -> NoReturn:
        """Plan for preemptions that no scheduler asked about, one after the other."""
        while True:
            seen = await self._unasked.get()
            try:
                await self._plan(seen)
            except Exception as error:  # noqa: BLE001 - the top of a plan: a defect must end no answers
                self.metrics.comparison_records.labels("failed").inc()
                metadata = seen.pod.metadata
                _log.warning(
                    "comparison_not_planned",
                    pod=f"{metadata.namespace}/{metadata.name}",
                    pod_uid=metadata.uid,
                    error=repr(error),
                )
            await asyncio.sleep(0)

    async def write_forever(self) -> NoReturn:
        """Write comparisons in the order in which they were made."""
        while True:
            comparison = await self._queue.get()
            try:
                await self.bus.publish_comparison(comparison)
            except BusError as error:
                self.metrics.comparison_records.labels("failed").inc()
                _log.warning("comparison_not_written", decision_id=comparison.decision_id, error=str(error))
            else:
                self.metrics.comparison_records.labels("written").inc()

    # -------------------------------------------------------------------------------- inner work

    def _mark(self, item: Pod, scheduler: str) -> None:
        if not (len(self) or self.following) or self.unsynced():
            return
        try:
            pod = self.snapshot.groups.entered(pod_record(item))
        except QuantityError:
            return  # the snapshot's own feed says so
        unit = self.snapshot.groups.unit_of_pod(pod)
        mark = Evicted(
            pod,
            gone(self.snapshot, pod),
            scheduler,
            self.now(),
            self.snapshot.revision,
            seen=time.monotonic(),
            for_group=preempted_for_group(item),
            writers=writers_of_mark(item),
            unit="" if unit is None else str(unit.key),
        )
        if not self._authors.take(mark):
            self.metrics.comparison_records.labels("dropped").inc()
        self.orders_read()

    def _plan_for(self, found: Iterable[UnaskedPreemption]) -> None:
        """Have a plan made for each preemption that shows now."""
        for seen in found if self.following else ():
            try:
                self._unasked.put_nowait(seen)
            except asyncio.QueueFull:
                self.metrics.comparison_records.labels("dropped").inc()

    async def _plan(self, seen: UnaskedPreemption) -> None:
        found = await (self._gangs if seen.of_group else self._pods).plan(
            seen,
            self.now(),
            self._pods.pairing.nominated,
            lambda uid: self.ledger.in_flight(self.now(), asking=uid),
        )
        self._say_all(found)

    def _known(self, uid: str) -> PodRecord | None:
        """Return a pod that is there, or has left lately."""
        departure = self.snapshot.departures.get(uid)
        return self.snapshot.pods.get(uid) or (departure.pod if departure is not None else None)

    def _made_room_for(self, outcome: Outcome) -> PodRecord | None:
        """Return the pod that an order made room for, of a PodGroup the first by owner; None for a quota."""
        groups, uid = self.snapshot.groups, outcome.preemptor_uid
        if (pod := self._known(uid)) is not None:
            return pod
        keys = (key for key, record in groups.records.items() if record.uid == uid)
        uids = (one for key in keys for one in groups.uids(f"{key.namespace}/{key.name}"))
        known = (pod for one in uids if (pod := self._known(one)) is not None)
        return min(known, key=by_owner, default=None)

    def _preempted(self, preemptor: PodRecord, victim: PodRecord, at: datetime, scheduler: str) -> None:
        if self._loops.preempted(preemptor, victim, at):
            _log.warning(
                "preemption_loop",
                pod=f"{preemptor.namespace}/{preemptor.name}",
                pod_uid=preemptor.uid,
                owner=owner_of(preemptor),
                victim=f"{victim.namespace}/{victim.name}",
                victim_owner=owner_of(victim),
                scheduler=scheduler,
            )

    def _said_before(self, comparison: Comparison) -> bool:
        """Report whether the last word about this pod was the same and nothing has happened since.

        A pod that no component makes room for is planned for again and again.
        """
        ours = comparison.makeway
        answer = (comparison.result, *((ours.node, ours.victims) if ours is not None else ()))
        uid = comparison.preemptor.uid
        before = self._told.get(uid)
        self._told[uid] = answer
        return comparison.result == "makewayOnly" and before == answer

    def _say_all(self, comparisons: Iterable[Comparison]) -> None:
        for comparison in comparisons:
            if self._said_before(comparison):
                continue
            self.metrics.compared(comparison)
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
                self.metrics.comparison_records.labels("dropped").inc()
