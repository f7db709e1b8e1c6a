"""Rules about what an outcome says: it is true, and written when all is undone that has to be."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from makeway.dev.checker.case import Finding, OrderCase
from makeway.dev.checker.findings import Invariant, Violation
from makeway.dev.checker.orders import OrderHistory
from makeway.dev.checker.pods import PodHistory

PATIENCE = timedelta(seconds=30)
"""A rollback that is refused for so long ends without; its outcome is written all the same."""
TRAVEL = timedelta(seconds=1)
"""Between the server's answer and the message's time stamp."""


def rules(case: OrderCase) -> Iterator[Finding]:
    """An outcome tells what became of each victim, and comes after the rollback."""
    deleted = {uid for _, uid, _ in case.deletes}
    for order in case.orders:
        if order.outcome is not None and order.ended_at is not None:
            yield from _victims(case, order, order.ended_at, deleted)
            if order.made_no_room and order.committed_at < order.ended_at < order.committed_at + PATIENCE:
                yield from _undone(case, order, order.ended_at)


def _victims(
    case: OrderCase, order: OrderHistory, ended_at: datetime, deleted: set[str]
) -> Iterator[Finding]:
    assert order.outcome is not None  # noqa: S101 - the caller has looked
    named = {victim.uid for victim in order.outcome.victims}
    if order.outcome.result == "succeeded":
        for uid in order.victim_uids - named:
            yield _untrue(order, ended_at, f"it says nothing of victim {uid}")
    for uid in named - order.victim_uids:
        yield _untrue(order, ended_at, f"it tells of {uid}, which is no victim of the order")
    for victim in order.outcome.victims:
        pod = case.pods.get(victim.uid)
        if victim.result == "deleted" and victim.uid not in deleted:
            yield _untrue(order, ended_at, f"no delete of {victim.uid} was accepted")
        if victim.result in ("spared", "notAttempted") and _deleted_for(case, order, victim.uid):
            yield _untrue(order, ended_at, f"{victim.uid} was deleted, and is called {victim.result}")
        if victim.result not in ("deleted", "terminating", "gone") or pod is None:
            continue
        if pod.leaving_at is None or pod.leaving_at > ended_at + TRAVEL:
            yield _untrue(order, ended_at, f"{victim.uid} is called {victim.result}, and stays")


def _deleted_for(case: OrderCase, order: OrderHistory, uid: str) -> bool:
    """Whether an order has deleted a pod."""
    return any(deleted == uid and by is order for _, deleted, by in case.deletes)


def _untrue(order: OrderHistory, at: datetime, evidence: str) -> Violation:
    return Violation(Invariant.OUTCOME_UNTRUE, (order.described,), at, evidence)


def _undone(case: OrderCase, order: OrderHistory, ended_at: datetime) -> Iterator[Finding]:
    for victim in order.order.victims:
        pod = case.pods.get(victim.uid)
        shown = pod.at(ended_at) if pod else None
        if pod is None or shown is None or not shown.marked or shown.leaving:
            continue
        shared = any(
            other is not order and other.live_until >= order.committed_at
            for other in case.orders.of_victim(victim.uid)
        )
        if not shared and _set_by(case, pod, order.committed_at, ended_at):
            yield _early(order, ended_at, f"{pod.described} is still marked")
    for uid, node in order.nominations.items():
        yield from _still_nominated(case, order, ended_at, uid, node)


def _still_nominated(
    case: OrderCase, order: OrderHistory, ended_at: datetime, uid: str, node: str
) -> Iterator[Finding]:
    preemptor = case.pods.get(uid)
    shown = preemptor.at(ended_at) if preemptor else None
    if preemptor is None or shown is None or shown.leaving or preemptor.bound_by(ended_at):
        return
    taken_back = any(
        version.by == case.accounts.evictor and order.committed_at <= version.since and not version.nominated
        for version in preemptor.versions
        if version.since <= ended_at
    )
    if shown.nominated == node and not taken_back:
        yield _early(order, ended_at, f"{preemptor.described} is still nominated to {node}")


def _set_by(case: OrderCase, pod: PodHistory, begin: datetime, end: datetime) -> bool:
    """Whether the evictor marked a pod between two moments."""
    marks = [version for version in pod.versions if version.marked and begin <= version.since <= end]
    return any(version.by == case.accounts.evictor for version in marks)


def _early(order: OrderHistory, at: datetime, evidence: str) -> Violation:
    return Violation(Invariant.OUTCOME_BEFORE_ROLLBACK, (order.described,), at, evidence)
