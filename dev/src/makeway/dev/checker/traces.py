"""Rules about what an order leaves behind: its nomination, and its marks on pods that stay."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from makeway.dev.checker.case import Finding, OrderCase
from makeway.dev.checker.findings import Invariant
from makeway.dev.checker.orders import OrderHistory
from makeway.dev.checker.pods import PodHistory

NOMINATION = timedelta(seconds=10)
MARK = timedelta(seconds=30)


def rules(case: OrderCase) -> Iterator[Finding]:
    """Nothing of an order that made no room stays."""
    for order in case.orders:
        for uid, node in order.nominations.items():
            yield from _nomination(case, order, uid, node)
        yield from _marks(case, order)


def _nomination(case: OrderCase, order: OrderHistory, uid: str, node: str) -> Iterator[Finding]:
    """The nomination as it stood at the outcome is taken back, used, or taken up by another order.

    A nomination that is written after the outcome is a new one, with reasons of its own.
    """
    preemptor = case.pods.get(uid)
    if not order.made_no_room or order.ended_at is None or preemptor is None:
        return
    due = case.outages.due(order.ended_at, NOMINATION)
    standing = preemptor.at(order.ended_at)
    if standing is None or standing.nominated != node or standing.leaving:
        return
    if preemptor.bound_by(due) or any(
        order.committed_at < other.committed_at <= due for other in case.orders.of_preemptor(uid)
    ):
        return
    for version in preemptor.after(order.ended_at):
        if version.since <= due and (
            version.nominated != node or version.leaving or _nominates(case, version.by)
        ):
            return
    yield case.overdue(
        Invariant.NOMINATION_LEFT,
        (preemptor.described, order.described),
        due,
        f"nominated to {node} at the outcome {order.ended_at.isoformat()} and ever since",
    )


def _nominates(case: OrderCase, user: str) -> bool:
    return user in (case.accounts.scheduler, case.accounts.nominator)


def _marks(case: OrderCase, order: OrderHistory) -> Iterator[Finding]:
    """A mark on a victim that stays is taken off, or belongs to another order by then."""
    due = case.outages.due(order.live_until if order.ended_at is None else order.ended_at, MARK)
    for victim in order.order.victims:
        pod = case.pods.get(victim.uid)
        if pod is None or not _marked_by_evictor(case, pod, order.committed_at, due):
            continue
        moment = min(due, case.now)
        state = pod.at(moment)
        if state is None or not state.marked or state.leaving:
            continue
        if any(
            other is not order
            and other.committed_at <= due
            and case.outages.due(other.live_until, MARK) >= moment
            and other.committed_at > order.committed_at
            for other in case.orders.of_victim(victim.uid)
        ):
            continue
        yield case.overdue(
            Invariant.MARK_LEFT, (pod.described, order.described), due, "DisruptionTarget on a pod that stays"
        )


def _marked_by_evictor(case: OrderCase, pod: PodHistory, begin: datetime, end: datetime) -> bool:
    """Whether it was the evictor who set the mark: the pod was not marked in the version before."""
    before = False
    for version in pod.versions:
        if version.marked and not before:
            ours = version.by == case.accounts.evictor and begin <= version.since <= end
            if ours:
                return True
        before = version.marked
    return False
