"""The quota processes of all queues: what each is about to do, and what came of the last. Pure state.

A process begins when a queue's timer has fired, and ends with a result. In between it orders evictions
and waits for their outcome; where some victims stayed, or were too many for one order, it plans again.
It is never interrupted: changes of its queue count when it has ended, but for a maximum that was raised
meanwhile, down to which no pod has to go any more.

A process plans only when no process runs for a queue below its own: what those evict counts for the queue
above as well. A pod that could not be evicted is left out for the rest of the process, so that the next plan
takes another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from makeway.bus.messages import MAY_PASS, EvictionOrder, Outcome, SettledQuota
from makeway.core.policy.mode import Mode
from makeway.core.queues.amounts import Amounts, looser
from makeway.core.queues.quota import QuotaObstacle, QuotaPlan
from makeway.core.queues.timers import Timer, Timers, TimerSettings
from makeway.core.queues.tree import Queue, QueueTree

MOST_FRUITLESS: Final = 3
"""Orders in a row that evict no pod and leave none out that was not left out before, after which a process
ends: evictors refuse the orders, or none runs."""

MOST_IDLE: Final = 100
"""Orders in a row that evict no pod, whatever is learned from them, after which a process ends."""

PATIENCE: Final = timedelta(minutes=15)
"""How long a process waits for those of queues below its own. They are bounded, but not where their orders
cannot be read or written."""

RETRY: Final = timedelta(seconds=2)
"""Before a process plans again whose order did not do what it should; doubled with every further one."""

Result: TypeAlias = Literal["notNeeded", "success", "bestEffort", "unsuccessful", "observed"]


@dataclass(frozen=True, slots=True)
class EndedQuota:
    """How the last process of a queue ended. `evicted`: pods that its orders removed."""

    result: Result
    at: datetime
    message: str
    evicted: int = 0
    blocked: tuple[QuotaObstacle, ...] = ()


@dataclass(frozen=True, slots=True)
class RunningQuota:
    """A process that runs.

    `maximum`: what it began with; None where another planner began it. `order`: the one in flight.
    `whole`: that order has all victims of its plan. `plan`: the last. `plan_at`: when it plans next.
    `refused`: why each pod could not be evicted that would be refused again, by UID; `stuck`: the same of
    those whose eviction failed for a reason that may pass. `fruitless`, `idle`: orders in a row, counted as
    `MOST_FRUITLESS` and `MOST_IDLE` say.
    """

    began_at: datetime
    maximum: Amounts | None
    plan_at: datetime | None = None
    order: EvictionOrder | None = None
    whole: bool = True
    plan: QuotaPlan | None = None
    orders: int = 0
    evicted: int = 0
    fruitless: int = 0
    idle: int = 0
    trouble: tuple[QuotaObstacle, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    stuck: Mapping[str, str] = field(default_factory=dict)

    @property
    def victims(self) -> frozenset[str]:
        """UIDs that the order in flight removes."""
        return (
            frozenset(victim.uid for victim in self.order.victims) if self.order is not None else frozenset()
        )


@dataclass
class QuotaProcesses:
    """All queues of one leading planner. Of the planner before it knows what was settled, and live orders."""

    timers: Timers = field(default_factory=Timers)
    processes: dict[str, RunningQuota] = field(default_factory=dict)
    ended: dict[str, EndedQuota] = field(default_factory=dict)

    @classmethod
    def remembering(cls, settled: Iterable[SettledQuota]) -> QuotaProcesses:
        """Return the control of a planner that begins to lead, with what the one before has settled."""
        return cls(Timers({one.path: _timer_settings(one) for one in settled}))

    # ------------------------------------------------------------------------------------ events

    def saved(self, tree: QueueTree | None, mode: Mode, now: datetime) -> None:
        """A configuration, or a mode, has come into force."""
        self.timers.saved(tree, now, mode)

    def resume(self, orders: Iterable[EvictionOrder], now: datetime) -> None:
        """Go on with the processes whose orders are live: another planner has begun them."""
        for order in orders:
            self.timers.begin(order.queue, resumed=True)
            self.processes[order.queue] = RunningQuota(
                began_at=order.created_at, maximum=None, order=order, orders=1
            )

    def due(self, tree: QueueTree | None, now: datetime) -> list[str]:
        """Return the queues to plan for now, in order, and begin the processes of those that have fired.

        A queue below which processes run is not among them before these have ended.
        """
        if tree is None:
            return []
        for path in self.timers.fired(tree, now):
            self.timers.begin(path)
            self.processes[path] = RunningQuota(began_at=now, maximum=tree.at(path).maximum, plan_at=now)
        return [
            path
            for path, process in self.processes.items()
            if process.plan_at is not None
            and process.plan_at <= now
            and not (self.waits_for(path) and now < process.began_at + PATIENCE)
        ]

    def planned(self, path: str, plan: QuotaPlan, now: datetime) -> None:
        """Take note of a plan that an order is being made of."""
        self.processes[path] = replace(self.processes[path], plan=plan, plan_at=now)

    def ordered(self, path: str, order: EvictionOrder, *, whole: bool) -> None:
        """An order is in its stream."""
        process = self.processes[path]
        self.processes[path] = replace(
            process, order=order, whole=whole, plan_at=None, orders=process.orders + 1
        )

    def wait(self, path: str, now: datetime) -> None:
        """Plan again in a while: the order could not be committed."""
        self.processes[path] = replace(self.processes[path], order=None, plan_at=now + RETRY)

    def outcome(self, path: str, outcome: Outcome | None, now: datetime) -> None:
        """The order in flight has ended, or is over without an outcome: plan again, or be done."""
        process = self.processes[path]
        gone = _gone(outcome)
        everybody = outcome is not None and outcome.result == "succeeded"
        evicted = process.evicted + gone
        if process.maximum is None:
            # What the planner before was about is not known. The timer starts again and sees to the rest.
            message = (
                f"{path}: the order of the planner before removed {evicted} of {len(process.victims)} pods"
            )
            blocked = () if everybody else (_trouble(outcome),)
            self.finish(
                path,
                EndedQuota("success" if everybody else "bestEffort", now, message, evicted, blocked),
                now,
            )
            return
        refused, stuck = _left_out(process, outcome)
        learned = len(refused) + len(stuck) > len(process.refused) + len(process.stuck)
        fruitless = 0 if gone or learned else process.fruitless + 1
        idle = 0 if gone else process.idle + 1
        trouble = () if everybody else (_trouble(outcome),)
        pause = timedelta(0) if everybody else RETRY * 2 ** min(fruitless, 4)
        process = replace(
            process,
            order=None,
            evicted=evicted,
            fruitless=fruitless,
            idle=idle,
            trouble=trouble,
            refused=refused,
            stuck=stuck,
            plan_at=now + pause,
        )
        self.processes[path] = process
        plan = process.plan
        if everybody and process.whole and plan is not None:
            result: Result = "success" if plan.result == "success" else "bestEffort"
            self.finish(path, EndedQuota(result, now, plan.message, evicted, plan.blocked), now)
        elif fruitless >= MOST_FRUITLESS or idle >= MOST_IDLE:
            message = f"{path}: {trouble[0].message}" if trouble else f"{path}: nobody could be evicted"
            result = "bestEffort" if evicted else "unsuccessful"
            self.finish(path, EndedQuota(result, now, message, evicted, trouble), now)

    def concluded(self, path: str, plan: QuotaPlan, now: datetime, *, observed: bool = False) -> EndedQuota:
        """A plan that nothing is ordered for: the process ends with it."""
        process = self.processes[path]
        result: Result = plan.result
        if observed and plan.victims:
            result = "observed"
        elif process.evicted:
            # Earlier orders of this process did what was possible.
            result = "success" if plan.result == "notNeeded" else "bestEffort"
        trouble = () if process.refused or process.stuck else process.trouble  # the plan names the pods
        ended = EndedQuota(result, now, plan.message, process.evicted, (*plan.blocked, *trouble))
        self.finish(path, ended, now)
        return ended

    def finish(self, path: str, ended: EndedQuota, now: datetime) -> None:
        """The process of a queue has ended."""
        del self.processes[path]
        self.timers.end(path, now)
        self.ended[path] = ended

    # ----------------------------------------------------------------------------------- reading

    def maximum_for(self, path: str, queue: Queue) -> Amounts:
        """Return the maximum that a process brings its queue down to: its own, or a higher one by now."""
        began_with = self.processes[path].maximum
        return queue.maximum if began_with is None else looser(began_with, queue.maximum)

    def leaving(self) -> set[str]:
        """Return the UIDs that orders in flight remove."""
        return {uid for process in self.processes.values() for uid in process.victims}

    def left_out(self, path: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return `refused` and `stuck` of a queue's process."""
        process = self.processes[path]
        return process.refused, process.stuck

    def settled(self) -> tuple[SettledQuota, ...]:
        """Return what the next planner has to know so that it does not enforce again what is settled."""
        return tuple(
            SettledQuota(
                path=path,
                max=dict(terms.maximum),
                delay_microseconds=terms.delay // timedelta(microseconds=1),
                mode=terms.mode,
            )
            for path, terms in self.timers.settled().items()
        )

    def running(self, path: str) -> frozenset[str]:
        """Return the queues that other processes run for."""
        return frozenset(self.processes) - {path}

    def waits_for(self, path: str) -> tuple[str, ...]:
        """Return the queues below a queue for which processes run."""
        return tuple(other for other in self.processes if other.startswith(f"{path}."))

    def timer(self, path: str) -> Timer | None:
        """Return a queue's timer, where one runs."""
        return self.timers.timer(path)

    def awaited(self) -> Mapping[str, EvictionOrder]:
        """Return the orders in flight, by queue."""
        return {path: one.order for path, one in self.processes.items() if one.order is not None}


def _timer_settings(settled: SettledQuota) -> TimerSettings:
    return TimerSettings(settled.max, timedelta(microseconds=settled.delay_microseconds), settled.mode)


def _gone(outcome: Outcome | None) -> int:
    """Count the victims that an order removed."""
    if outcome is None:
        return 0
    return sum(victim.result in ("deleted", "terminating", "gone") for victim in outcome.victims)


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
