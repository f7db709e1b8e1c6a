"""Carrying out one order: read, judge, then delete its victims one careful step at a time.

The order of things: wait for the orders this one counts on; look at what has to want the order, and at all
victims; judge; wait for the caps; try the deletion of those that hang together; then delete. Pods whose
budgets are hard go first, one after another, so that a budget's no costs no other pod its life. One of each
unit follows, the rest of units, all others but the last of each node, and these. The first thing that goes
wrong for good stops everything that has not begun; what of a unit is left then goes after all where some of
it went: a unit goes whole. What differs between orders is a value, the `Terms`.

The look at a victim is its mark where the order carries the facts that the planner judged it by, and the
rules let it go by these here too: the answer is judged again, as any read. Else it is a read, and the mark
comes later.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

from makeway.bus.messages import Outcome, Victim
from makeway.core.k8s.objects import Pod
from makeway.evictor.act.eviction import Eviction
from makeway.evictor.act.looks import Looks
from makeway.evictor.act.progress import VictimProgress
from makeway.evictor.act.reads import Reads
from makeway.evictor.act.unit_work import UnitWork
from makeway.evictor.act.work import Halt, OrderWork
from makeway.evictor.judge import decide, gang
from makeway.evictor.judge.awaited import awaited_state
from makeway.evictor.judge.groups import first_of_units
from makeway.evictor.judge.verdicts import Delete, Exempt, Failed, Gone, Refused, Terminating
from makeway.evictor.limits.caps import Reservation, party_of, refused_by_cap
from makeway.evictor.limits.rates import OverCap
from makeway.evictor.limits.slots import AT_ONCE
from makeway.evictor.retry import PermanentError, TemporaryError
from makeway.runtime.failpoints import failpoint

AWAIT_POLL_SECONDS: Final = 0.1
"""Between the first looks at the outcome of an awaited order that another process may carry out."""

AWAIT_POLL_LIMIT_SECONDS: Final = 2.0
"""The longest such wait, for orders that take long."""

CONFIRMATIONS: Final = 5
"""How often all victims are read anew for a read that is young enough, before the order is given up."""

Pending: TypeAlias = tuple[VictimProgress, Delete | None]
"""A victim that is to go, and how it was judged just now; None where that has to be done anew."""


class Execution:
    """The execution of one order. `run` once; its `OrderWork` tells the end."""

    def __init__(self, work: OrderWork) -> None:
        self._work = work
        self._parts = work.parts
        self._reads = Reads(work)
        self._units = UnitWork(work, self._reads)
        self._looks = Looks(work, self._reads, self._units)
        self._eviction = Eviction(work, self._reads, self._looks, self._units, read_all=self._judge_all)
        self._reserved: list[Reservation] = []
        self._over: OverCap | None = None  # what keeps victims that go by themselves
        self._may_mark = work.deliveries == 1

    async def run(self) -> None:
        """Carry the order out as far as it can be. Raises nothing but cancellation."""
        work = self._work
        unsubscribe = self._parts.mode_guard.subscribe(work.reconsider)
        ended = False
        try:
            with contextlib.suppress(Halt):
                await self._carry_out()
            if work.stop is not None and not decide.has_ended_elsewhere(work.stop):
                with contextlib.suppress(Halt):
                    await self._finish_units()
            ended = True
        finally:
            unsubscribe()
            self._settle(ended=ended)
        if work.stop is None and not work.terms.together:
            work.stop = self._left_by_caps() or incomplete(list(work.progress.values()))

    async def _carry_out(self) -> None:
        self._work.may_begin()
        await self._units.read_note()
        if (refused := self._parts.mode_guard.too_large(self._work.order)) is not None:
            self._work.halt(refused)
        await self._wait_for_awaited()
        if not self._work.terms.together:
            await self._work.until_deadline(self._looks.wanted)
            await side_by_side(partial(self._evict_in_line, one) for one in self._work.progress.values())
            return
        pending = await self._judge_all()
        if await self._reserve(pending):
            pending = await self._judge_all()
        pending = await self._rehearse(pending)
        if self._work.terms.barrier:
            pending = await self._confirm()
        else:
            await self._units.are_whole()
        await self._evict_all(pending)

    # ------------------------------------------------------------------------- before the first delete

    async def _wait_for_awaited(self) -> None:
        """Go on when every order that this one counts on has removed what is awaited of it.

        Before it waits, the order is checked by itself, so that one that is not wanted waits for nothing.
        """
        ids = self._work.order.counts_on
        if not ids:
            return
        await self._work.until_deadline(self._looks.wanted)
        self._parts.holds.put(self._work.order, "awaited-orders", self._work.clock.now())
        await self._await_all(ids)
        self._parts.holds.end(self._work.order)

    async def _await_all(self, ids: Sequence[str]) -> None:
        poll = AWAIT_POLL_SECONDS
        with self._parts.records.awaiting.of(ids) as ended:
            while True:
                ended.clear()
                outcomes = await self._work.until_deadline(lambda: self._outcomes(ids))
                state = awaited_state(self._work.order.awaited, outcomes)
                if state is None:
                    return
                if isinstance(state, Failed):
                    self._work.halt(state)
                self._work.check_time(f"still waiting for {', '.join(state.order_ids)}")
                await self._work.clock.idle(poll, ended)
                poll = min(AWAIT_POLL_LIMIT_SECONDS, poll * 1.5)

    async def _outcomes(self, ids: Sequence[str]) -> dict[str, Outcome | None]:
        outcomes = await asyncio.gather(*(self._parts.records.outcome(i) for i in ids))
        return dict(zip(ids, outcomes, strict=True))

    async def _judge_all(self) -> list[Pending]:
        """Read and judge everything, behind a barrier the victims last; return those that go."""
        if self._work.terms.barrier:
            await self._work.until_deadline(partial(self._looks.wanted, anew=True))
            if self._units.is_taken_over:
                victims = self._work.order.victims
                pods = await self._work.until_deadline(partial(self._reads.victims, victims))
                self._units.find_begun(zip(victims, pods, strict=True))
            await self._units.are_whole()
        pods = await self._work.until_deadline(self._look_at_all)
        judged = self._looks.judge_all(pods)
        if not self._work.terms.barrier:
            await self._units.are_whole()
        return [
            (progress, one)
            for progress, one in zip(self._work.progress.values(), judged, strict=True)
            if one is not None
        ]

    async def _look_at_all(self) -> list[Pod | None]:
        """Look at all victims, beside what has to want the order; see the module."""
        work = self._work
        marking = await self._to_mark()
        begun = work.clock.now()
        looks = [asyncio.ensure_future(self._mark_or_read(*one)) for one in marking]
        others = [victim for victim in work.order.victims if victim.uid not in {v.uid for v, _ in marking}]
        wanted = asyncio.ensure_future(self._looks.wanted())
        reading = asyncio.ensure_future(self._reads.victims(others))
        # All that was asked is waited for: no mark may be set after a rollback has looked for it.
        await asyncio.gather(wanted, reading, *looks, return_exceptions=True)
        wanted.result()
        found = {v.uid: one.result() for (v, _), one in zip(marking, looks, strict=True)}
        found |= {victim.uid: pod for victim, pod in zip(others, reading.result(), strict=True)}
        pods = [found[victim.uid] for victim in work.order.victims]
        await self._looks.know(pods)
        self._looks.read_at = begun
        return pods

    async def _to_mark(self) -> list[tuple[Victim, Delete]]:
        """Return the victims whose marks are the first look at them, and how they are judged by their facts.

        Only at first, and where nothing is known that would hold the order with marks on its victims.
        """
        work, may = self._work, self._may_mark
        self._may_mark = False
        facts = [victim for victim in work.order.victims if victim.facts is not None and not victim.unit]
        hard = any(self._parts.mode_guard.has_hard_budgets(one.namespace) for one in work.order.victims)
        if not may or not facts or hard or work.order.preemptor is None:
            return []
        counts = Counter(victim.namespace for victim in work.order.victims)
        if self._parts.caps.would_hold(work.order, counts, work.clock.now()):
            return []
        try:
            work.may_act()
        except TemporaryError:  # too long ago for a mark before the next look
            await self._looks.wanted()
        await self._reads.priority_classes(one.facts.priority_class for one in facts if one.facts)
        judged = ((victim, self._looks.judge_as_written(victim)) for victim in facts)
        return [(victim, one) for victim, one in judged if one is not None]

    async def _mark_or_read(self, victim: Victim, judged: Delete) -> Pod | None:
        """Look at a victim by marking it; where it has changed, or may not be marked, read it."""
        try:
            pod = await self._eviction.mark(victim, judged)
        except (TemporaryError, PermanentError):
            return await self._reads.victim(victim)
        self._work.progress[victim.uid].marked_as_read = True
        return pod

    async def _reserve(self, pending: Sequence[Pending]) -> bool:
        """Wait until the policy's caps let these victims go. Return whether the order had to wait."""
        reserved = await self._parts.caps.reserve(
            self._work.order,
            Counter(progress.victim.namespace for progress, _ in pending),
            self._work.clock,
            self._work.turn.place,
            self._work.may_begin,
            verified=all(judged is not None and judged.bound for _, judged in pending),
            held=self._held_by_cap,
        )
        self._parts.holds.end(self._work.order)
        if isinstance(reserved, OverCap):
            if self._work.terms.together:
                self._work.halt(refused_by_cap(reserved))
            self._over = reserved
            raise Halt  # of this victim alone
        self._reserved.append(reserved)
        return reserved.waited

    def _held_by_cap(self, over: OverCap) -> None:
        until = over.room.at if over.room is not None else None
        self._parts.holds.put(self._work.order, over.cap, self._work.clock.now(), until)

    async def _rehearse(self, pending: list[Pending]) -> list[Pending]:
        """Mark pods that go together and try their deletion without effect; return what is left to delete.

        An admission policy or a budget that says no to one is known so before another one is deleted. What
        refuses stops the order here; a rollback takes the marks away. Afterwards all are judged anew (None).
        """
        self._units.first_marked = True
        every = self._work.terms.trial == "all"
        together = [one for one in pending if every or one[0].victim.unit]
        if len(together) <= 1:
            return pending
        await side_by_side(partial(self._eviction.evict, *one, dry_run=True) for one in together)
        self._work.may_begin()
        for progress, _ in together:
            progress.attempts = 0
        return [(progress, None) for progress, _ in pending if progress.verdict is None]

    async def _confirm(self) -> list[Pending]:
        """Read and judge everything anew, until that took no longer than it may last."""
        reads = 0
        while True:
            pending, reads = await self._judge_all(), reads + 1
            # Read now, it need not be between here and the first deletion.
            await self._work.until_deadline(self._parts.cluster.read_brake)
            took, most = self._looks.age(), self._looks.victims_last
            if took <= most or not pending:
                await failpoint("evictor.barrier-passed", self._work.order.order_id)
                self._eviction.barrier_passed = True
                return pending
            if reads == CONFIRMATIONS:
                seconds, count = took.total_seconds(), len(self._work.progress)
                message = (
                    f"it took {seconds:.1f} s to read {count} victims, at most {most.total_seconds():.0f} s"
                )
                self._work.halt(Failed("reads-too-slow", message))

    # -------------------------------------------------------------------------------------- deletes

    async def _evict_all(self, pending: Sequence[Pending]) -> None:
        judged = {progress.victim.uid: one for progress, one in pending}
        left = [progress.victim for progress, _ in pending]
        self._units.first = first_of_units(left)
        hard = [one for one in left if self._parts.mode_guard.has_hard_budgets(one.namespace)]
        kept = {victim.uid for victim in hard}
        phases = [(number > 0, [one]) for number, one in enumerate(hard)]
        phases += gang.in_phases([victim for victim in left if victim.uid not in kept])
        for later, phase in phases:
            evict = partial(self._eviction.evict, later=later or bool(hard and phase[0].uid not in kept))
            await side_by_side(
                partial(evict, self._work.progress[victim.uid], judged[victim.uid]) for victim in phase
            )

    async def _evict_in_line(self, progress: VictimProgress) -> None:
        """Evict one victim once the policy's caps let it go."""
        with contextlib.suppress(Halt):
            await self._reserve([(progress, None)])
            await self._eviction.evict(progress, None)

    async def _finish_units(self) -> None:
        """Delete what is left of units of which a pod was deleted, though the order makes no room any more.

        Each pod is judged by itself, as ever; one that stays does not keep the others. The order's time, the
        brake and the mode stop it, and an outcome that another evictor has written.
        """
        if not (concerned := self._units.concerned()):
            return
        self._work.finish()
        left = list[VictimProgress]()
        try:
            self._work.may_begin()

            async def read() -> list[Pod | None]:
                pods = list(await asyncio.gather(*(self._reads.victim(one.victim) for one in concerned)))
                await self._looks.know(pods)
                return pods

            left = self._units.left(concerned, await self._work.until_deadline(read))
            if left and not self._reserved:
                await self._reserve([(one, None) for one in left])
            await side_by_side(partial(self._eviction.evict, one, None) for one in left)
        finally:
            self._units.tell(went=bool(left))

    # ------------------------------------------------------------------------------------------ caps

    def _settle(self, *, ended: bool) -> None:
        """Tell the caps what was evicted; where this delivery is not the first, by an earlier one as well.

        `ended`: the order is not given to another delivery, which would count that again.
        """
        work, caps = self._work, self._parts.caps
        sent = [one for one in work.progress.values() if one.delete_sent]
        caps.settle(self._reserved, Counter(one.victim.namespace for one in sent), work.clock.now())
        if ended and (work.deliveries > 1 or self._units.is_taken_over):
            before = [
                one.victim.namespace
                for one in work.progress.values()
                if isinstance(one.verdict, Gone | Terminating) and not one.delete_sent
            ]
            caps.count(Counter(before), work.clock.now(), verified=work.terms.wanted_by != "queue")

    def _left_by_caps(self) -> Refused | None:
        """Return that the caps keep victims that may go later; asked when all that may go now have gone."""
        if self._over is None:
            return None
        work = self._work
        left = Counter(one.victim.namespace for one in work.progress.values() if one.verdict is None)
        wanted = Reservation(party_of(work.order), left, over=self._over)
        return refused_by_cap(self._parts.caps.with_room(wanted, work.clock.now(), together=False))


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


async def side_by_side(acts: Iterable[Callable[[], Awaitable[None]]], at_once: int = AT_ONCE) -> None:
    """Do all of `acts`, so many at the same time, begun in their order."""
    places = asyncio.Semaphore(at_once)

    async def act(one: Callable[[], Awaitable[None]]) -> None:
        async with places:
            await one()

    async with asyncio.TaskGroup() as tasks:
        for one in acts:
            tasks.create_task(act(one))
