"""Carrying out a quota order: its victims are independent of one another.

An order for a preemptor makes room on one node, and is worth nothing unless all of its victims go. A quota
order takes pods out of a queue, on any nodes: each that goes brings the queue nearer to its maximum, and
one that may not go (it is protected by now, or an admission policy refuses) is no reason to keep the
others. So every victim is judged and evicted by itself, some at a time. What stops all of them is what the
whole order stands on: its time, its fence, the mode, and that the queue's quota is enforced at all, by the
queues as this evictor has read them. The outcome says of each what became of it; the planner plans anew for
what is left.

Pods of groups that go whole are in orders of their own, which are carried out as those for a preemptor are:
all of them are read, marked and tried before the first delete, and one that may not go refuses the order.
Such a group may have pods in other queues; it is enough that one of them is in the order's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NoReturn

import structlog

from makeway.bus.messages import EvictionOrder, Victim
from makeway.core.k8s.objects import Pod
from makeway.core.policy.rules import PreemptorFacts
from makeway.core.queues.quota_exemption import QuotaExemption
from makeway.core.queues.quota_order import NOT_IN_QUEUE, NOT_LIMITED
from makeway.evictor.act.execution import Execution, Halt, side_by_side
from makeway.evictor.act.progress import VictimProgress
from makeway.evictor.judge import decide
from makeway.evictor.judge.verdicts import Exempt, Failed, Proceed, Refused, Stop, VictimVerdict
from makeway.evictor.limits.caps import party_of, refused_by_cap
from makeway.evictor.limits.queue_guard import QueueGuard
from makeway.evictor.limits.rates import OverCap
from makeway.evictor.retry import TemporaryError

_NOBODY: Final = PreemptorFacts(0)
"""A quota order has no preemptor."""

_log = structlog.get_logger()


class QuotaExecution(Execution):
    """One quota order under way; used as an `Execution`, which has the other `parts`."""

    def __init__(self, order: EvictionOrder, *, queue_guard: QueueGuard, **parts: Any) -> None:
        super().__init__(order, **parts)
        self._queue_guard = queue_guard
        self._over: OverCap | None = None
        self._units_in_queue = frozenset[str]()

    async def run(self) -> None:
        """Carry the order out as far as it can be. Raises nothing but cancellation."""
        await super().run()
        if self.stop is None:
            self.stop = self._left_by_caps() or incomplete(list(self.progress.values()))

    async def _carry_out(self) -> None:
        if self._has_units:
            await super()._carry_out()
            return
        wanted = await self._until_deadline(self._still_wanted)
        if not isinstance(wanted, Proceed):
            self._halt(wanted)
        await side_by_side(partial(self._evict_in_line, progress) for progress in self.progress.values())

    async def _evict_in_line(self, progress: VictimProgress) -> None:
        """Evict one victim once the policy's caps let it go."""
        with contextlib.suppress(Halt):
            await self._reserve([(progress, None)])
            await self._evict(progress, None)

    def _over_cap(self, over: OverCap) -> NoReturn:
        """One victim may not go now, by the caps; those that may, go on. Groups that go whole, all stop."""
        if self._has_units:
            super()._over_cap(over)
        self._over = over
        raise Halt

    def _left_by_caps(self) -> Refused | None:
        """Return that the caps keep victims that may go later; asked when all that may go now have gone."""
        if self._over is None:
            return None
        left = Counter(one.victim.namespace for one in self.progress.values() if one.verdict is None)
        now = self._clock.now()
        party = party_of(self.order)
        return refused_by_cap(self._caps.with_room(self._over, party, left, now, together=False))

    async def _still_wanted(self) -> Proceed | Stop:
        """The order against the queues and its fence; the brake is read beside it."""
        epoch, _ = await asyncio.gather(self._epoch(), self._cluster.read_brake())
        stop = decide.fenced(self.order, stored_at=self._stored_at, epoch=epoch, now=self._clock.now())
        if stop is not None:
            return stop
        if (refused := self._queue_guard.refusal_of(self.order)) is not None:
            _log.warning("quota_order_refused", reason=refused.reason, message=refused.message)
            return refused
        if stale := self._queue_guard.stale():
            raise TemporaryError("unavailable", f"the queues cannot be read: {stale}")
        return Proceed(_NOBODY)

    async def _read_classes_of(self, pods: Iterable[Pod | None]) -> None:
        """Note which groups have a pod in the queue. No class exempts from that, so none is read."""
        unit_of = {victim.uid: victim.unit for victim in self.order.victims if victim.unit}
        self._units_in_queue |= {
            unit_of[pod.metadata.uid]
            for pod in pods
            if pod is not None
            and pod.metadata.uid in unit_of
            and self._queue_guard.bar_of(self.order, pod) is None
        }

    def _judge(self, victim: Victim, pod: Pod | None) -> VictimVerdict:
        return decide.judge_for_quota(
            victim,
            pod,
            self._mode_guard.policy.protection,
            partial(self._bar_of, victim.unit),
            self._daemonsets,
            group=self._membership(victim, pod),
        )

    def _bar_of(self, unit: str, pod: Pod) -> QuotaExemption | None:
        """What in the queues keeps a pod; none of a group that has begun or has a pod in the queue."""
        found = self._queue_guard.bar_of(self.order, pod)
        goes_with_others = unit in self._units_in_queue or unit in self._units.begun
        if found is not None and goes_with_others and found.rule in (NOT_IN_QUEUE, NOT_LIMITED):
            return None
        return found

    def _stays(self, stop: Failed | Refused) -> None:
        """One that stays keeps no others, unless the order is of groups that go whole; `progress` has it."""
        if self._has_units:
            super()._stays(stop)


def incomplete(progress: list[VictimProgress]) -> Failed | Refused | None:
    """Return that some victims stay; None where none does."""
    exempt = [one for one in progress if isinstance(one.verdict, Exempt)]
    stay = [one for one in progress if one.may_stay]
    if not stay:
        return None
    first = stay[0]
    reason = (
        first.verdict.message if isinstance(first.verdict, Exempt) else str(first.error or "not attempted")
    )
    message = (
        f"{len(stay)} of {len(progress)} victims stay: {first.victim.namespace}/{first.victim.name}: {reason}"
    )
    if len(exempt) == len(progress):
        return Refused("victim-spared", message)
    return Failed("incomplete", message)
