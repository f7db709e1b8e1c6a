"""The evictor service: take an order, judge it, carry it out or roll it back, write its outcome.

Any number of replicas share one durable consumer. Delivery is at least once: an evictor that dies
leaves its order unacknowledged, the next one reads the cluster anew, finds victims deleted,
leaving or there, and goes on or rolls back from that. Only that an order has begun to delete units, which go
whole, is written down.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import structlog

from makeway.bus import codec, tracing
from makeway.bus.errors import BusUnavailable, Malformed
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.bus.signing.signatures import FORGERIES, Signatures
from makeway.bus.subjects import Subjects
from makeway.evictor.act.execution import Execution
from makeway.evictor.act.nominations import clear_listed
from makeway.evictor.act.records import OrderDelivery
from makeway.evictor.act.report import summarise
from makeway.evictor.act.rollback import RollbackReport, RollbackRun
from makeway.evictor.act.work import EvictorParts, OrderWork
from makeway.evictor.intake.deliveries import extended
from makeway.evictor.judge import decide
from makeway.evictor.judge.fences import Fences
from makeway.evictor.judge.verdicts import Refused, Stop
from makeway.evictor.limits.hand import GIVE_BACK_SECONDS, MOST_DELIVERIES, Hand, Place, places_of
from makeway.evictor.limits.slots import Slots, Turn
from makeway.evictor.retry import Clock, PermanentError, TemporaryError, reporter, retrying
from makeway.runtime.failpoints import failpoint
from makeway.runtime.logs import bound

QUARANTINE_AFTER_DELIVERIES = 50
"""An order given out so often ends the processes that touch it; it is put aside undecoded."""

QUARANTINE_AFTER_DEFECTS = 5
"""An order that this program has a defect for is tried so often in all, then put aside."""

FORGED_LATELY = timedelta(minutes=10)
"""What is older is an order of before a key was retired rather than a forged one."""

KEYS_BEHIND = timedelta(seconds=10)
"""Within this time of a public key's end its owner has read that, and signs no more with it. So long an
evictor that has just started cannot tell a key that counted until then from one that never did."""

PAUSE_SECONDS = 5.0
"""Before a message is delivered again that could neither be worked on nor be put aside."""

UNTOUCHED_REASONS = (
    "other-cluster",
    "incomplete-order",
    "invalid-name",
    "not-after-too-far",
)
"""Refusals of orders that this cluster has nothing of, so that there is nothing to roll back."""

_log = structlog.get_logger()

T = TypeVar("T")


@dataclass(frozen=True)
class EvictorSettings:
    """How this evictor works.

    cluster_uid: of the cluster it is connected to; orders for another are refused.
    identity: of this process, in outcomes and Events.
    subjects: which subject an order has to come on.
    fences: which fences an order may name.
    """

    cluster_uid: str
    identity: str
    subjects: Subjects = field(default_factory=Subjects)
    fences: Fences = field(default_factory=Fences.of)


class Evictor:
    """One evictor process."""

    def __init__(
        self,
        settings: EvictorSettings,
        parts: EvictorParts,
        *,
        clock: Clock,
        slots: Slots,
        ended: Callable[[EvictionOrder, Outcome], None] = lambda order, outcome: None,
        signatures: Signatures | None = None,
        forged: Callable[[str], None] = lambda detail: None,
    ) -> None:
        self.parts = parts
        self._signatures = signatures or Signatures()
        self._forged = forged
        self._slots = slots
        self._ended = ended
        self._settings = settings
        self._started_at = clock.now()
        self._hand = Hand(parts.metrics)
        self._clock = clock
        self._records = parts.records
        self._metrics = parts.metrics
        self._holds = parts.holds

    async def handle(self, delivery: OrderDelivery) -> None:
        """Deal with one delivery to its end. What the bus does not let end comes again."""
        if delivery.deliveries > QUARANTINE_AFTER_DELIVERIES:
            await self._quarantine(delivery, "too-many-deliveries", f"{delivery.deliveries} deliveries")
            return
        try:
            order = self._signatures.order(delivery.data, delivery.subject)
        except Malformed as error:
            if self._is_forged(error, delivery):
                self._forged(f"{error.reason}: {error.detail}")
            await self._quarantine(delivery, error.reason, error.detail)
            return
        if expected := decide.misrouted(order, delivery.subject, self._settings.subjects):
            await self._quarantine(delivery, "wrong-subject", f"order {order.order_id} belongs on {expected}")
            return
        if order.void is not None:
            with contextlib.suppress(BusUnavailable):  # it comes again
                await delivery.ack_sync()
            return
        with (
            tracing.span(
                "evict", delivery.traceparent, order_id=order.order_id, delivery=delivery.deliveries
            ),
            bound(
                order_id=order.order_id,
                decision_id=order.decision_id,
                node=order.node,
                **_room_for(order),
                queue=order.queue,
            ),
            self._metrics.in_flight.track_inprogress(),
        ):
            try:
                async with extended(delivery), self._hand.alone(order.order_id):
                    if (again := await self._settle_in_turn(order, delivery)) is not None:
                        await delivery.nak(again)
                        return
                    await failpoint("evictor.before-ack")
                    await delivery.ack_sync()
            except BusUnavailable as error:
                _log.warning("order_not_acknowledged", error=str(error))
            except PermanentError as error:
                await self._quarantine(delivery, "outcome-refused", str(error))
            except asyncio.CancelledError:
                with contextlib.suppress(BusUnavailable):
                    await delivery.nak()
                raise
            except Exception as error:  # noqa: BLE001 - the top of an order: a defect must not end the others
                self._metrics.defects.inc()
                _log.error("order_failed_unexpectedly", error=str(error), exc_info=error)
                if delivery.deliveries >= QUARANTINE_AFTER_DEFECTS:
                    await self._quarantine(delivery, "defect", f"{type(error).__name__}: {error}")
                else:
                    await _redeliver(delivery)

    def _is_forged(self, error: Malformed, delivery: OrderDelivery) -> bool:
        """Report whether a message speaks of a forger. One that cannot be put aside comes again.

        Who may read orders can have NATS store copies of them, on any subject. Those of which nothing would
        come with a good signature either are no evidence: on another subject than theirs, or over by then.
        """
        if error.reason not in FORGERIES or delivery.deliveries > 1:
            return False
        if error.reason == "unknown-key" and delivery.published_at < self._started_at + KEYS_BEHIND:
            return False
        order = codec.unwrap_order(delivery.data)
        is_over = order.void is not None or order.not_after <= delivery.published_at
        if is_over or decide.misrouted(order, delivery.subject, self._settings.subjects):
            return False
        return self._clock.now() - delivery.published_at < FORGED_LATELY

    async def _quarantine(self, delivery: OrderDelivery, reason: str, detail: str) -> None:
        """Put a message aside that cannot be dealt with, so that no other waits for it.

        It is in the quarantine before it is taken out of the consumer. Where it cannot be put there, it
        comes again.
        """
        try:
            await self._records.quarantine(delivery, reason, detail)
        except (TemporaryError, PermanentError) as error:
            self._metrics.not_parked.inc()
            _log.error("order_not_parked", reason=reason, sequence=delivery.sequence, error=str(error))
            await _redeliver(delivery)
            return
        self._metrics.parked.labels(reason=reason).inc()
        _log.error(
            "order_parked",
            reason=reason,
            error=detail,
            sequence=delivery.sequence,
            deliveries=delivery.deliveries,
        )
        try:
            await delivery.term(reason)
        except BusUnavailable as error:
            _log.warning("order_not_acknowledged", error=str(error))

    # ---------------------------------------------------------------------------------- one order

    async def _settle_in_turn(self, order: EvictionOrder, delivery: OrderDelivery) -> float | None:
        """Settle an order that the hand has room for; else return in how many seconds it is to come again.

        One whose time is over is kept: its outcome is due.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        turn = self._slots.turn(order, delivery.sequence, self._clock)
        keeps = delivery.deliveries >= MOST_DELIVERIES or self._clock.now() >= order.not_after
        place = Place(turn, places_of(len(delivery.data)), task.cancel, keeps=keeps)
        if not self._hand.take(place):
            return self._give_back(order)
        turn.on_wait = partial(self._waits, order, place)
        try:
            await self._settle_with(turn, order, delivery)
        except asyncio.CancelledError:
            if not place.back or task.uncancel():
                raise
            return self._give_back(order)
        finally:
            self._hand.leave(place)
        self._holds.keep(order)
        return None

    def _give_back(self, order: EvictionOrder) -> float:
        """Return in how many seconds an order is to come again: no later than its time is over."""
        now = self._clock.now()
        again = min(GIVE_BACK_SECONDS, max(0.0, (order.not_after - now).total_seconds()))
        self._holds.give_back(order, now, now + timedelta(seconds=again))
        return again

    def _waits(self, order: EvictionOrder, place: Place) -> None:
        self._hand.waits(place)
        if place.waits:
            self._holds.keep(order)

    async def _settle_with(self, turn: Turn, order: EvictionOrder, delivery: OrderDelivery) -> None:
        """Wait for a slot, which is free again when the order has ended."""
        self._holds.put(order, "line", self._clock.now())
        try:
            await turn.enter()
            self._holds.end(order)
            await failpoint("evictor.order-received")
            await self._settle(order, delivery, turn)
        finally:
            turn.end()
            self._holds.end(order, again=delivery.deliveries > 1)

    async def _settle(self, order: EvictionOrder, delivery: OrderDelivery, turn: Turn) -> None:
        """See to it that the order has its outcome."""
        deliveries = delivery.deliveries
        ended = await self._persist("read", lambda: self._records.outcome(order.order_id), turn)
        if deliveries > 1:
            self._metrics.redelivered.labels(state="live" if ended is None else "ended").inc()
        if ended is not None:
            _log.info("order_already_ended", result=ended.result, deliveries=deliveries)
            return
        _log.info("order_received", deliveries=deliveries, victims=len(order.victims))
        outcome = await self._carry_out(order, delivery, turn)
        turn.stay()
        await failpoint("evictor.before-outcome")
        standing = await self._persist("publish", lambda: self._records.publish(outcome), turn)
        tracing.tell(
            "" if standing.result == "succeeded" else standing.message or standing.result,
            result=standing.result,
            reason=standing.reason,
        )
        self._report(order, outcome, standing)

    async def _carry_out(self, order: EvictionOrder, delivery: OrderDelivery, turn: Turn) -> Outcome:
        """Make the room, or undo what was begun; the outcome is not written yet."""
        started_at = self._clock.now()
        work = OrderWork(
            order, self.parts, turn, stored_at=delivery.published_at, deliveries=delivery.deliveries
        )
        work.stop = decide.admit(
            order, cluster_uid=self._settings.cluster_uid, now=started_at, fences=self._settings.fences
        )
        if work.stop is None:
            await Execution(work).run()
        await turn.enter()
        undone: RollbackReport | None = None
        nominations: tuple[str, ...] = ()
        if work.stop is None:
            nominations = await clear_listed(work)
        elif _leaves_traces(work.stop):
            undone = await RollbackRun(work).run(p.victim for p in work.progress.values() if p.may_stay)
        return summarise(
            order,
            work.stop,
            work.progress.values(),
            undone=undone,
            nominations_cleared=nominations,
            evictor=self._settings.identity,
            deliveries=delivery.deliveries,
            started_at=started_at,
            finished_at=self._clock.now(),
        )

    async def _persist(self, operation: str, act: Callable[[], Awaitable[T]], turn: Turn) -> T:
        """Go on until the bus answers: the order is kept meanwhile, and comes again if this process ends."""
        return await retrying(act, clock=turn, deadline=None, on_retry=reporter(self._metrics, operation))

    def _report(self, order: EvictionOrder, outcome: Outcome, standing: Outcome) -> None:
        """Count and log an end; nothing is counted where another evictor was first."""
        if standing.evictor != outcome.evictor:
            _log.info("order_ended_elsewhere", result=standing.result, evictor=standing.evictor)
            return
        self._metrics.orders.labels(result=outcome.result, reason=outcome.reason).inc()
        for victim in outcome.victims:
            self._metrics.victims.labels(result=victim.result).inc()
        labels = {"operation": "evict", "result": outcome.result}
        seconds = (outcome.finished_at - outcome.started_at).total_seconds()
        self._metrics.executions.labels(**labels).inc()
        self._metrics.execution_seconds.labels(**labels).observe(seconds)
        deletes = [v.deleted_at for v in outcome.victims if v.deleted_at is not None]
        if outcome.result == "succeeded" and deletes:
            self._metrics.order_to_last_delete_seconds.observe(_since(order.created_at, max(deletes)))
        self.parts.events.ended(order, outcome)
        self._ended(order, outcome)
        _log.info(
            "order_ended",
            result=outcome.result,
            reason=outcome.reason,
            message=outcome.message,
            deleted=len(deletes),
            victims=len(outcome.victims),
            seconds=seconds,
        )


async def _redeliver(delivery: OrderDelivery) -> None:
    """Have a message delivered again, after a pause in which the others get their turn."""
    try:
        await delivery.nak(PAUSE_SECONDS)
    except BusUnavailable as error:
        _log.warning("order_not_acknowledged", error=str(error))


def _room_for(order: EvictionOrder) -> dict[str, str]:
    """Return what a line of the log says of the pod or group that an order makes room for."""
    about, kind = order.room_for, "pod_group" if order.kind == "group" else "pod"
    if about is None:
        return {"pod": "", "pod_uid": ""}
    return {kind: f"{about.namespace}/{about.name}", f"{kind}_uid": about.uid}


def _leaves_traces(stop: Stop) -> bool:
    return not (isinstance(stop, Refused) and stop.reason in UNTOUCHED_REASONS)


def _since(earlier: datetime, later: datetime) -> float:
    """Seconds between two machines' clocks, never negative."""
    return max(0.0, (later - earlier).total_seconds())
