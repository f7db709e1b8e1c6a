"""Undoing what an order that makes no room has left in the API: its nominations, and its marks.

It goes on until it is done, by whatever evictor is alive: the outcome is written after it, so an
order whose evictor died is delivered again. A refusal for good (an admission policy, missing
rights) is tried again too, since it may be repaired, but not for ever: after `PATIENCE` the
outcome is written without it, so that no preemptor and no evictor waits for a policy to change. The same
holds, after `LONGEST`, for what might pass and does not, such as a dead webhook's 500. What is left of the
order then is repaired later: marks by proposals of the planner, which begin once the order has its outcome;
the nomination by its scheduler, which writes another at the pod's next try.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TypeVar

import structlog

from makeway.bus.messages import Placement, Rollback, Victim
from makeway.core.k8s.disruption import preemption_mark
from makeway.evictor.act import patches
from makeway.evictor.act.work import OrderWork
from makeway.evictor.judge import decide
from makeway.evictor.judge.verdicts import Gone, Terminating
from makeway.evictor.limits.slots import AT_ONCE
from makeway.evictor.retry import (
    ROLLBACK_MAX_DELAY_SECONDS,
    PermanentError,
    TemporaryError,
    reporter,
    retrying,
)
from makeway.runtime.failpoints import failpoint
from makeway.runtime.shared_reads import SharedReads

PATIENCE = timedelta(seconds=30)
"""How long permanent refusals of a rollback are tried again."""

LONGEST = timedelta(minutes=5)
"""How long temporary failures of a rollback are tried again: longer than an API server takes to restart."""

REFUSED_PAUSE_SECONDS = 5.0
"""Between two attempts that were refused for good."""

_log = structlog.get_logger()

T = TypeVar("T")


@dataclass
class RollbackReport:
    """What a rollback did and saw.

    `leaving`: victims that turned out to be gone or terminating. `refused`: what could not be undone.
    """

    nomination_reverted: bool = False
    nominations_reverted: list[str] = field(default_factory=list)
    conditions_cleared: list[str] = field(default_factory=list)
    leaving: dict[str, Gone | Terminating] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def as_message(self) -> Rollback:
        """The outcome's part."""
        return Rollback(
            nomination_reverted=self.nomination_reverted,
            conditions_cleared=tuple(sorted(self.conditions_cleared)),
            nominations_reverted=tuple(sorted(self.nominations_reverted)),
        )


class RollbackRun:
    """One order's rollback. `run` once; cancelled, it can be begun again by another evictor."""

    def __init__(self, work: OrderWork) -> None:
        self._order = work.order
        self._cluster = work.parts.cluster
        self._records = work.parts.records
        self._turn = turn = work.turn
        self._metrics = work.parts.metrics
        self._undone = RollbackReport()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._relied_on = SharedReads(self._read_relied_on)
        self._patience = turn.now() + PATIENCE
        self._longest = turn.now() + LONGEST

    async def run(self, undecided: Iterable[Victim]) -> RollbackReport:
        """Undo what stands of the order, and learn what became of the `undecided` victims.

        What another order or scheduler relies on by now is left alone: see `_relied_on`.
        """
        begun = self._turn.now()
        await failpoint("evictor.before-rollback")
        work = [
            self._durably(f"mark of {v.namespace}/{v.name}", partial(self._clear_mark, v)) for v in undecided
        ]
        for one in self._order.placements:
            what = "nomination" if self._order.preemptor else f"nomination of {one.namespace}/{one.name}"
            work.append(self._durably(what, partial(self._revert, one)))
        await asyncio.gather(*work)
        self._report((self._turn.now() - begun).total_seconds())
        return self._undone

    async def _read_relied_on(self, order_id: str) -> frozenset[str] | None:
        """The victims whose marks are relied on elsewhere; None where the nomination is not either.

        Those are all where the order has its outcome, by another evictor that took it for lost; and where the
        same preemptor or queue has a later order, those that it names too. Asked after the pod was read that
        is to be patched: what comes later changes the pod first, and the patch is refused.
        """
        if await self._records.outcome(order_id) is not None:
            return frozenset(v.uid for v in self._order.victims)
        try:
            last = await self._records.last_order(self._order)
        except PermanentError:
            # This order was understood, so one that is not understood is another.
            return frozenset()
        if last is None or last.order_id == order_id:
            return None
        return frozenset(v.uid for v in last.victims)

    async def _revert(self, waiting: Placement) -> None:
        """Take the nomination of the preemptor, or of a member of the group, back if it is this order's."""
        pod = await self._cluster.get_pod(waiting.namespace, waiting.name)
        if not decide.is_nominated(pod, waiting.uid, waiting.node):
            return
        if await self._relied_on(self._order.order_id) is None:
            await failpoint("evictor.before-revert", self._order.order_id)
            await self._cluster.clear_nomination(pod)
            await failpoint("evictor.after-revert", self._order.order_id)
            if self._order.preemptor is None:
                self._undone.nominations_reverted.append(waiting.uid)
            else:
                self._undone.nomination_reverted = True

    async def _clear_mark(self, victim: Victim) -> None:
        """Take the mark off a victim that stays, if it is this order's."""
        pod = decide.staying(victim, await self._cluster.get_pod(victim.namespace, victim.name))
        if isinstance(pod, Gone | Terminating):
            self._undone.leaving[victim.uid] = pod
            return
        if preemption_mark(pod) != patches.mark_message(self._order):
            return  # another actor's (the eviction API, the taint manager) is left alone in both directions
        if victim.uid not in (await self._relied_on(self._order.order_id) or ()):
            await failpoint("evictor.before-unmark", self._order.order_id)
            await self._cluster.clear_mark(pod)
            await failpoint("evictor.after-unmark", self._order.order_id)
            self._undone.conditions_cleared.append(victim.uid)

    async def _durably(self, what: str, act: Callable[[], Awaitable[T]]) -> T | None:
        """Do it until it is done; None where it was still refused when the patience ended."""

        async def attempt() -> T:
            async with self._places, self._turn.work():
                return await act()

        while True:
            try:
                return await retrying(
                    attempt,
                    clock=self._turn,
                    deadline=self._longest,
                    on_retry=reporter(self._metrics, "rollback"),
                    longest_delay_seconds=ROLLBACK_MAX_DELAY_SECONDS,
                )
            except TemporaryError as error:
                _log.error("rollback_given_up", operation=what, reason=error.reason, error=str(error))
                self._undone.refused.append(what)
                return None
            except PermanentError as error:
                _log.error("rollback_refused", operation=what, reason=error.reason, error=str(error))
                if self._turn.now() >= self._patience:
                    self._undone.refused.append(what)
                    return None
                self._metrics.retries.labels(operation="rollback", reason="refused").inc()
                await self._turn.sleep(REFUSED_PAUSE_SECONDS)

    def _report(self, seconds: float) -> None:
        undone = self._undone
        labels = {"operation": "rollback", "result": "refused" if undone.refused else "succeeded"}
        self._metrics.executions.labels(**labels).inc()
        self._metrics.execution_seconds.labels(**labels).observe(seconds)
        nominations = int(undone.nomination_reverted) + len(undone.nominations_reverted)
        self._metrics.rollbacks.labels(object="nomination").inc(nominations)
        self._metrics.rollbacks.labels(object="mark").inc(len(undone.conditions_cleared))
        _log.info(
            "rolled_back",
            nomination_reverted=undone.nomination_reverted,
            nominations_reverted=len(undone.nominations_reverted),
            conditions_cleared=len(undone.conditions_cleared),
            refused=undone.refused,
        )
