"""Orders with their outcomes, and when each was live."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from makeway.bus.messages import EvictionOrder, Outcome
from makeway.dev.checker.history import StoredRecord, Streams

MARGIN = timedelta(seconds=2)
"""After `not_after` + this, an order is over, whether or not its outcome has been written."""


@dataclass(frozen=True)
class OrderHistory:
    """One order. `outcome`: its first."""

    order: EvictionOrder
    committed_at: datetime
    outcome: Outcome | None
    ended_at: datetime | None
    """When the first outcome was stored."""
    subject: str = ""

    @property
    def limit(self) -> datetime:
        """When it is over at the latest."""
        return self.order.not_after + MARGIN

    @property
    def live_until(self) -> datetime:
        """The end of its life: its outcome, or its limit."""
        return self.limit if self.ended_at is None else min(self.ended_at, self.limit)

    @property
    def preemptor_uid(self) -> str:
        """Of the pod or PodGroup; empty for a quota order."""
        return self.order.preemptor_uid

    @property
    def nominations(self) -> dict[str, str]:
        """The pods that room is made for, by UID, each with its node."""
        if self.order.kind == "group":
            return {member.uid: member.node for member in self.order.members}
        return {self.preemptor_uid: self.order.node} if self.preemptor_uid else {}

    @property
    def on_behalf_of(self) -> str:
        """Who may have one live order at a time: a preemptor's UID, or `queue` and its path."""
        return f"queue {self.order.queue}" if self.order.kind == "quota" else self.preemptor_uid

    @property
    def victim_uids(self) -> frozenset[str]:
        """The pods it removes."""
        return frozenset(victim.uid for victim in self.order.victims)

    @property
    def made_no_room(self) -> bool:
        """Whether it has an outcome that is not a success."""
        return self.outcome is not None and self.outcome.result != "succeeded"

    @property
    def did_nothing(self) -> bool:
        """Whether it was cancelled before a victim was deleted."""
        return (
            self.outcome is not None
            and self.outcome.result == "cancelled"
            and all(victim.result != "deleted" for victim in self.outcome.victims)
        )

    @property
    def described(self) -> str:
        """For people."""
        return f"order {self.order.order_id}"


class Orders:
    """Every order of the streams, oldest first, without voids."""

    def __init__(self, streams: Streams) -> None:
        self.outcomes: dict[str, list[StoredRecord[Outcome]]] = defaultdict(list)
        for stored in streams.outcomes:
            self.outcomes[stored.message.order_id].append(stored)
        self._all = [self._with_outcome(stored) for stored in streams.orders if stored.message.void is None]
        self._by_victim: dict[str, list[OrderHistory]] = defaultdict(list)
        self._by_preemptor: dict[str, list[OrderHistory]] = defaultdict(list)
        self._by_behalf: dict[str, list[OrderHistory]] = defaultdict(list)
        for order in self._all:
            for uid in order.nominations:
                self._by_preemptor[uid].append(order)
            self._by_behalf[order.on_behalf_of].append(order)
            for uid in order.victim_uids:
                self._by_victim[uid].append(order)

    def __iter__(self) -> Iterator[OrderHistory]:
        return iter(self._all)

    def of_victim(self, uid: str) -> list[OrderHistory]:
        """The orders that name a pod as a victim, oldest first."""
        return self._by_victim.get(uid, [])

    def of_preemptor(self, uid: str) -> list[OrderHistory]:
        """The orders for a pod, or for its group, oldest first."""
        return self._by_preemptor.get(uid, [])

    def by_victim(self) -> Iterator[tuple[str, list[OrderHistory]]]:
        """Every victim's UID with its orders."""
        return iter(self._by_victim.items())

    def by_preemptor(self) -> Iterator[tuple[str, list[OrderHistory]]]:
        """The UID of every pod that room was made for, with its orders."""
        return ((uid, orders) for uid, orders in self._by_preemptor.items() if uid)

    def by_behalf(self) -> Iterator[tuple[str, list[OrderHistory]]]:
        """Every preemptor's UID, and every queue, with its orders."""
        return ((who, orders) for who, orders in self._by_behalf.items() if who)

    def _with_outcome(self, stored: StoredRecord[EvictionOrder]) -> OrderHistory:
        outcomes = self.outcomes.get(stored.message.order_id)
        first = outcomes[0] if outcomes else None
        return OrderHistory(
            order=stored.message,
            committed_at=stored.at,
            outcome=first.message if first else None,
            ended_at=first.at if first else None,
            subject=stored.subject,
        )
