"""Finding orders, decisions, outcomes, recordings in the streams: by id, or by the pods that they are about.

Where a person gives an id, its beginning does, if only one id begins so.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Final, TypeVar

from makeway.bus.client import Bus
from makeway.bus.codec import unwrap_decision, unwrap_order, unwrap_outcome
from makeway.bus.decisions import DecisionRecord
from makeway.bus.following import past_messages
from makeway.bus.ids import moment_in
from makeway.bus.messages import EvictionOrder, Outcome

_SKEW: Final = timedelta(minutes=5)
"""How far a writer's clock and the server's may be apart."""

M = TypeVar("M", DecisionRecord, EvictionOrder, Outcome)


async def decision_named(bus: Bus, prefix: str) -> DecisionRecord | None:
    """Find the decision record of an id, or the one whose id begins so, as `makeway history` shows it.

    Raises:
        BusError: NATS does not answer.
        ValueError: several begin so.
    """
    async with aclosing(decisions(bus, since=_made(prefix))) as found:
        return await _only(found, prefix, lambda record: record.decision_id)


async def order_named(bus: Bus, prefix: str) -> EvictionOrder | None:
    """Find the order whose id begins so. Raises as `decision_named`."""
    async with aclosing(orders(bus, since=_made(prefix), voids=True)) as found:
        return await _only(found, prefix, lambda order: order.order_id)


async def order_of(bus: Bus, record: DecisionRecord) -> EvictionOrder | None:
    """Find the order that carries out a decision; None where none does (yet). Raises BusError."""
    async with aclosing(orders(bus, since=record.at - _SKEW)) as found:
        async for order in found:
            if order.decision_id == record.decision_id:
                return order
    return None


async def outcome_of(bus: Bus, order_id: str) -> Outcome | None:
    """Return an order's outcome, None while there is none. Raises BusError."""
    stream, subject = bus.subjects.outcomes_stream, bus.subjects.outcome(order_id)
    async with aclosing(past_messages(bus, stream, unwrap_outcome, subjects=(subject,))) as found:
        return await anext(found, None)


def decisions(
    bus: Bus, *, since: datetime | None = None, preemptor_uid: str = ""
) -> AsyncGenerator[DecisionRecord]:
    """Read the decision records that are there, oldest first; only of one preemptor where it is given."""
    subjects = (
        (
            bus.subjects.decisions_of("pod", preemptor_uid),
            bus.subjects.decisions_of("group", preemptor_uid),
        )
        if preemptor_uid
        else (bus.subjects.pod_decisions, bus.subjects.group_decisions, bus.subjects.quota_decisions)
    )
    return past_messages(bus, bus.subjects.decisions_stream, unwrap_decision, since=since, subjects=subjects)


async def orders(
    bus: Bus, *, since: datetime | None = None, preemptor_uid: str = "", voids: bool = False
) -> AsyncGenerator[EvictionOrder]:
    """Read the orders that are there, oldest first; only of one preemptor where it is given.

    `voids`: also what is stored in the place of orders. Raises BusError.
    """
    subject = bus.subjects.orders_of("pod", preemptor_uid) if preemptor_uid else bus.subjects.orders
    stream = bus.subjects.orders_stream
    async with aclosing(past_messages(bus, stream, unwrap_order, since=since, subjects=(subject,))) as found:
        async for order in found:
            if voids or order.void is None:
                yield order


def recording(bus: Bus, recording_id: str) -> AsyncGenerator[bytes]:
    """Read the parts of a recording that are there, oldest first. Raises BusError."""
    subjects = bus.subjects
    return past_messages(bus, subjects.recordings_stream, bytes, subjects=(subjects.recording(recording_id),))


async def _only(found: AsyncGenerator[M], prefix: str, id_of: Callable[[M], str]) -> M | None:
    """Return the one whose id is that, or the only one whose id begins so.

    Raises:
        ValueError: several begin so.
    """
    since, first = _made(prefix), None
    async for one in found:
        name, made = id_of(one), moment_in(id_of(one))
        if since is not None and made is not None and made > since + 2 * _SKEW:
            break
        if name == prefix:
            return one
        if not name.startswith(prefix):
            continue
        if first is not None and id_of(first) != name:
            raise ValueError(f"several ids begin so: {id_of(first)}, {name}; give more than {prefix}")
        first = one
    return first


def _made(identifier: str) -> datetime | None:
    """Return from when on a stream may hold what has this id, or one that begins so; None: anywhere."""
    moment = moment_in(identifier)
    return None if moment is None else moment - _SKEW
