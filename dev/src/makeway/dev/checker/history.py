"""What a check reads: answered requests, stream messages, and when parts of the cluster were away."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.dev.audit_log import AuditEvent

M = TypeVar("M", bound=EvictionOrder | Outcome | DecisionRecord)


@dataclass(frozen=True)
class StoredRecord(Generic[M]):
    """A message as JetStream keeps it. `at` is the server's time stamp, not the writer's."""

    sequence: int
    at: datetime
    subject: str
    message: M


@dataclass(frozen=True)
class Streams:
    """The raw streams, oldest first. `unreadable`: subjects of messages that no decoder takes."""

    orders: tuple[StoredRecord[EvictionOrder], ...] = ()
    outcomes: tuple[StoredRecord[Outcome], ...] = ()
    decisions: tuple[StoredRecord[DecisionRecord], ...] = ()
    unreadable: tuple[str, ...] = ()

    def within(self, namespace: str) -> Streams:
        """Only what concerns pods of one namespace; everything where none is given."""
        if not namespace:
            return self
        orders = tuple(stored for stored in self.orders if namespace in _namespaces(stored.message))
        ids = {stored.message.order_id for stored in orders}
        decisions = tuple(
            stored
            for stored in self.decisions
            if stored.message.preemptor is not None and stored.message.preemptor.namespace == namespace
        )
        outcomes = tuple(stored for stored in self.outcomes if stored.message.order_id in ids)
        return Streams(orders, outcomes, decisions, self.unreadable)

    def joined(self, lost: Streams) -> Streams:
        """Add what was read before the streams were lost; what both have counts once.

        So does an order that the lost stream held and that was published again as it was, but for a later
        `storeBy`: it is the same order, stored first where it was before. Its outcome may have been lost with
        it before any reader had read it; then it has another one, which must tell the same end.
        """
        ended = {(stored.message.order_id, stored.message.result) for stored in lost.outcomes}
        outcomes = tuple(
            stored
            for stored in self.outcomes
            if (stored.message.order_id, stored.message.result) not in ended
        )
        return Streams(
            orders=_once(_joined(self.orders, lost.orders)),
            outcomes=_joined(outcomes, lost.outcomes),
            decisions=_joined(self.decisions, lost.decisions),
            unreadable=(*self.unreadable, *lost.unreadable),
        )


def _namespaces(order: EvictionOrder) -> set[str]:
    """Those of every pod that an order may change."""
    preemptor = () if order.room_for is None else (order.room_for,)
    return {one.namespace for one in (*preemptor, *order.victims, *order.nominations_to_clear)}


def _joined(
    one: tuple[StoredRecord[M], ...], other: tuple[StoredRecord[M], ...]
) -> tuple[StoredRecord[M], ...]:
    both = {(stored.at, stored.subject, stored.sequence): stored for stored in (*one, *other)}
    return tuple(both[key] for key in sorted(both))


def _once(orders: tuple[StoredRecord[EvictionOrder], ...]) -> tuple[StoredRecord[EvictionOrder], ...]:
    """The first of each order; one that says something else under the same id is kept, and is a finding."""
    first: dict[str, StoredRecord[EvictionOrder]] = {}
    for stored in orders:
        first.setdefault(stored.message.order_id, stored)
    return tuple(
        stored
        for stored in orders
        if stored is (known := first[stored.message.order_id]) or not _is_again(stored.message, known.message)
    )


def _is_again(order: EvictionOrder, known: EvictionOrder) -> bool:
    """Report whether an order is a known one, stored again; that takes a later `storeBy` where it has one."""
    if order.store_by is None or known.store_by is None or order.store_by < known.store_by:
        return order == known
    return msgspec.structs.replace(order, store_by=known.store_by) == known


@dataclass(frozen=True)
class Accounts:
    """The user names that makeway's parts have in the audit log."""

    evictor: str = "system:serviceaccount:makeway-system:makeway-evictor"
    planner: str = "system:serviceaccount:makeway-system:makeway-planner"
    scheduler: str = "system:serviceaccount:makeway-system:makeway-scheduler"
    nominator: str = "system:serviceaccount:makeway-system:makeway-nominator"


@dataclass(frozen=True)
class InForce:
    """What policy and brake said while everything happened, as whoever wrote them tells.

    protected_namespaces, never_evict_namespaces, hard_namespaces: those of the policy; `*` stands for every
    one. daemonset_namespaces: whose DaemonSets may take pods of equal priority, where the simple preemptor is
    on. brakes: from when the brake was stored until it was released. cluster_uid: empty where it is not
    known. victims_per_order, victims_per_minute: the policy's limits; None: not judged.
    victims_apart: its `crossNode.mostVictims`, or the most that a policy may say. ranks_by_lost_work: its
    `lostWork.rank` is not off, at any time. reclaims: its queues take back what others use, at any time.
    """

    protected_namespaces: frozenset[str] = frozenset()
    never_evict_namespaces: frozenset[str] = frozenset()
    hard_namespaces: frozenset[str] = frozenset()
    daemonset_namespaces: frozenset[str] = frozenset({"*"})
    brakes: tuple[tuple[datetime, datetime], ...] = ()
    cluster_uid: str = ""
    victims_per_order: int | None = None
    victims_per_minute: int | None = None
    victims_apart: int = 32
    ranks_by_lost_work: bool = False
    reclaims: bool = False


@dataclass(frozen=True)
class RecordedHistory:
    """Everything that a check knows.

    requests: from before the first pod of interest was made, in the log's order.
    fallback: whether the scheduler may preempt by itself, where makeway cannot.
    simple_preemptor: whether a policy turned it on, at any time.
    outages: when something that a bounded promise needs was stopped on purpose; that time does not count.
    """

    requests: tuple[AuditEvent, ...]
    streams: Streams
    fallback: bool = True
    simple_preemptor: bool = False
    outages: tuple[tuple[datetime, datetime], ...] = ()
    accounts: Accounts = field(default_factory=Accounts)
    in_force: InForce = field(default_factory=InForce)
