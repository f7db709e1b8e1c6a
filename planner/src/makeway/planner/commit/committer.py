"""Answering commits: each is judged on receipt and again right before its order is stored.

A commit counts as a live order from its receipt. It waits until the planner's own watch shows the nomination,
no later than its `store_by`. What is stored is the answer, a void too; so a commit that is asked twice, or
of two planners, has one answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from msgspec import structs

from makeway.bus import codec
from makeway.bus.commit import LATE, SUPERSEDED, CommitReply, CommitRequest, Offer
from makeway.bus.errors import BusError, BusUnavailable, Malformed
from makeway.bus.ids import moment_in
from makeway.bus.messages import API_VERSION, EvictionOrder, Void
from makeway.bus.orders import NOT_ACKNOWLEDGED, TAKEN_BY_NO_STREAM, OrderWriter, voided
from makeway.bus.signing.signatures import Signatures
from makeway.bus.subjects import Subjects
from makeway.planner.commit.judge import Accepted, draft, refused_by_itself
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger
from makeway.planner.snapshot.records import PodRecord
from makeway.runtime.failpoints import failpoint
from makeway.runtime.process import until_set

STORED_WITHIN: Final = timedelta(seconds=5)
"""How long an order may take to be stored again."""

LOOKS_AGAIN_SECONDS: Final = 0.25
"""How long a commit waits for a change of its pod's nomination before it is judged again all the same."""

PAUSE_A_MEMBER_SECONDS: Final = 5e-5
"""Between two looks at a group, for each further member: several times what a look takes."""

OVERDUE: Final = timedelta(seconds=2)
"""How long after its `store_by` a commit goes on until it counts as not stored: its bridge waits so long."""

_log = structlog.get_logger()


Judge = Callable[[CommitRequest, Offer, datetime, Accepted | None], Accepted | Void]
"""Judges a commit by what the planner sees at this moment, knowing the verdict so far."""


@dataclass(eq=False, kw_only=True)
class Committer:
    """One planner's. `changed` is to be called when a pod's nomination has changed.

    `unsynced()`: why nothing can be judged yet. `pod(uid)`: as the snapshot has it. `now()`: the time, UTC.
    `waited(sender, order_id)`: for how many seconds a commit has waited; None where that is not known.
    `leading`: set by the process, and no longer after `stop`.
    """

    cluster_uid: str
    identity: str
    subjects: Subjects
    signatures: Signatures
    unsynced: Callable[[], str]
    pod: Callable[[str], PodRecord | None]
    judge: Judge
    ledger: Ledger
    writer: OrderWriter
    metrics: PlannerMetrics
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    waited: Callable[[str, str], float | None] = lambda sender, order_id: None
    leading: bool = False

    def __post_init__(self) -> None:
        self._wakes: dict[str, asyncio.Event] = {}
        self._under_way: dict[str, asyncio.Task[CommitReply]] = {}
        self._restoring: set[asyncio.Task[None]] = set()

    def changed(self, uid: str) -> None:
        """Have the commit for a pod judged again, where one waits."""
        if (waiting := self._wakes.get(uid)) is not None:
            waiting.set()

    async def handle(self, data: bytes, sender: str = "") -> bytes:
        """Answer one commit, whoever sent it; asked again meanwhile, both have one answer.

        Raises:
            BusError: the request is not understood, or nothing can be stored; then there is no answer.
        """
        commit = codec.decode(CommitRequest, data)
        task = self._under_way.get(commit.order_id)
        if task is None:
            task = asyncio.create_task(self._commit(commit, sender), name="commit")
            self._under_way[commit.order_id] = task
            task.add_done_callback(lambda _: self._under_way.pop(commit.order_id, None))
        return codec.encode(await asyncio.shield(task))

    def restore(self, lost: list[EvictionOrder]) -> None:
        """Have live orders stored again that a stream which was made anew has lost; only while this leads.

        Each has its id and its time still, so it is carried out once. Orders of other writers are theirs.
        """
        if not self.leading:
            return
        now = self.now()
        for order in lost:
            if order.store_by is not None and now < order.not_after:
                task = asyncio.create_task(self._restore(order), name="restore")
                self._restoring.add(task)
                task.add_done_callback(self._restoring.discard)

    async def _restore(self, order: EvictionOrder) -> None:
        again = structs.replace(order, store_by=self.now() + STORED_WITHIN)
        try:
            stored = await self.writer.store(again, 0)
        except BusError as error:
            _log.warning("order_not_stored_again", order_id=order.order_id, reason=str(error))
        else:
            _log.warning("order_stored_again", order_id=order.order_id, stored=stored == again)

    async def stop(self) -> None:
        """End what is under way, as it is: the lead is lost, and another planner answers."""
        self.leading = False
        tasks = (*self._under_way.values(), *self._restoring)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _by_own_clock(self, commit: CommitRequest, sender: str) -> CommitRequest:
        """Return a commit with its `store_by` by this clock; its bridge's may be off by anything."""
        waited, made = self.waited(sender, commit.order_id), moment_in(commit.order_id)
        if waited is None or made is None:
            return commit
        return structs.replace(
            commit, store_by=self.now() + (commit.store_by - made) - timedelta(seconds=waited)
        )

    async def _commit(self, asked: CommitRequest, sender: str) -> CommitReply:
        now, commit = self.now(), self._by_own_clock(asked, sender)
        offer = self._offer(commit, now)
        subject = self.subjects.order(draft(commit, "", None, now))
        if isinstance(offer, Void):
            # A planner before this one may have read the offer, or had another clock, and stored the order.
            first = await self.writer.first(subject, commit.after)
            return self._void(commit, offer) if first is None else self._answered(commit, first)
        # What becomes of an order is known once the stream answers, however long that takes.
        late = max(commit.store_by - now, timedelta()) + OVERDUE
        unstored = functools.cache(lambda: self.ledger.unstored(commit.order_id, self.now()))  # once
        overdue = asyncio.get_running_loop().call_later(late.total_seconds(), unstored)
        try:
            verdict = self._judged(commit, offer, None)
            await failpoint("planner.commit-received")
            with contextlib.suppress(BusUnavailable):
                if (first := await self.writer.first(subject, commit.after)) is not None:
                    return self._answered(commit, first)
            while waits_for := self._waits_for(verdict := self._judged(commit, offer, verdict), commit):
                left = (commit.store_by - self.now()).total_seconds()
                if left <= 0 and isinstance(verdict, Accepted):
                    over = " (over when the commit came: clocks differ, or NATS was slow)"
                    why = over if commit.store_by <= now else ""
                    verdict = Void(reason=LATE, message=f"not seen in time{why}: {waits_for}")
                if left <= 0:
                    break
                await self._change_of(commit, left)
            if isinstance(verdict, Accepted) and self.now() > commit.store_by:
                verdict = Void(reason=LATE, message=f"not stored by {commit.store_by.isoformat()}")
            if isinstance(verdict, Accepted):
                # Evictors compare it with the time of NATS, which may be that of either clock.
                order = structs.replace(verdict.order, store_by=max(commit.store_by, asked.store_by))
            elif live := self.ledger.live_beside(commit.preemptor.uid, commit.order_id, self.now()):
                # A void would be stored over it, and a void that is not stored is no answer: a planner before
                # this one may have sent the order to a leader of the stream that has yet to take it.
                if (first := await self.writer.first(subject, commit.after)) is not None:
                    return self._answered(commit, first)
                raise BusUnavailable(f"{verdict.reason}: {verdict.message}; order {live} lives")
            else:
                made = draft(commit, offer.decision_id, self.pod(commit.placements[0].uid), self.now())
                order = voided(made, verdict)
            # Judged just now: nothing was awaited since.
            try:
                answer = await self.writer.store(order, commit.after)
            except BusError:
                unstored()
                raise
            if answer.void is not None and answer.void.reason in (NOT_ACKNOWLEDGED, TAKEN_BY_NO_STREAM):
                unstored()
            await failpoint("planner.order-stored")
            return self._answered(commit, answer)
        finally:
            overdue.cancel()
            self.ledger.withdraw(commit.order_id)

    def _offer(self, commit: CommitRequest, now: datetime) -> Offer | Void:
        """Return what the plan offered, or why this planner stores nothing, whatever it sees."""
        try:
            offer = self.signatures.offer(commit.offer.encode(), self.subjects.commit)
        except Malformed as error:
            return Void(reason="not-offered", message=str(error))
        return refused_by_itself(commit, offer, self.cluster_uid, now) or offer

    def _waits_for(self, verdict: Accepted | Void, commit: CommitRequest) -> str:
        """Return what a verdict waits for; a void for the end of the order over which it would be stored."""
        if isinstance(verdict, Accepted):
            return verdict.waits_for
        return self.ledger.live_beside(commit.preemptor.uid, commit.order_id, self.now())

    def _judged(self, commit: CommitRequest, offer: Offer, before: Accepted | Void | None) -> Accepted | Void:
        """Judge a commit, and reserve what it comes to."""
        if missing := self.unsynced():
            made = draft(commit, offer.decision_id, None, self.now())
            return Accepted(made, missing)
        known = before if isinstance(before, Accepted) else None
        verdict = self.judge(commit, offer, self.now(), known)
        if isinstance(verdict, Accepted):
            self.ledger.reserve(verdict.order)
        else:
            self.ledger.withdraw(commit.order_id)
        return verdict

    async def _change_of(self, commit: CommitRequest, left: float) -> None:
        """Wait until a pod's nomination changes, for a while; of several commits for it the last waits so.

        Of a large group not before a pause: each look is at all members, and nominations show one by one.
        """
        waiting = asyncio.Event()
        for place in commit.placements:
            self._wakes[place.uid] = waiting
        try:
            await asyncio.sleep((len(commit.placements) - 1) * PAUSE_A_MEMBER_SECONDS)
            await until_set(waiting, min(left, LOOKS_AGAIN_SECONDS))
        finally:
            for place in commit.placements:
                if self._wakes.get(place.uid) is waiting:
                    del self._wakes[place.uid]

    def _answered(self, commit: CommitRequest, stored: EvictionOrder) -> CommitReply:
        """Return the answer that what is stored behind the commit's message is."""
        if stored.order_id != commit.order_id:
            return self._void(
                commit, Void(reason=SUPERSEDED, message=f"order {stored.order_id} was stored before it")
            )
        if stored.void is not None:
            return self._void(commit, stored.void)
        self.ledger.ordered(stored)
        self.metrics.commits.labels("stored").inc()
        _log.info(
            "order_committed",
            order_id=stored.order_id,
            decision_id=stored.decision_id,
            pod=f"{commit.preemptor.namespace}/{commit.preemptor.name}",
            pod_uid=commit.preemptor.uid,
            node=stored.node,
            victims=len(stored.victims),
            awaited=len(stored.awaited),
        )
        return self._reply(commit, order=stored)

    def _void(self, commit: CommitRequest, why: Void) -> CommitReply:
        self.metrics.commits.labels("void").inc()
        _log.info("order_voided", order_id=commit.order_id, reason=why.reason, message=why.message)
        return self._reply(commit, void=why)

    def _reply(
        self, commit: CommitRequest, *, order: EvictionOrder | None = None, void: Void | None = None
    ) -> CommitReply:
        return CommitReply(
            api_version=API_VERSION,
            order_id=commit.order_id,
            planner=self.identity,
            status="stored" if order is not None else "void",
            order=order,
            void=void,
        )
