"""Evicting one victim of an order: mark it, judge the answer, delete it.

Each delete comes right after a read of its victim, the mark's answer counting as one, and names the version
that was read, or the UID alone (`contest`); and after a read of the brake that is no more than a second old.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Final

import structlog

from makeway.bus import tracing
from makeway.bus.messages import Victim
from makeway.core.k8s.objects import Pod
from makeway.evictor.act import patches
from makeway.evictor.act.calls import ADMISSION_SECONDS, CALL_TIMEOUT_SECONDS
from makeway.evictor.act.looks import Looks
from makeway.evictor.act.progress import VictimProgress
from makeway.evictor.act.reads import Reads
from makeway.evictor.act.unit_work import UnitWork
from makeway.evictor.act.work import Halt, OrderWork
from makeway.evictor.judge.verdicts import (
    Delete,
    Deleted,
    Exempt,
    Failed,
    Gone,
    Refused,
    Terminating,
    VictimVerdict,
)
from makeway.evictor.retry import PermanentError, TemporaryError, reporter, retrying
from makeway.runtime.failpoints import failpoint
from makeway.runtime.shared_reads import LONG_PATIENCE_SECONDS, SharedReads

_RESULTS: Final[dict[type[Deleted | Gone | Terminating | Exempt], str]] = {
    Deleted: "deleted",
    Gone: "gone",
    Terminating: "terminating",
    Exempt: "spared",
}
"""What the log calls a verdict."""

LOST: Final = frozenset({"unavailable", "server-error"})
"""Errors after which a deletion may have been carried out all the same."""

MOMENT: Final = timedelta(seconds=1)
"""How long ago preemptor and node may have been read where the last victim of an order is deleted, which was
marked then; as for the brake."""

_log = structlog.get_logger()


class Eviction:
    """One order's victims, one at a time. `read_all`: reads and judges all victims anew."""

    def __init__(
        self,
        work: OrderWork,
        reads: Reads,
        looks: Looks,
        units: UnitWork,
        *,
        read_all: Callable[[], Awaitable[object]],
    ) -> None:
        self.barrier_passed = False
        """Whether all victims were read within a moment, so that the first may be deleted; see `Terms`."""
        self._work = work
        self._parts = work.parts
        self._cluster = work.parts.cluster
        self._reads = reads
        self._looks = looks
        self._units = units
        self._read_all = read_all
        self._confirmations = SharedReads(self._confirm, LONG_PATIENCE_SECONDS)
        self._message = patches.mark_message(work.order)
        self._begun = False
        self._told = False

    async def evict(
        self,
        progress: VictimProgress,
        judged: Delete | None,
        *,
        later: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Evict one victim, trying again what is temporary; a failure stops the whole execution.

        `judged`: by a read made just now, unless others were deleted in between: `later`. Then, at every
        further attempt, and where it was not read yet (None), it is judged anew; but a victim that was marked
        as it was read is deleted by that version, if the order is wanted still. `dry_run`: all but the
        deletion; a victim that would be deleted has no verdict then.
        """
        victim = progress.victim
        try:
            progress.verdict = await retrying(
                partial(self._attempt, progress, judged, later=later, dry_run=dry_run),
                clock=self._work.clock,
                deadline=self._work.order.not_after,
                on_retry=partial(self._trying_again, progress),
            )
        except PermanentError as error:
            progress.error = error
            self._work.stays(Failed("delete-refused", f"{_name(victim)}: {error}"))
        except TemporaryError as error:
            progress.error = error
            budget = error.reason == "budget"
            self._work.stays(
                Failed(
                    "disruption-budget" if budget else "deadline", f"{_name(victim)}: until notAfter: {error}"
                )
            )
        except Halt:
            pass
        if isinstance(progress.verdict, Exempt):
            self._work.stays(Refused("victim-spared", f"{_name(victim)}: {progress.verdict.message}"))
        if progress.verdict is None:
            return
        self._units.went(progress)
        _log.debug(
            "victim_handled",
            victim=_name(victim),
            victim_uid=victim.uid,
            result=_RESULTS[type(progress.verdict)],
            attempt=progress.attempts,
        )

    async def _attempt(
        self, progress: VictimProgress, judged: Delete | None, *, later: bool, dry_run: bool
    ) -> Deleted | Gone | Terminating | Exempt | None:
        victim = progress.victim
        async with self._work.turn.work():
            self._work.may_begin()
            progress.attempts += 1
            known = progress.meet(judged) if judged is not None and progress.attempts == 1 else None
            verdict: VictimVerdict | None = None if later else known
            if later and known is not None and progress.marked_as_read and self._looks.are_young():
                # Judged by the answer to its mark, which serves where the order is wanted still.
                await self._looks.wanted(lasts=MOMENT)
                verdict = known
            if verdict is None:
                verdict = await self._recheck(victim, known)
                if not dry_run:
                    await self._units.look_through(victim.unit)
            if isinstance(verdict, Delete) and verdict.mark:
                verdict = self._looks.judge(victim, await self.mark(victim, progress.meet(verdict)))
            if not isinstance(verdict, Delete):
                return verdict
            verdict = progress.meet(verdict)
            if dry_run:
                return await self._try_delete(victim, verdict)
            with tracing.span("delete", victim=_name(victim), victim_uid=victim.uid):
                return await self._delete(progress, verdict)

    def _trying_again(self, progress: VictimProgress, error: TemporaryError, attempt: int) -> None:
        """Room that is not made at once is worth telling whoever waits for it."""
        if error.reason == "conflict":
            progress.contest = progress.contest.after_conflict()
        reporter(self._parts.metrics, "evict")(error, attempt)
        self._parts.holds.put(self._work.order, error.reason, self._work.clock.now())
        if not self._told:
            self._told = True
            self._parts.events.making_room(self._work.order)

    async def _recheck(self, victim: Victim, judged: Delete | None) -> VictimVerdict:
        """Re-check everything: the world has had time to change.

        A victim that was `judged` and is to be marked need not be read a second time: it is marked meanwhile,
        and the answer is judged again. All that was asked is waited for, so that no mark is set after a
        rollback has looked for it. Before the first deletion all victims are read anew where that is due.
        """
        if self._is_barrier_old():
            await self._confirmations(self._work.order.order_id)
        if judged is not None and judged.mark:
            reading = asyncio.ensure_future(self.mark(victim, judged))
        else:
            reading = asyncio.ensure_future(self._reads.victim(victim))
        wanting = asyncio.ensure_future(self._looks.wanted())
        classes = asyncio.ensure_future(self._reads.priority_classes())
        await asyncio.gather(wanting, reading, classes, return_exceptions=True)
        wanting.result()
        pod, _ = reading.result(), classes.result()
        return self._looks.judge(victim, pod)

    async def mark(self, victim: Victim, judged: Delete) -> Pod | None:
        """Mark the victim as it was judged; return the pod as it is then, which counts as a read."""
        await failpoint("evictor.before-mark", self._work.order.order_id)
        await self._cluster.read_brake()
        self._work.may_act()
        now = self._work.clock.now()
        with self._patience(victim) as seconds:
            marked = await self._cluster.mark(
                victim, judged.resource_version, self._message, now, timeout_seconds=seconds
            )
        if marked is not None:
            self._units.marked(victim, marked, now)
        await failpoint("evictor.after-mark", self._work.order.order_id)
        return marked

    async def _try_delete(self, victim: Victim, judged: Delete) -> Gone | None:
        """Try the deletion of a victim as it was judged last, without effect; None where it would go."""
        await failpoint("evictor.before-dry-run", self._work.order.order_id)
        await self._cluster.read_brake()
        self._work.may_act()
        hard = self._parts.mode_guard.has_hard_budgets(victim.namespace)
        with self._patience(victim) as seconds:
            found = await self._cluster.dry_run(
                victim, judged.resource_version, eviction=hard, timeout_seconds=seconds
            )
        return None if found else Gone("not-found")

    async def _delete(self, progress: VictimProgress, judged: Delete) -> Deleted | Gone:
        """Delete the victim as it was judged last; through the eviction API where budgets are hard."""
        victim = progress.victim
        await failpoint("evictor.before-delete", self._work.order.order_id)
        if victim.unit:
            await self._units.note()
        await self._cluster.read_brake()
        self._may_delete(victim)
        progress.delete_sent = True
        deleted: Deleted | None
        version = judged.resource_version
        try:
            with self._patience(victim) as seconds:
                if self._parts.mode_guard.has_hard_budgets(victim.namespace):
                    evicted = await self._cluster.evict(victim, version, timeout_seconds=seconds)
                    deleted = Deleted(judged.grace_period_seconds) if evicted else None
                else:
                    deleted = await self._cluster.delete(victim, version, timeout_seconds=seconds)
        except TemporaryError as error:
            progress.answer_lost = progress.answer_lost or error.reason in LOST
            raise
        await failpoint("evictor.after-delete", self._work.order.order_id)
        if deleted is None:
            return Gone("not-found")
        progress.deleted_at = self._work.clock.now()
        self._units.went(progress)
        self._parts.events.preempted(self._work.order, victim)
        return deleted

    @contextlib.contextmanager
    def _patience(self, victim: Victim) -> Iterator[float]:
        """Return how long a write may take: longer where the last one was not answered in time.

        It is over with the order's time, but for what any write is given.
        """
        progress, seconds = self._work.progress[victim.uid], CALL_TIMEOUT_SECONDS
        if progress.unanswered:
            left = (self._work.order.not_after - self._work.clock.now()).total_seconds()
            seconds = max(seconds, min(ADMISSION_SECONDS, left))
        try:
            yield seconds
        except TemporaryError as error:
            progress.unanswered = progress.unanswered or error.reason == "unavailable"
            raise

    def _may_delete(self, victim: Victim) -> None:
        """Called right before a deletion, as `OrderWork.may_act`."""
        self._work.may_act()
        if not self._units.are_looked_through(victim.unit):
            raise TemporaryError("stale", f"the pods of {victim.unit} were read too long ago")
        if self._is_barrier_old():
            raise TemporaryError("stale", "the victims were read too long ago for the first to be deleted")

    def _is_barrier_old(self) -> bool:
        """Report whether all victims have to be read anew before the first is deleted.

        O(victims) until one was.
        """
        work = self._work
        if not work.terms.barrier or work.is_finishing or not self.barrier_passed:
            return False
        self._begun = self._begun or any(one.went for one in work.progress.values())
        return not self._begun and self._looks.age() > self._looks.victims_last

    async def _confirm(self, _: str) -> None:
        await self._read_all()


def _name(victim: Victim) -> str:
    return f"{victim.namespace}/{victim.name}"
