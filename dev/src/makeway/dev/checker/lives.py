"""Rules about the lives of orders: how many at a time, how they end, what is bound."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

from makeway.dev.checker.case import Finding, OrderCase
from makeway.dev.checker.findings import Invariant, Violation
from makeway.dev.checker.orders import MARGIN, OrderHistory

REDELIVERED = timedelta(seconds=15)
"""An order whose evictor has died is given to another after 10 s."""


def rules(case: OrderCase) -> Iterator[Finding]:
    """One live order a preemptor, a queue and a victim, one outcome an order, one binding a preemptor."""
    for who, orders in case.orders.by_behalf():
        for earlier, later in pairwise(orders):
            if later.committed_at < earlier.live_until:
                yield Violation(
                    Invariant.TWO_LIVE_ORDERS,
                    (
                        who if earlier.order.kind == "quota" else f"preemptor {who}",
                        earlier.described,
                        later.described,
                    ),
                    later.committed_at,
                    f"the earlier lived until {earlier.live_until.isoformat()}",
                )
    for uid, orders in case.orders.by_victim():
        before: OrderHistory | None = None
        for later in sorted(orders, key=lambda order: order.committed_at):
            if (
                before is not None
                and later.committed_at < before.live_until
                and before.on_behalf_of != later.on_behalf_of
            ):
                yield Violation(
                    Invariant.VICTIM_IN_TWO_ORDERS,
                    (f"victim {uid}", before.described, later.described),
                    later.committed_at,
                    f"the earlier lived until {before.live_until.isoformat()}",
                )
            if not later.did_nothing:
                before = later
    yield from _outcomes(case)
    yield from _bindings(case)


def _outcomes(case: OrderCase) -> Iterator[Finding]:
    committed = {order.order.order_id: order.committed_at for order in case.orders}
    for order_id, outcomes in case.orders.outcomes.items():
        first = outcomes[0]
        if order_id not in committed or first.at < committed[order_id]:
            yield Violation(
                Invariant.OUTCOME_WITHOUT_ORDER,
                (f"order {order_id}",),
                first.at,
                f"outcome {first.message.result}, order {committed.get(order_id, 'not there')}",
            )
        for second in outcomes[1:]:
            yield Violation(
                Invariant.TWO_OUTCOMES,
                (f"order {order_id}",),
                second.at,
                f"{first.message.result} at {first.at.isoformat()}, then {second.message.result}",
            )
    for order in case.orders:
        if order.ended_at is None:
            due = max(
                case.outages.due(order.order.not_after, MARGIN),
                case.outages.due(order.committed_at, REDELIVERED),
            )
            quota = order.order.kind == "quota"
            objects = (
                order.described,
                order.on_behalf_of if quota else f"preemptor {order.preemptor_uid}",
            )
            yield case.overdue(
                Invariant.NO_OUTCOME, objects, due, f"committed at {order.committed_at.isoformat()}"
            )


def _bindings(case: OrderCase) -> Iterator[Finding]:
    for uid, _ in case.orders.by_preemptor():
        pod = case.pods.get(uid)
        if pod is not None and len(pod.bindings) > 1:
            nodes = ", ".join(f"{node} at {when.isoformat()}" for when, node in pod.bindings)
            yield Violation(Invariant.BOUND_TWICE, (pod.described,), pod.bindings[1][0], nodes)
