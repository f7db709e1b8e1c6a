"""Rules about who may order: what an order that was carried out has to name, and where it has to stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from makeway.bus.subjects import Subjects
from makeway.dev.audit_log import AuditEvent
from makeway.dev.checker.case import Finding, OrderCase, described
from makeway.dev.checker.epochs import LeaseEpoch
from makeway.dev.checker.findings import Invariant, Violation
from makeway.dev.checker.orders import OrderHistory

LOOK = timedelta(seconds=6)
"""An evictor's look at the fence is five seconds old at most when an effect begins."""
RENEWAL = timedelta(seconds=30)
"""By then a log that was begun in the middle of an epoch has a renewal of every Lease that is held."""


def rules(case: OrderCase) -> Iterator[Finding]:
    """Every order that takes a pod was written by who led, for this cluster, once, on its own subject."""
    times = Counter(stored.message.order_id for stored in case.history.streams.orders)
    stored_at = {stored.message.order_id: stored.at for stored in case.history.streams.orders}
    for order_id, count in times.items():
        if count > 1:
            evidence = f"committed {count} times"
            yield Violation(Invariant.ORDER_TWICE, (f"order {order_id}",), stored_at[order_id], evidence)
    for event, _, order in case.deletes:
        if order is None:
            continue
        objects = (described(event), order.described)
        if (found := _fence(case, event, order, objects)) is not None:
            yield found
        own = Subjects().order(order.order).partition(".")[2]
        if order.subject.partition(".")[2] != own:
            yield Violation(Invariant.ORDER_MISROUTED, objects, event.at, f"on {order.subject}, not {own}")
        cluster = case.history.in_force.cluster_uid
        if cluster and order.order.cluster_uid != cluster:
            evidence = f"of cluster {order.order.cluster_uid}"
            yield Violation(Invariant.ORDER_OF_ANOTHER_CLUSTER, objects, event.at, evidence)
        preemptor = case.pods.get(order.preemptor_uid)
        # A nominator serves exactly the pods for which the scheduler does not preempt.
        if preemptor is not None and (preemptor.preemption_policy == "Never") != order.order.is_external:
            policy = preemptor.preemption_policy or "not set"
            evidence = f"its preemptionPolicy is {policy}, the order is by {order.order.writer}"
            yield Violation(Invariant.PREEMPTOR_MAY_NOT, objects, event.at, evidence)


def _fence(
    case: OrderCase, event: AuditEvent, order: OrderHistory, objects: tuple[str, ...]
) -> Finding | None:
    """What is wrong with an order's fence; None where nothing is, or the log has no bodies of Leases."""
    fence = order.order.fence
    if fence.kind != "lease" or not case.epochs:
        return None
    epochs = [one for one in case.epochs.of(fence.namespace, fence.name) if one.seen_at <= event.at]
    if not epochs:
        evidence = f"Lease {fence.namespace}/{fence.name} was never held"
        return case.overdue(Invariant.FENCE_NOT_HELD, objects, event.at + RENEWAL, evidence)
    if evidence := _not_in_force(fence.epoch, epochs, event, order):
        return Violation(Invariant.FENCE_NOT_HELD, objects, event.at, evidence)
    return None


def _not_in_force(epoch: int, epochs: list[LeaseEpoch], event: AuditEvent, order: OrderHistory) -> str:
    if epoch > max(one.number for one in epochs):
        return f"epoch {epoch} had not begun"
    for later in epochs:
        if later.number > epoch and later.since <= order.committed_at and later.seen_at + LOOK < event.at:
            return f"epoch {epoch}, committed after epoch {later.number} had begun at {later.since}"
    return ""
