"""The quota processes of all queues: what each is about to do, and what came of the last. Pure state.

A process begins when a queue's timer has fired, and ends with a result. In between it orders evictions
and waits for their outcome; where some victims stayed, or were too many for one order, it plans again.
An order is never interrupted. Between two of them the configuration may end a process: where it does not
enforce the queue's quota any more, or has only raised its maximum. Other changes count when it has ended.

A cause that may pass ends no process: caps, a breaker, the brake, no evictor, an API server that is away. The
process waits and tries again. What ends it is that nothing more can go.

A process plans only when no process runs for a queue below its own: what those evict counts for the queue
above as well. A pod that could not be evicted is left out for the rest of the process, so that the next plan
takes another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from makeway.bus.control import ControlState, EnforcedQuota, SettledQuota
from makeway.bus.messages import MAY_PASS, EvictionOrder, Outcome
from makeway.bus.queue_report import ProcessResult, QuotaEnd, QuotaWaiting
from makeway.core.policy.mode import Mode
from makeway.core.queues.amounts import Amounts, looser, most_of, texts_of, written
from makeway.core.queues.quota import QuotaObstacle, QuotaPlan
from makeway.core.queues.quota_order import unenforced
from makeway.core.queues.timers import Timers, TimerSettings, is_raised, unfinished
from makeway.core.queues.tree import Queue, QueueTree
from makeway.planner.plan.refusal.exempt import HARD_BUDGET
from makeway.planner.quota.decide import NAMESPACE_MODE, NO_QUEUE_GATE, obstacles_of
from makeway.planner.quota.waiting import RETRY, Cause, cause_of, tries_again

MOST_IDLE: Final = 100
"""Orders in a row that evict no pod, though each shows of further pods that they stay, after which a process
ends."""

PASSING_TRIES: Final = 5
"""How often in a row an order may fail for all of its pods, for reasons that may pass, before other pods are
taken in their place: about a minute."""

PATIENCE: Final = timedelta(minutes=15)
"""How long a process waits for those of queues below its own whose orders cannot be read or written. Where
those wait for something themselves, it waits as long as they do."""

AWAITED: Final = {HARD_BUDGET: ("budget", PATIENCE), NO_QUEUE_GATE: (NO_QUEUE_GATE, timedelta(minutes=1))}
"""Rules whose no may pass, with what a process that lacks pods by them waits for, and how long: a budget may
allow an eviction as soon as a pod is ready, and a scheduler that reports no queue gate may have just started,
or not have answered in time."""


@dataclass(frozen=True, slots=True)
class RunningQuota:
    """A process that runs.

    `maximum`: what it began with; None where another planner began it. `need`: what had to go when it first
    planned. `order`: the one in flight. `whole`: that order has all victims of its plan. `plan`: the last.
    `plan_at`: when it plans next. `refused`: why each pod could not be evicted that would be refused again,
    by UID; `stuck`: the same of those whose eviction failed for a reason that may pass. `idle`: orders in a
    row, counted as `MOST_IDLE` says. `waiting`: for what, and `tried`: how often in a row it has tried.
    `room`: how many pods the caps let its next order have, 0 where that is not known. `requests`: what the
    victims of the order request, by UID; `freed`: the same of all that were evicted.
    """

    began_at: datetime
    maximum: Amounts | None
    need: Amounts = field(default_factory=dict)
    plan_at: datetime | None = None
    order: EvictionOrder | None = None
    whole: bool = True
    plan: QuotaPlan | None = None
    evicted: int = 0
    idle: int = 0
    trouble: tuple[QuotaObstacle, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    stuck: Mapping[str, str] = field(default_factory=dict)
    waiting: QuotaWaiting | None = None
    tried: int = 0
    room: int = 0
    requests: Mapping[str, Amounts] = field(default_factory=dict)
    freed: Amounts = field(default_factory=dict)

    @property
    def victims(self) -> frozenset[str]:
        """UIDs that the order in flight removes."""
        return (
            frozenset(victim.uid for victim in self.order.victims) if self.order is not None else frozenset()
        )


@dataclass(frozen=True, slots=True)
class QuotaMemory:
    """What the next planner has to know.

    So that it does not enforce again what is settled, and judges what is not by the need that it began with.
    """

    settled: tuple[SettledQuota, ...] = ()
    enforcing: tuple[EnforcedQuota, ...] = ()


@dataclass
class QuotaProcesses:
    """All queues of one leading planner. Of the planner before it knows `QuotaMemory`, and live orders.

    `unended`: the processes of the planner before that have not begun again.
    """

    timers: Timers = field(default_factory=Timers)
    processes: dict[str, RunningQuota] = field(default_factory=dict)
    ended: dict[str, QuotaEnd] = field(default_factory=dict)
    unended: dict[str, EnforcedQuota] = field(default_factory=dict)

    @classmethod
    def remembering(cls, memory: QuotaMemory) -> QuotaProcesses:
        """Return the control of a planner that begins to lead, with what the one before remembered."""
        terms = {one.path: unfinished(one.max) for one in memory.enforcing}
        terms |= {one.path: _timer_settings(one) for one in memory.settled}
        return cls(Timers(terms), unended={one.path: one for one in memory.enforcing})

    # ------------------------------------------------------------------------------------ events

    def saved(self, tree: QueueTree | None, mode: Mode, now: datetime) -> None:
        """A configuration, or a mode, has come into force: what waits looks whether it may go on."""
        self.timers.saved(tree, now, mode)
        self._forget_settled()
        for path, process in self.processes.items():
            if process.waiting is not None and process.order is None:
                self.processes[path] = replace(process, plan_at=now)

    def called_off(self, tree: QueueTree | None) -> dict[str, str]:
        """Return the queues whose process the configuration asks for no more, with why.

        None that has an order in flight: orders are not cut off.
        """
        found = {path: _called_off(process, path, tree) for path, process in self.processes.items()}
        return {path: why for path, why in found.items() if why}

    def resume(self, orders: Iterable[EvictionOrder]) -> None:
        """Go on with the processes whose orders are live, before any configuration: another planner's."""
        for order in orders:
            before = self.unended.get(order.queue)
            self.timers.resume(order.queue, unfinished(before.max) if before is not None else None)
            self.processes[order.queue] = RunningQuota(began_at=order.created_at, maximum=None, order=order)

    def due(self, tree: QueueTree | None, now: datetime) -> list[str]:
        """Return the queues to plan for now, in order, and begin the processes of those that have fired.

        A queue below which processes run is not among them before these have ended.
        """
        if tree is None:
            return []
        for path in self.timers.fired(tree, now):
            self.timers.begin(path)
            maximum, before = tree.at(path).maximum, self.unended.pop(path, None)
            need = before.need if before is not None and before.max == maximum else {}
            self.processes[path] = RunningQuota(began_at=now, maximum=maximum, need=need, plan_at=now)
        return [
            path
            for path, process in self.processes.items()
            if process.plan_at is not None and process.plan_at <= now and not self._held_below(path, now)
        ]

    def planned(self, path: str, plan: QuotaPlan, now: datetime) -> None:
        """Take note of a plan that pods have to go by."""
        process = self.processes[path]
        need = most_of(process.need, plan.need)
        if process.maximum is not None and need != process.need:
            self.timers.changes += 1
        self.processes[path] = replace(process, plan=plan, plan_at=now, need=need)

    def ordered(
        self,
        path: str,
        order: EvictionOrder,
        *,
        whole: bool,
        requests: Mapping[str, Amounts] = MappingProxyType({}),
    ) -> None:
        """An order is in its stream."""
        process = self.processes[path]
        self.processes[path] = replace(
            process, order=order, whole=whole, plan_at=None, room=0, requests=requests
        )

    def again(self, path: str, now: datetime) -> None:
        """Plan again in a moment: the order could not be committed, or the plan holds no more."""
        self.processes[path] = replace(self.processes[path], order=None, plan_at=now + RETRY)

    def wait(self, path: str, cause: Cause, now: datetime) -> None:
        """Wait until what may pass has passed, and try again then."""
        self.processes[path] = _waiting(self.processes[path], cause, now)

    def awaits(self, path: str, plan: QuotaPlan, now: datetime) -> Cause | None:
        """Return what a process waits for by a plan without victims: what it may wait for longest."""
        terms = next((terms for rule, terms in AWAITED.items() if plan.lacks(rule)), None)
        if terms is None:
            return None
        (reason, longest), waiting = terms, self.processes[path].waiting
        over = waiting is not None and waiting.reason == reason and now >= waiting.since + longest
        return None if over else Cause(reason, plan.message)

    def outcome(self, path: str, outcome: Outcome | None, now: datetime, *, down: bool = True) -> None:
        """The order in flight has ended, or is over without an outcome: plan again, or be done.

        `down`: its victims gone, the queue is at or below its maximum.
        """
        process = self.processes[path]
        gone = gone_by(outcome)
        all_left = outcome is not None and outcome.result == "succeeded"
        evicted = process.evicted + gone
        if process.maximum is None:
            # What is left of its plan is not known. The timer starts again and sees to the rest.
            message = (
                f"{path}: the order of the planner before removed {evicted} of {len(process.victims)} pods"
            )
            blocked = () if all_left else (_trouble(outcome),)
            self.processes[path] = replace(process, evicted=evicted)
            if not down:
                message += ", and more is left over"
            self.finish(path, "success" if all_left and down else "bestEffort", message, now, blocked)
            return
        refused, stuck = _left_out(process, outcome)
        if not gone and len(refused) == len(process.refused) and process.tried < PASSING_TRIES:
            stuck = dict(process.stuck)  # as likely the API server's state as the pods'
        learned = len(refused) + len(stuck) > len(process.refused) + len(process.stuck)
        cause = cause_of(outcome, moved=bool(gone) or learned)
        process = replace(
            process,
            order=None,
            evicted=evicted,
            freed=_freed(process, outcome),
            idle=process.idle + 1 if not gone and cause is None else 0,
            trouble=() if all_left or cause is not None else (_trouble(outcome),),
            refused=refused,
            stuck=stuck,
            plan_at=now if all_left else now + RETRY,
            tried=0 if gone else process.tried,
            waiting=process.waiting if cause is not None else None,
        )
        self.processes[path] = process = process if cause is None else _waiting(process, cause, now)
        plan = process.plan
        may_follow = plan is not None and any(plan.lacks(rule) for rule in (NAMESPACE_MODE, *AWAITED))
        if all_left and process.whole and plan is not None and not may_follow:
            result: ProcessResult = "success" if plan.result == "success" else "bestEffort"
            self.finish(path, result, plan.message, now, plan.blocked)
        elif process.idle >= MOST_IDLE:
            message = f"{path}: {process.trouble[0].message}" if process.trouble else f"{path}: no pod went"
            result = "bestEffort" if evicted else "unsuccessful"
            self.finish(path, result, message, now, process.trouble)

    def concluded(self, path: str, plan: QuotaPlan, now: datetime, *, observed: bool = False) -> QuotaEnd:
        """A plan that nothing is ordered for: the process ends with it."""
        process = self.processes[path]
        result: ProcessResult = plan.result
        if observed and plan.victims:
            result = "observed"
        elif process.evicted:
            # Earlier orders of this process did what was possible.
            result = "success" if plan.result == "notNeeded" else "bestEffort"
        trouble = () if process.refused or process.stuck else process.trouble  # the plan names the pods
        return self.finish(path, result, plan.message, now, (*plan.blocked, *trouble))

    def finish(
        self,
        path: str,
        result: ProcessResult,
        message: str,
        now: datetime,
        blocked: Iterable[QuotaObstacle] = (),
    ) -> QuotaEnd:
        """End the process of a queue; return how it has ended."""
        evicted = self.processes.pop(path).evicted
        ended = self.ended[path] = QuotaEnd(
            result=result, at=now, message=message, evicted=evicted, blocked=obstacles_of(blocked)
        )
        self.timers.end(path, now)
        self._forget_settled()
        return ended

    # ----------------------------------------------------------------------------------- reading

    def maximum_for(self, path: str, queue: Queue) -> Amounts:
        """Return the maximum that a process brings its queue down to: its own, or a higher one by now."""
        began_with = self.processes[path].maximum
        return queue.maximum if began_with is None else looser(began_with, queue.maximum)

    def leaving(self) -> set[str]:
        """Return the UIDs that orders in flight remove."""
        return {uid for process in self.processes.values() for uid in process.victims}

    def waits(self) -> dict[str, QuotaWaiting]:
        """Return what processes without an order in flight wait for, by queue."""
        return {
            path: one.waiting
            for path, one in self.processes.items()
            if one.waiting is not None and one.order is None
        }

    def memory(self) -> QuotaMemory:
        """Return what the next planner has to know. O(queues)."""
        enforcing = dict(self.unended)
        for path, process in self.processes.items():
            if process.maximum is not None:
                enforcing[path] = EnforcedQuota(
                    path=path, max=dict(process.maximum), need=written(process.need)
                )
        settled = tuple(
            SettledQuota(
                path=path,
                max=dict(terms.maximum),
                delay_microseconds=terms.delay // timedelta(microseconds=1),
                mode=terms.mode,
            )
            for path, terms in self.timers.settled().items()
        )
        return QuotaMemory(settled, tuple(enforcing[path] for path in sorted(enforcing)))

    def waits_for(self, path: str) -> tuple[str, ...]:
        """Return the queues below a queue for which processes run."""
        return tuple(other for other in self.processes if other.startswith(f"{path}."))

    def _forget_settled(self) -> None:
        for path in self.unended.keys() & self.timers.settled().keys():
            del self.unended[path]

    def _held_below(self, path: str, now: datetime) -> bool:
        """Report whether a process has to wait for those of queues below its own."""
        below = [self.processes[other] for other in self.waits_for(path)]
        patient = now < self.processes[path].began_at + PATIENCE
        return any(patient or one.waiting is not None for one in below)

    def awaited(self) -> Mapping[str, EvictionOrder]:
        """Return the orders in flight, by queue."""
        return {path: one.order for path, one in self.processes.items() if one.order is not None}


def memory_in(told: ControlState | None, cluster_uid: str) -> QuotaMemory:
    """Return what a control state remembers of the quotas of a cluster; of none, or another's, nothing."""
    if told is None or told.cluster_uid != cluster_uid:
        return QuotaMemory()
    return QuotaMemory(told.settled, told.enforcing)


def _waiting(process: RunningQuota, cause: Cause, now: datetime) -> RunningQuota:
    before = process.waiting
    since = before.since if before is not None and before.reason == cause.reason else now
    again = tries_again(cause, process.tried, now)
    return replace(
        process,
        order=None,
        plan_at=again,
        tried=process.tried + 1,
        room=cause.room,
        waiting=QuotaWaiting(reason=cause.reason, message=cause.message, since=since, until=again),
    )


def _called_off(process: RunningQuota, path: str, tree: QueueTree | None) -> str:
    if process.order is not None:
        return ""
    if tree is None:
        return "there is no configuration of queues any more"
    if why := unenforced(tree, path):
        return why
    most = tree.at(path).maximum
    if process.maximum is not None and is_raised(process.maximum, most):
        return f"its max was raised to {texts_of(most)}"
    return ""


def _timer_settings(settled: SettledQuota) -> TimerSettings:
    return TimerSettings(settled.max, timedelta(microseconds=settled.delay_microseconds), settled.mode)


def gone_by(outcome: Outcome | None) -> int:
    """Count the victims that an order removed."""
    if outcome is None:
        return 0
    return sum(victim.leaves for victim in outcome.victims)


def _freed(process: RunningQuota, outcome: Outcome | None) -> Amounts:
    """Return what all pods requested that a process has evicted, once an order of it has ended."""
    freed = Counter(process.freed)
    for victim in outcome.victims if outcome is not None else ():
        if victim.leaves:
            freed.update(process.requests.get(victim.uid, {}))
    return freed


def _left_out(process: RunningQuota, outcome: Outcome | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return `refused` and `stuck` of a process after an order of it."""
    refused, stuck = dict(process.refused), dict(process.stuck)
    for victim in outcome.victims if outcome is not None else ():
        if victim.result not in ("spared", "failed"):
            continue
        why = f"{victim.namespace}/{victim.name}: {victim.message or victim.reason or 'no reason given'}"
        if victim.result == "failed" and victim.reason in MAY_PASS:
            stuck[victim.uid] = why
        else:
            refused[victim.uid] = why
    return refused, {uid: why for uid, why in stuck.items() if uid not in refused}


def _trouble(outcome: Outcome | None) -> QuotaObstacle:
    if outcome is None:
        return QuotaObstacle("no-outcome", "no evictor carried the order out in time")
    kept = sum(victim.result in ("spared", "failed", "notAttempted") for victim in outcome.victims)
    text = f"the order was {outcome.result} ({outcome.reason or 'no reason given'}): {kept} pods stay"
    return QuotaObstacle(f"order-{outcome.result}", f"{text}; {outcome.message}" if outcome.message else text)
