"""The orders of one nominator that are under way, from the choice of a node until the pod is bound. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from makeway.bus.messages import PAST_DEADLINE, EvictionOrder, Outcome, Victim
from makeway.bus.tracing import OpenSpan

SHOWS_WITHIN: Final = timedelta(seconds=1)
"""How long after kube-scheduler has cleared a nomination that of the pod which it preempts for may show."""

NEVER_YET: Final = datetime.min.replace(tzinfo=UTC)


@dataclass
class OrderInFlight:
    """One of them. `until`: when it is taken for over, whatever is heard of it.

    `order`: as it is stored, and before that as it was asked for. `stored`: it is in its stream. `outcome`:
    as it was heard; `made`: it says that the room was made. `since`: when the pod was first seen to wait;
    None where another nominator saw it. `shown`: the pod has been seen nominated by it. `lost`: that
    nomination is gone, and so the order makes room for no pod any more: "cleared" or "changed" by others, or
    "yielded" to a pod of higher priority; else empty. `lost_at`: since when. `looks_at`: when its room is
    looked at next; `leaving`: the victims that were not seen to have left. `clears_at`: when its nomination,
    which is to be taken back, is tried next.
    `waits`: terminating pods alone make the room, until `until`; then no order is stored. `preemption`: its
    trace, until its outcome.
    """

    order: EvictionOrder
    until: datetime
    stored: bool = False
    outcome: Outcome | None = None
    made: bool = False
    since: datetime | None = None
    shown: bool = False
    lost: str = ""
    lost_at: datetime = NEVER_YET
    waits: bool = False
    looks_at: datetime = NEVER_YET
    leaving: list[Victim] = field(default_factory=list)
    clears_at: datetime = NEVER_YET
    preemption: OpenSpan = field(default_factory=OpenSpan)

    def is_stored(self, order: EvictionOrder) -> None:
        """Take note that an order is in its stream."""
        self.order, self.stored, self.until = order, True, order.not_after + PAST_DEADLINE

    def wait(self, until: datetime) -> None:
        """Take note that no order is needed: the pods whose room it is leave anyway."""
        self.waits = self.made = True
        self.until = until

    def lose(self, how: str, now: datetime) -> None:
        """Take note that its nomination is gone, as `lost` says it."""
        self.lost_at = self.lost_at if self.lost else now
        self.lost = how

    def makes_no_room(self, now: datetime) -> bool:
        """Report whether its nomination is gone, and it was seen for whom, where that shows."""
        return self.lost == "yielded" or (bool(self.lost) and now >= self.lost_at + SHOWS_WITHIN)

    @property
    def uid(self) -> str:
        """UID of the preemptor."""
        return self.order.preemptor.uid if self.order.preemptor is not None else ""

    @property
    def is_lost_to_others(self) -> bool:
        """Whether its nomination is gone, and no evictor took it back since the order failed."""
        rollback = self.outcome.rollback if self.outcome is not None else None
        reverted = rollback is not None and rollback.nomination_reverted
        return self.lost not in ("", "yielded") and not reverted


class OrdersInFlight:
    """By preemptor, of which each has one at the most."""

    def __init__(self) -> None:
        self._by_uid: dict[str, OrderInFlight] = {}

    def __len__(self) -> int:
        """How many there are, with those whose pods are about to be bound."""
        return len(self._by_uid)

    def __iter__(self) -> Iterator[OrderInFlight]:
        """Each of them."""
        return iter(tuple(self._by_uid.values()))

    def begin(
        self,
        order: EvictionOrder,
        *,
        stored: bool = False,
        waits_until: datetime | None = None,
    ) -> OrderInFlight:
        """Take note of an order. `waits_until`: terminating pods alone make the room, and may until then."""
        begun = OrderInFlight(order, order.not_after + PAST_DEADLINE, stored)
        if waits_until is not None:
            begun.wait(waits_until)
        self._by_uid[begun.uid] = begun
        return begun

    def of(self, uid: str) -> OrderInFlight | None:
        """Return the order for a preemptor."""
        return self._by_uid.get(uid)

    def get(self, order_id: str) -> OrderInFlight | None:
        """Return an order by its id. O(orders)."""
        return next((one for one in self._by_uid.values() if one.order.order_id == order_id), None)

    def end(self, one: OrderInFlight) -> None:
        """Forget an order."""
        if self._by_uid.get(one.uid) is one:
            del self._by_uid[one.uid]

    def clears(self, uid: str) -> bool:
        """Report whether one of them takes a place from a pod of lower priority that is nominated to it."""
        return any(ref.uid == uid for one in self for ref in one.order.nominations_to_clear)

    def outnominated_by(self, order: EvictionOrder) -> tuple[OrderInFlight, ...]:
        """Return those whose place an order takes once its pod is bound there."""
        uids = {ref.uid for ref in order.nominations_to_clear}
        return tuple(one for one in self if one.uid in uids and one.order.node == order.node)

    def to_look_at(self, now: datetime, most: int) -> frozenset[str]:
        """Return for which pods room was made that is to be looked at now: so many, those due longest."""
        due = sorted(
            (one for one in self if one.made and one.looks_at <= now), key=lambda one: (one.looks_at, one.uid)
        )
        return frozenset(one.uid for one in due[:most])

    def without_outcome(self) -> int:
        """Return how many wait for their outcome."""
        return sum(not one.made and one.outcome is None for one in self._by_uid.values())
