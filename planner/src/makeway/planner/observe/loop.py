"""What others preempt, compared with what makeway would have done.

In mode `observe` it hears of each decision before the plugin does, and so before DefaultPreemption acts; the
rest it sees in the pods' list-watch. For a preemption that no scheduler asked about, it plans once the first
mark and the nomination have both been seen, as of before that mark. Nothing waits for it, and what it cannot
keep up with is dropped and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn, Protocol

import msgspec
import structlog

from makeway.bus.comparison import Comparison
from makeway.bus.errors import BusError
from makeway.bus.ids import decision_id
from makeway.core.k8s.disruption import preempted_by, preempted_for_group
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.selector import SelectorError
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.observe import comparing
from makeway.planner.observe.comparing import Certainty, Observed, comparison_of
from makeway.planner.observe.detecting import Nominees, UnaskedPreemption
from makeway.planner.observe.gang_loop import GangComparer
from makeway.planner.observe.gang_pairing import UnaskedGang
from makeway.planner.observe.loops import PreemptionLoops, hold_back, owner_of
from makeway.planner.observe.pairing import ComparedPair, Evicted, Pairing
from makeway.planner.observe.past import ShortPast
from makeway.planner.observe.unasked import decision_of, unasked
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.decision import Decision
from makeway.planner.plan.gang.decision import GangDecision
from makeway.planner.plan.planner import planning
from makeway.planner.plan.request import NamelessPodError
from makeway.planner.plan.result import Plan, PlanRefusal
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


class _Status(msgspec.Struct, rename="camel"):
    nominated_node_name: str | None = None


class _RequestPod(msgspec.Struct):
    """The one thing that is looked at of a request's pod."""

    status: _Status = msgspec.field(default_factory=_Status)


_asking: Final = msgspec.json.Decoder(_RequestPod)


def _nothing_in_flight(uid: str, now: datetime) -> Mapping[str, str]:
    """Return what orders remove, as a preemptor sees it, where there are none."""
    return {}


@dataclass(frozen=True, kw_only=True)
class OwnOrders:
    """What is asked of makeway's own orders.

    `remove`: whether one removes a pod. `serve`: whether a live one makes room for a pod. `behind`: UID of
    the preemptor for which a live one removes a pod; empty for none. `in_flight`: what live ones remove, as
    one preemptor sees it at a time.
    """

    remove: Callable[[str], bool]
    serve: Callable[[str], bool] = lambda _: False
    behind: Callable[[str], str] = lambda _: ""
    in_flight: Callable[[str, datetime], Mapping[str, str]] = _nothing_in_flight


class ObserveLoop:
    """One planner's; a handler of the pods' list-watch too.

    `following`: whether to plan for preemptions that no scheduler asked about; the planner that leads does.
    `unsynced()`: what is missing before there is anything to plan on.
    """

    following = False

    def __init__(
        self,
        identity: str,
        *,
        snapshot: Snapshot,
        bus: ComparisonPublisher,
        metrics: PlannerMetrics,
        orders: OwnOrders,
        past: ShortPast | None = None,
        cluster_uid: str = "",
        unsynced: Callable[[], str] = str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._identity = identity
        self._snapshot = snapshot
        self._orders = orders
        self._past = past or ShortPast()
        self._cluster_uid = cluster_uid
        self._unsynced = unsynced
        self._cache = PlanCache()
        self._nominees = Nominees()
        self._loops = PreemptionLoops()
        self._unasked: asyncio.Queue[UnaskedPreemption | UnaskedGang] = asyncio.Queue(QUEUE_LIMIT)
        self._bus = bus
        self._metrics = metrics
        self._now = now
        self._pairing = Pairing(orders.remove)
        self._gangs = GangComparer(
            identity,
            snapshot=snapshot,
            past=self._past,
            cluster_uid=cluster_uid,
            ours=orders.remove,
            preempted=self._preempted,
        )
        self._observed: dict[str, Observed[Decision]] = {}
        self._marked: set[str] = set()
        self._told: dict[str, tuple[object, ...]] = {}
        self._queue: asyncio.Queue[Comparison] = asyncio.Queue(QUEUE_LIMIT)

    def __len__(self) -> int:
        """How many plans wait for their counterpart."""
        return len(self._pairing) + len(self._gangs)

    def loops(self) -> int:
        """Return how many pairs of owners preempt each other, or one the other, again and again."""
        return self._loops.count(self._now())

    def told_loops(self) -> str:
        """Say which; empty where there are none."""
        return self._loops.describe(self._now())

    def hold_back(self, preemptor: PodRecord, plan: Plan, now: datetime) -> Plan | PlanRefusal:
        """Leave out of a plan what goes on with a loop; see `makeway.planner.observe.loops`."""
        return hold_back(self._loops, preemptor, plan, now)

    def expect(self, decision: Decision) -> None:
        """Take a decision that was made in mode `observe`, on the snapshot as it is now."""
        nominated = _asking.decode(decision.request.pod).status.nominated_node_name or ""
        self._expect(decision, nominated)

    def expect_group(self, decision: GangDecision) -> None:
        """Take a decision about a group that was made in mode `observe`, as `expect`."""
        self._say_all(self._gangs.expect(decision, self._now()))

    def _expect(self, decision: Decision, nominated: str, certainty: Certainty | None = None) -> None:
        pairs = self._pairing.expect(comparing.expected(self._snapshot, decision, nominated))
        self._conclude(pairs)
        seen = comparing.observed(self._snapshot, decision, certainty)
        self._observed[decision.question.preemptor.uid] = seen

    # What the list-watch calls.

    def put(self, item: Pod) -> None:
        """Note a nomination, a binding, or a new mark."""
        uid = item.metadata.uid
        if self._pairing.waits_for(uid):
            self._pairing.nominated(uid, item.status.nominated_node_name or "", self._now())
            if item.spec.node_name:
                self._conclude(self._pairing.ended(uid, item.spec.node_name))
        self._gangs.put(item, self._now())
        newly = self._nominees.put(item, self._now())
        if newly:
            self._detect(newly)
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
        self._nominees.retain(uids)
        self._gangs.retain(uids)
        for uid in (self._marked | self._observed.keys() | self._told.keys()) - uids:
            self._forget(uid)

    # What runs.

    async def poll_forever(self) -> NoReturn:
        """Conclude what nothing more is expected of."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if not self._gangs.idle:
                self._detect_groups()
                self._say_all(self._gangs.due(self._now()))
            if self._pairing.idle:
                continue
            for node in self._pairing.nodes():
                self._detect(node)
            self._conclude(self._pairing.due(self._now()))

    async def plan_forever(self) -> NoReturn:
        """Plan for preemptions that no scheduler asked about, one after the other."""
        while True:
            seen = await self._unasked.get()
            try:
                await (self._plan_group(seen) if isinstance(seen, UnaskedGang) else self._plan(seen))
            except Exception as error:  # noqa: BLE001 - the top of a plan: a defect must end no answers
                self._metrics.comparison_records.labels("failed").inc()
                pod = seen.members[0][0] if isinstance(seen, UnaskedGang) else seen.pod
                _log.warning(
                    "comparison_not_planned",
                    pod=f"{pod.metadata.namespace}/{pod.metadata.name}",
                    pod_uid=pod.metadata.uid,
                    error=repr(error),
                )
            await asyncio.sleep(0)

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
        if not (self._observed or len(self._gangs) or self.following) or self._unsynced():
            return
        try:
            pod = pod_record(item)
        except QuantityError:
            return  # the snapshot's own feed says so
        self._look_at_own(pod, self._orders.behind(pod.uid))
        gone, revision = comparing.gone(self._snapshot, pod), self._snapshot.revision
        mark = Evicted(pod, gone, scheduler, self._now(), revision)
        if preempted_for_group(item):
            self._gangs.mark(mark)
            return
        self._pairing.evicted(mark)
        self._detect(pod.node)

    def _detect(self, node: str) -> None:
        """Have a plan made for each preemption on a node that shows now."""
        if not self.following or not (marks := self._pairing.unclaimed(node)):
            return

        def asked(uid: str) -> bool:
            return self._pairing.waits_for(uid) or self._orders.serve(uid)

        for found in self._nominees.behind(node, marks, self._now(), asked):
            try:
                self._unasked.put_nowait(found)
            except asyncio.QueueFull:
                self._metrics.comparison_records.labels("dropped").inc()

    def _detect_groups(self) -> None:
        """Have a plan made for each preemption for a group that shows now."""
        for found in self._gangs.unasked(self._now()) if self.following else ():
            try:
                self._unasked.put_nowait(found)
            except asyncio.QueueFull:
                self._metrics.comparison_records.labels("dropped").inc()

    async def _plan_group(self, seen: UnaskedGang) -> None:
        now = self._now()
        found = await self._gangs.plan(
            seen,
            now,
            name=decision_id(now),
            nominated=self._nominees.all,
            in_flight=lambda: self._orders.in_flight("", self._now()),
            unsynced=self._unsynced,
        )
        self._say_all(found)

    async def _plan(self, seen: UnaskedPreemption) -> None:
        """Plan as of before the first mark, and wait for the rest of the preemption."""
        snapshot, now, uid = self._snapshot, self._now(), seen.pod.metadata.uid
        if self._pairing.waits_for(uid) or self._unsynced():
            return
        began = time.perf_counter()
        past = self._past.before(snapshot, seen.revision)
        name = decision_id(now)
        try:
            asked = unasked(
                seen,
                past,
                cluster_uid=self._cluster_uid,
                request_id=name,
                nominated=self._nominees.all(),
                in_flight=self._orders.in_flight(uid, now),
            )
        except (msgspec.DecodeError, QuantityError, SelectorError, NamelessPodError):
            return  # the snapshot's own feed says so
        with snapshot.restoring(past.left):
            steps = planning(snapshot, asked.question, seen.at, self._cache)
            while (result := next(steps)) is None:
                await asyncio.sleep(0)
                if self._unsynced():
                    return
            decision = decision_of(
                snapshot,
                asked,
                seen,
                result,
                decision_id=name,
                planner=self._identity,
                duration_seconds=time.perf_counter() - began,
            )
            certainty = Certainty(
                left_out=result.left_out,
                restored=len(past.left),
                complete=past.complete,
                after=now - seen.at,
            )
            self._expect(decision, "", certainty)
        self._pairing.nominated(uid, seen.node, seen.nominated_at)

    def _forget(self, uid: str) -> None:
        self._nominees.drop(uid)
        self._gangs.drop(uid)
        self._marked.discard(uid)
        self._told.pop(uid, None)
        self._conclude(self._pairing.ended(uid, ""))
        self._observed.pop(uid, None)

    def _conclude(self, pairs: Iterable[ComparedPair]) -> None:
        for pair in pairs:
            seen = self._observed.pop(pair.expected.uid, None)
            if seen is not None:
                self._look_for_loops(seen, pair)
            comparison = comparison_of(seen, pair, self._identity, self._now()) if seen is not None else None
            if comparison is not None and not self._said_before(comparison):
                self._say(comparison)

    def _look_for_loops(self, seen: Observed[Decision], pair: ComparedPair) -> None:
        for mark in pair.evicted:
            self._preempted(seen.decision.question.preemptor, mark.pod, mark.at, mark.scheduler)

    def _look_at_own(self, victim: PodRecord, preemptor: str) -> None:
        """Take in that one of makeway's own orders marked a pod for a preemptor, which is nominated still."""
        pod = self._nominees.get(preemptor) if preemptor else None
        if pod is None:
            return
        with contextlib.suppress(QuantityError):  # the snapshot's own feed says so
            self._preempted(pod_record(pod), victim, self._now(), _OWN)

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
        before = self._told.pop(uid, None)
        self._told[uid] = answer
        while len(self._told) > _TOLD_LIMIT:
            del self._told[next(iter(self._told))]
        return comparison.result == "makewayOnly" and before == answer

    def _say_all(self, comparisons: Iterable[Comparison]) -> None:
        for comparison in comparisons:
            if not self._said_before(comparison):
                self._say(comparison)

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
