"""Rules about what the evictor writes to a pod's status, and about when it writes at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from makeway.dev.audit_log import AuditEvent
from makeway.dev.checker.case import Finding, OrderCase, described, uid_of
from makeway.dev.checker.findings import Invariant, Violation
from makeway.dev.checker.orders import OrderHistory
from makeway.dev.checker.pods import is_marked


def rules(case: OrderCase) -> Iterator[Finding]:
    """Each write carries a UID, belongs to an order, and begins in its time unless it undoes something."""
    for event in case.evictor_writes:
        uid, pod = uid_of(event), described(event)
        body = event.request or {}
        if event.verb == "patch" and (body.get("metadata") or {}).get("uid") != uid:
            yield Violation(Invariant.PATCH_WITHOUT_UID, (pod,), event.at, str(body)[:300])
        if event.verb == "patch":
            yield from _patch(case, event, body.get("status") or {}, uid, pod)
        elif event.removes_pod:
            yield from _late(event, pod, "delete", case.orders.of_victim(uid))


def _patch(
    case: OrderCase, event: AuditEvent, status: dict[str, Any], uid: str, pod: str
) -> Iterator[Finding]:
    if is_marked(status):
        orders = _before(event, case.orders.of_victim(uid))
        if not orders:
            yield Violation(Invariant.MARK_NOT_ORDERED, (pod,), event.at, "no order before names it")
        yield from _late(event, pod, "mark", orders)
    if "nominatedNodeName" in status:
        if any(order.committed_at < event.at for order in case.orders.of_preemptor(uid)):
            return
        listing = _before(
            event,
            [
                order
                for order in case.orders
                if any(listed.uid == uid for listed in order.order.nominations_to_clear)
            ],
        )
        if not listing:
            yield Violation(
                Invariant.CLEAR_NOT_ORDERED, (pod,), event.at, "no order before lists its nomination"
            )
        yield from _late(event, pod, "clearing of its nomination", listing)


def _before(event: AuditEvent, orders: list[OrderHistory]) -> list[OrderHistory]:
    return [order for order in orders if order.committed_at < event.at]


def _late(event: AuditEvent, pod: str, what: str, orders: list[OrderHistory]) -> Iterator[Finding]:
    """Whether the last of the orders that allow a write was over when it came."""
    limits = [order.limit for order in _before(event, orders)]
    if limits and event.at > max(limits):
        late = (event.at - max(limits)).total_seconds()
        yield Violation(Invariant.LATE_WRITE, (pod,), event.at, f"{what} {late:.3f} s after notAfter + 2 s")
