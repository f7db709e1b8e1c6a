"""Enforcing lowered quotas, by the planner that leads: timers, plans, orders, outcomes, results.

One round a moment: note outcomes, plan for the queues that are due, commit an order each. What is remembered
beyond the process stands in the streams: a new leader goes on with the orders that are live, leaves alone
what the control state says is settled, and starts every other timer again.

Where no scheduler tells of a queue gate, a quota is planned for and told, and no pod is ordered to go: what
is evicted would be made anew, and run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn, Protocol

import structlog
from msgspec import structs

from makeway.bus.control import ControlState
from makeway.bus.decisions import DecisionRecord
from makeway.bus.errors import BusError, KeyNotPublished, Malformed
from makeway.bus.ids import decision_id, order_id
from makeway.bus.messages import PAST_DEADLINE, EvictionOrder, Fence, OrderKind, Outcome, Victim
from makeway.bus.nats.publishing import PublishRefused
from makeway.bus.orders import OrderStore
from makeway.bus.queue_report import OTHER_WAIT
from makeway.bus.records import Last, Unverified
from makeway.core.policy.brake import RELEASED, Brake
from makeway.core.policy.mode import Mode
from makeway.core.policy.rates import rates_of
from makeway.core.queues.tree import QueueTree
from makeway.core.text import counted
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger
from makeway.planner.plan.decision import QuotaInputs
from makeway.planner.plan.refusal.exempt import HARD_BUDGET
from makeway.planner.quota.decide import (
    NAMESPACE_MODE,
    NO_QUEUE_GATE,
    QuotaAnswer,
    answering,
    counted_on,
    first_part,
    is_down,
    record_of,
    still_needed,
)
from makeway.planner.quota.processes import (
    QuotaMemory,
    QuotaProcesses,
    gone_by,
    memory_in,
)
from makeway.planner.quota.telling import QuotaTelling, Tell, in_vain
from makeway.planner.quota.waiting import Cause
from makeway.planner.recording.decisions import Decisions
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.failpoints import failpoint
from makeway.runtime.process import until_set

ROUND_SECONDS: Final = 0.25
"""Between two rounds."""

ORDER_LIFE: Final = timedelta(seconds=120)
"""How long an evictor may take for one order."""

MOST_VICTIMS: Final = 500
"""Victims of one order, about 150 kB; a process goes on with the rest when it has ended."""

_log = structlog.get_logger()


class QuotaOrderStream(Protocol):
    """What is used of the bus."""

    async def control(self) -> tuple[ControlState | None, int]:
        """The last control state and its sequence; raises BusError."""

    async def last_order(self, about: str, kind: OrderKind) -> Last[EvictionOrder] | Unverified | None:
        """The last order about a queue; raises BusError or Malformed."""

    async def outcome(self, order_id: str) -> Last[Outcome] | None:
        """The outcome of an order; raises the same."""


_LEAST_PRIORITY: Final = -(2**31)


def _order_of(
    record: DecisionRecord, victims: tuple[Victim, ...], fence: Fence, now: datetime
) -> EvictionOrder:
    """Return the order of a decision; `now`: not the round's, so that one that waited has its full life."""
    return EvictionOrder(
        order_id=order_id(now),
        kind="quota",
        cluster_uid=record.cluster_uid,
        fence=fence,
        writer=record.planner,
        created_at=now,
        not_after=now + ORDER_LIFE,
        queue=record.queue,
        decision_id=record.decision_id,
        victims=victims,
        pdb_violations=sum(victim.pdb_violating for victim in victims),
    )


@dataclass(eq=False, kw_only=True)
class QuotaLoop:
    """The loop of one planner. `control` is what its queues are about while it leads, else None.

    `mode()`: the cluster's at this moment. `ready()`: whether pods, orders, outcomes and configuration have
    been read, and applied. `gates(now)`: the names of the scheduler profiles that have the queue gate; raises
    BusError. `now()`: the time, UTC. `remember` is called when `memory` may return something else.
    """

    cluster_uid: str
    identity: str
    mode: Callable[[], Mode]
    ready: Callable[[], bool]
    gates: Callable[[datetime], Awaitable[frozenset[str]]]
    snapshot: Snapshot
    ledger: Ledger
    orders: QuotaOrderStream
    writer: OrderStore
    decisions: Decisions
    metrics: PlannerMetrics
    tell: Tell
    brake: Callable[[], Brake] = lambda: RELEASED
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    control: QuotaProcesses | None = None
    remember: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._remembered = 0
        self._in_force: tuple[str, Mode] | None = None
        self._changed = asyncio.Event()
        self._telling = QuotaTelling(self.snapshot, self.metrics, self.tell)

    def changed(self) -> None:
        """Look at once: the configuration may be another."""
        self._changed.set()

    def memory(self) -> QuotaMemory | None:
        """Return what the next leader has to know; None while this planner does not know it itself."""
        return self.control.memory() if self.control is not None else None

    async def lead(self, fence: Callable[[], Awaitable[Fence]]) -> NoReturn:
        """Enforce quotas while this planner leads. `fence`: of its orders; asked before the first."""
        self.control, self._in_force, self._remembered = None, None, 0
        self._telling.begin()
        try:
            while True:
                self._changed.clear()
                if self.ready():
                    try:
                        await self.one_round(fence)
                    except BusError as error:
                        _log.warning("quota_round_failed", error=str(error))
                await until_set(self._changed, ROUND_SECONDS)
        finally:
            self.control = None
            self._telling.end()

    async def one_round(self, fence: Callable[[], Awaitable[Fence]]) -> None:
        """Do what is due. Raises BusError; what was not done is due again.

        What cannot be read makes the queue wait that it is about, and no other.
        """
        control = self.control or await self._begin()
        now = self.now()
        self._up_to_date(control, now)
        for path, order in list(control.awaited().items()):
            await self._read_outcome(control, path, order)
        for path, why in control.called_off(self.snapshot.queues.tree).items():
            self._call_off(control, path, why, now)
        for path in control.due(self.snapshot.queues.tree, now):
            try:
                await self._enforce(control, path, fence)
            except Malformed as error:
                _log.warning("quota_round_failed", error=f"{path}: {error}")
                control.again(path, now)
        self._telling.look_again(control, now)
        self._telling.tell_of_waits(control)
        if control.timers.changes != self._remembered:
            self._remembered = control.timers.changes
            self.remember()

    async def _begin(self) -> QuotaProcesses:
        """Take over what the planner before has settled, and the orders that are live. Raises BusError."""
        told, _ = await self.orders.control()
        control = QuotaProcesses.remembering(memory_in(told, self.cluster_uid))
        now = self.now()
        resumed = self.ledger.quota_orders(now)
        control.resume(resumed)
        self._up_to_date(control, now)
        for order in resumed:
            _log.info("quota_process_resumed", queue=order.queue, order_id=order.order_id)
        self.control = control
        return control

    def _up_to_date(self, control: QuotaProcesses, now: datetime) -> None:
        """Take over the configuration in force, where it is another."""
        in_force = (self.snapshot.queues.revision, self.mode())
        if self._in_force != in_force:
            control.saved(self.snapshot.queues.tree, in_force[1], now)
            self._in_force = in_force

    async def _read_outcome(self, control: QuotaProcesses, path: str, order: EvictionOrder) -> None:
        found = await self._outcome(order)
        now = self.now()
        if found is None and now < order.not_after + PAST_DEADLINE:
            return
        outcome = None if found is None else found.message
        if outcome is not None:
            # The follower may be behind: what was removed must not be counted as staying.
            self.ledger.ended(outcome)
            self.metrics.quota_victims.inc(gone_by(outcome))
        process, before = control.processes[path], control.ended.get(path)
        control.outcome(path, outcome, now, down=is_down(self.snapshot, path, self._leaving(control, now)))
        result = outcome.result if outcome else "none"
        _log.info("quota_order_ended", queue=path, order_id=order.order_id, result=result)
        ended = control.ended.get(path)
        if ended is not None and ended is not before:
            self._telling.ended(path, process, ended)

    def _call_off(self, control: QuotaProcesses, path: str, why: str, now: datetime) -> None:
        """End a process that the configuration does not ask for any more."""
        process = control.processes[path]
        message = f"{path}: its quota is not enforced further: {why}"
        ended = control.finish(path, "cancelled", message, now)
        self._telling.ended(path, process, ended)

    async def _enforce(
        self, control: QuotaProcesses, path: str, fence: Callable[[], Awaitable[Fence]]
    ) -> None:
        """Plan for one queue, and order what was planned."""
        now = self.now()
        last = await self.orders.last_order(path, "quota")
        if isinstance(last, Last) and await self._is_live(last.message, now):
            # An earlier attempt of ours that was not answered, or another planner's.
            self.metrics.quota_orders.labels("adopted").inc()
            self.ledger.ordered(last.message)
            control.ordered(path, last.message, whole=False)
            return
        mode = self.mode()
        if mode == "off":
            control.wait(path, Cause("mode-off", f"{path}: the mode is off, by the policy or the brake"), now)
            return
        gates, fenced = await self.gates(now), await fence()
        tree = self.snapshot.queues.tree
        if tree is None or path in control.called_off(tree):
            return  # the next round ends it
        if not self.ready():
            control.again(path, now)
            return
        process, queue = control.processes[path], tree.at(path)
        began = time.perf_counter()
        inputs = QuotaInputs(
            decision_id=decision_id(now),
            at=now,
            queue=path,
            maximum=dict(control.maximum_for(path, queue)),
            mode=mode,
            leaving=frozenset(self._leaving(control, now)),
            running=frozenset(control.processes) - {path},
            refused=dict(process.refused),
            stuck=dict(process.stuck),
            began_need=dict(process.need),
            gates=gates or None,
        )
        # The revision does not tell that pods were matched with their budgets meanwhile.
        revision, decided = self.snapshot.revision, not self.snapshot.undecided
        planned = await self._plan(control, tree, inputs, now)
        seconds = time.perf_counter() - began
        if planned is None:
            control.again(path, now)
            return
        found, victims = planned
        self.metrics.quota_plan_seconds.observe(seconds)
        record = record_of(
            inputs,
            found,
            self.snapshot,
            cluster_uid=self.cluster_uid,
            planner=self.identity,
            duration_seconds=seconds,
        )
        held_back = bool(found.victims) and mode == "enforce" and not gates
        if held_back and process.waiting is not None and process.waiting.reason == NO_QUEUE_GATE:
            pass  # told already
        elif decided and self.snapshot.revision == revision:
            self.decisions.put_quota(record, inputs)
        else:
            self.decisions.put(record)  # no snapshot of a recording is the one that it was made from
        braked = self.brake().scope() if found.plan.lacks(NAMESPACE_MODE) else ""
        if braked and mode == "enforce" and not found.victims:
            control.wait(path, Cause("mode-off", f"{found.plan.message}; the brake holds {braked}"), now)
            return
        if not found.victims and not decided and found.plan.lacks(HARD_BUDGET):
            control.again(path, now)  # budgets are just being matched with pods
            return
        awaits = control.awaits(path, found.plan, now)
        if awaits is not None and mode == "enforce" and not found.victims:
            control.wait(path, awaits, now)
            return
        awaited = counted_on(self.snapshot, tree, inputs, found.plan, self.ledger.leaving(now))
        if awaited and mode == "enforce" and not found.victims:
            others = f"{counted(awaited, 'pod')} that other orders are yet to remove counted as gone"
            control.wait(path, Cause(OTHER_WAIT, f"{found.plan.message}; {others}"), now)
            return
        if mode == "observe" or not found.victims:
            ended = control.concluded(path, found.plan, now, observed=mode == "observe")
            self._telling.ended(path, process, ended)
            return
        if (over := in_vain(self.snapshot, path, process, found.plan)) is not None:
            message, makers = over
            self._telling.ended(path, process, control.finish(path, "undone", message, now, makers))
            return
        control.planned(path, found.plan, now)
        if held_back:
            why = "no pod is evicted, since no scheduler reports that it would hold their successors"
            control.wait(path, Cause(NO_QUEUE_GATE, f"{found.plan.message}; {why}"), now)
            return
        order = _order_of(record, victims, fenced, self.now())
        queues = self.snapshot.queues
        requests = {one.uid: queues.record(one.uid).requests for one in victims if one.uid in queues}
        self.ledger.reserve(order)  # nothing was awaited since the plan: what it counted on holds
        try:
            await failpoint("planner.before-quota-order")
            stored = await self.writer.store(order, last.sequence if last is not None else 0)
            await failpoint("planner.after-quota-order")
        except (KeyNotPublished, PublishRefused) as error:
            control.wait(path, Cause("bus", f"its order is not stored: {error}"), self.now())
            return
        finally:
            self.ledger.withdraw(order.order_id)
        if stored.order_id != order.order_id:
            control.again(path, now)  # the next round reads what came first
            return
        if stored.void is not None:
            control.wait(path, Cause("bus", f"its order is not stored: {stored.void.message}"), self.now())
            return
        self.metrics.quota_orders.labels("committed").inc()
        self.ledger.ordered(order)
        whole = not awaited and len(victims) == len(found.victims)
        control.ordered(path, order, whole=whole, requests=requests)
        _log.info("quota_order_committed", queue=path, order_id=order.order_id, victims=len(victims))

    async def _plan(
        self, control: QuotaProcesses, tree: QueueTree, inputs: QuotaInputs, now: datetime
    ) -> tuple[QuotaAnswer, tuple[Victim, ...]] | None:
        """Plan in chunks; return the plan and the victims to order first, which have to go as of now.

        None where the plan does not hold any more when it is made.
        """
        snapshot = self.snapshot
        began, policy = snapshot.revision, snapshot.exemptions.revision
        steps = answering(snapshot, tree, inputs)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: QuotaAnswer = end.value
                break
            await asyncio.sleep(0)
            if snapshot.queues.tree is not tree or not self.ready():
                return None
        first = first_part(found.victims, self._most_victims(control.processes[inputs.queue].room))
        leaving = frozenset(self._leaving(control, now))
        if not first or (snapshot.revision == began and leaving == inputs.leaving):
            return found, first
        if snapshot.exemptions.revision != policy or self.mode() != inputs.mode:
            return None
        first = still_needed(snapshot, tree, structs.replace(inputs, leaving=leaving), first)
        return (found, first) if first else None

    async def _is_live(self, order: EvictionOrder, now: datetime) -> bool:
        over = order.void is not None or now >= order.not_after + PAST_DEADLINE
        return not over and await self._outcome(order) is None

    async def _outcome(self, order: EvictionOrder) -> Last[Outcome] | None:
        """Return an order's outcome; one that cannot be read is none, and the order ends by its deadline."""
        try:
            return await self.orders.outcome(order.order_id)
        except Malformed:
            return None  # quarantined where the outcomes are followed

    def _leaving(self, control: QuotaProcesses, now: datetime) -> set[str]:
        return {
            *self.ledger.in_flight(now, pledged=_LEAST_PRIORITY),
            *self.ledger.leaving(now),
            *control.leaving(),
        }

    def _most_victims(self, room: int) -> int:
        """Return how many pods an order may have. `room`: what the caps allow, 0 where that was not told."""
        limits = self.snapshot.exemptions.policy.limits
        allowed = room or rates_of(limits, self.snapshot.bound_pods).at_once
        return min(MOST_VICTIMS, limits.victims_per_order, allowed)
