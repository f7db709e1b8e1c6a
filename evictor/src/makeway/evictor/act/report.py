"""From what an execution and a rollback saw to the order's one outcome. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from makeway.bus.messages import EvictionOrder, Outcome, OutcomeResult, VictimOutcome, VictimResult
from makeway.evictor.act.progress import VictimProgress
from makeway.evictor.act.rollback import RollbackReport
from makeway.evictor.judge.verdicts import (
    Cancelled,
    Deleted,
    Exempt,
    Expired,
    Failed,
    Gone,
    Refused,
    Stop,
    Terminating,
)

VICTIM_MESSAGE_LIMIT = 256
"""Characters of what is said of one victim."""

MESSAGES_LIMIT = 256_000
"""Characters of what is said of all victims together: NATS takes 1 MiB, a group order has thousands."""

NAMED_LIMIT = 10
"""How many of what could not be rolled back are named."""


def summarise(
    order: EvictionOrder,
    stop: Stop | None,
    progress: Iterable[VictimProgress],
    *,
    undone: RollbackReport | None,
    nominations_cleared: tuple[str, ...],
    evictor: str,
    deliveries: int,
    started_at: datetime,
    finished_at: datetime,
) -> Outcome:
    """The outcome of an order that stopped for `stop`, or succeeded where that is None."""
    leaving = undone.leaving if undone is not None else {}
    known = tuple(progress)
    limit = min(VICTIM_MESSAGE_LIMIT, MESSAGES_LIMIT // max(1, len(known)))
    victims = tuple(_victim(p, leaving, limit) for p in known)
    result, reason, message = _result(stop, any(v.result == "deleted" for v in victims))
    if undone is not None and undone.refused:
        more = len(undone.refused) - NAMED_LIMIT
        named = ", ".join(undone.refused[:NAMED_LIMIT])
        message += f"; not rolled back: {named}{f' and {more} more' if more > 0 else ''}"
    return Outcome(
        order_id=order.order_id,
        kind=order.kind,
        cluster_uid=order.cluster_uid,
        epoch=order.fence.epoch,
        result=result,
        evictor=evictor,
        started_at=started_at,
        finished_at=finished_at,
        preemptor_uid=order.preemptor_uid,
        node=order.node,
        queue=order.queue,
        reason=reason,
        message=message,
        retry_at=stop.retry_at if isinstance(stop, Refused) else None,
        room=stop.room if isinstance(stop, Refused) else 0,
        deliveries=deliveries,
        victims=victims,
        nominations_cleared=nominations_cleared,
        rollback=undone.as_message() if undone is not None else None,
    )


def _result(stop: Stop | None, deleted_some: bool) -> tuple[OutcomeResult, str, str]:
    match stop:
        case None:
            return "succeeded", "", ""
        case Expired(message=message):
            # "expired" promises that nothing was begun.
            return ("failed", "deadline", message) if deleted_some else ("expired", "expired", message)
        case Refused(reason=reason, message=message):
            return "refused", reason, message
        case Cancelled(reason=reason, message=message):
            return "cancelled", reason, message
        case Failed(reason=reason, message=message):
            return "failed", reason, message


def _victim(progress: VictimProgress, leaving: Mapping[str, Gone | Terminating], limit: int) -> VictimOutcome:
    result, reason, message = _victim_result(progress, leaving)
    verdict = progress.verdict or leaving.get(progress.victim.uid)
    grace = verdict.grace_period_seconds if isinstance(verdict, Deleted | Terminating) else 0
    return VictimOutcome(
        namespace=progress.victim.namespace,
        name=progress.victim.name,
        uid=progress.victim.uid,
        result=result,
        reason=reason,
        message=message[:limit],
        attempts=progress.attempts,
        grace_period_seconds=grace,
        deleted_at=progress.deleted_at,
    )


def _victim_result(
    progress: VictimProgress, leaving: Mapping[str, Gone | Terminating]
) -> tuple[VictimResult, str, str]:
    verdict = progress.verdict
    if verdict is None:
        # Seen by the rollback: a delete whose answer was lost may have been carried out after all.
        verdict = leaving.get(progress.victim.uid)
    match verdict:
        case Deleted():
            return "deleted", "", ""
        case Terminating():
            return "terminating", "answer-lost" if progress.delete_sent else "", ""
        case Gone(reason=reason):
            return "gone", reason, ""
        case Exempt(reason=reason, message=message):
            return "spared", reason, message
        case None if progress.error is not None:
            return "failed", progress.error.reason, str(progress.error)
        case None:
            return "notAttempted", "", ""
