"""What is in flight: which pods live orders are removing, from the streams and from commits.

Pure state: the service tells it what it reads, and the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from msgspec import structs

from makeway.bus.messages import PAST_DEADLINE, EvictionOrder, Outcome, Placement, StreamPosition, Void
from makeway.core.recent import Recent
from makeway.planner.orders.breakers import Breakers
from makeway.planner.orders.failures import OrderEnd, end_of, end_of_void
from makeway.planner.orders.limits import HeldOrder, LimitedPreemptors, limit_reached, most_orders
from makeway.planner.orders.not_now import Asker, NotNow
from makeway.planner.orders.pauses import Pauses
from makeway.planner.orders.pledges import Pledges
from makeway.planner.plan.left_out import PassedOver
from makeway.planner.plan.result import GangPlan, Plan
from makeway.planner.snapshot.state import Snapshot

REMEMBERED = timedelta(minutes=10)
"""How long an ended order is remembered, so that its order does not come to life where that is read later."""

STATUS_LAG = timedelta(seconds=10)
"""How long after its deletes an order may still be missing from the status of disruption budgets."""

OUTCOME_LAG = timedelta(seconds=1)
"""When a preemptor may ask again whose last order has ended by what its bridge knows, and not yet here."""

FRESH = timedelta(minutes=1)
"""How long ago the time of an order without an outcome may have ended to say something of the evictors: the
streams are read from their past, each by itself, and what has ended long ago is forgotten."""

MOST_NAMED = 100_000
"""Victims of orders that are remembered; for one more the eldest is forgotten. Some 100 bytes each."""


_NOWHERE: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class _Live:
    order: EvictionOrder
    preemptor: str
    victims: tuple[str, ...]
    until: datetime


def _unwatched(_: str) -> bool:
    """Report of no pod that it stays: for a ledger beside no watch."""
    return False


class Ledger:
    """Live and lately ended orders by id. A call costs O(orders in flight, and ended within STATUS_LAG).

    `staying`: reports whether the cluster, as it is watched here, shows a pod with a node and not being
    deleted. `_settled`: by pod, the order that succeeded and removed it, until the watch shows that.
    `_ended`, `_lately`: as outcomes came, which is about as the orders ended. `_named`: by pod, the end
    of the last order that names it, in the order in which they were read. `read_until`: the time of the
    monotonic clock before which all orders that were stored have been read. `outcomes_read`: how far their
    stream has been read. `pauses`: what ended orders say of their preemptors. `pledges`: what answered plans
    are about to order. `breakers`: whether orders are carried out.
    """

    def __init__(self, staying: Callable[[str], bool] = _unwatched) -> None:
        self.read_until = 0.0
        self.outcomes_read: StreamPosition | None = None
        self.pauses = Pauses()
        self.pledges = Pledges(staying)
        self.breakers = Breakers()
        self._waiting = LimitedPreemptors()
        self._staying = staying
        self._settled: dict[str, str] = {}
        self._live: dict[str, _Live] = {}
        self._reserved: set[str] = set()
        self._ended: dict[str, OrderEnd] = {}
        self._lately: deque[OrderEnd] = deque()
        self._named = Recent[str, datetime](MOST_NAMED)

    def __len__(self) -> int:
        """How many orders are taken for live."""
        return len(self._live)

    def has_read(self, outcomes: StreamPosition | None) -> bool:
        """Report whether the outcomes that another has read have been read here, as far as can be compared.

        One that follows a stream which was made anew in the meantime counts otherwise.
        """
        own = self.outcomes_read
        if outcomes is None or own is None or own.created != outcomes.created:
            return True
        return own.sequence >= outcomes.sequence

    def ordered(self, order: EvictionOrder) -> None:
        """Take note of an order that is stored; one whose outcome was read first stays ended."""
        self.breakers.stored()
        self._enter(order)

    def _enter(self, order: EvictionOrder) -> None:
        self._reserved.discard(order.order_id)
        self._name((victim.uid for victim in order.victims), order.not_after)
        ended = self._ended.get(order.order_id)
        if ended is not None:
            self.pauses.ended(order, ended)
        else:
            victims = tuple(victim.uid for victim in order.victims)
            until = order.not_after + PAST_DEADLINE
            self._live[order.order_id] = _Live(order, order.preemptor_uid, victims, until)

    def voided(self, order: EvictionOrder, why: Void) -> None:
        """Take note of an order that is not stored, for good."""
        self.pauses.ended(order, end_of_void(why, order.created_at))

    def reserve(self, order: EvictionOrder) -> None:
        """Take note of an order that is about to be stored; it counts as live, until it is withdrawn."""
        known = order.order_id in self._ended or order.order_id in self._live
        if not known or order.order_id in self._reserved:
            self._enter(order)
            self._reserved.add(order.order_id)
            self.breakers.begun(order)

    def withdraw(self, order_id: str) -> None:
        """Forget an order that was not stored; one that was read from the stream stays."""
        if order_id in self._reserved:
            self._reserved.discard(order_id)
            if (live := self._live.pop(order_id, None)) is not None:
                self.breakers.withdrawn(live.order)

    def unstored(self, order_id: str, now: datetime) -> None:
        """Take note that the stream did not take an order."""
        self.breakers.unstored(order_id, now)

    def reserved(self) -> frozenset[str]:
        """Return the ids of the orders that are about to be stored."""
        return frozenset(self._reserved)

    def live_beside(self, uid: str, order_id: str, now: datetime) -> str:
        """Return the id of another live order for a pod or PodGroup; empty for none. O(orders)."""
        self._forget(now)
        return next((id_ for id_, one in self._live.items() if one.preemptor == uid and id_ != order_id), "")

    def ended(self, outcome: Outcome) -> bool:
        """Take note of an outcome: its pods are gone, leaving, or stay. Report whether it is new."""
        new = outcome.order_id not in self._ended
        live = self._live.pop(outcome.order_id, None)
        self._name((victim.uid for victim in outcome.victims), outcome.finished_at)
        ended = self._ended[outcome.order_id] = end_of(outcome)
        if ended.succeeded:
            self._settled.update(dict.fromkeys(ended.removed, outcome.order_id))
        about = None if live is None else live.order.room_for
        if new:
            self.breakers.ended(outcome, "" if about is None else about.namespace)
        if live is not None:
            self.pauses.ended(live.order, ended)
        self._lately.append(ended)
        return new

    def forget_live(self) -> list[EvictionOrder]:
        """Forget the live orders, and return them: their stream was made anew, and is read again."""
        lost = [one.order for id_, one in self._live.items() if id_ not in self._reserved]
        self._live = {id_: one for id_, one in self._live.items() if id_ in self._reserved}
        return lost

    def in_flight(
        self, now: datetime, *, asking: str = "", plan: str = "", pledged: int | None = None
    ) -> dict[str, str]:
        """Return the UIDs that live orders remove, each with its order's id.

        Victims of an order that has succeeded need no second order, so they count as in flight until the
        watch here shows them leaving. A pod that two orders name belongs to the elder. `asking`: UID of the
        preemptor that asks. A preemptor with a live order does not ask, so an order of its own has ended,
        though its outcome was not read here yet; to count on its victims would be to count on an order that
        failed. Nor does it count on an order that is not stored and waits for its own, or for its plan: each
        would wait for the other. `plan`: by id, the one that it commits; else its last one.
        `pledged`: with what is pledged to pods of at least this priority.
        """
        self._forget(now)
        own = {order_id for order_id, live in self._live.items() if asking and live.preemptor == asking}
        waited_for = {*own, plan or self.pledges.id_of(asking)}
        victims = {
            order_id: live.victims
            for order_id, live in self._live.items()
            if order_id not in own
            and not (order_id in self._reserved and waited_for.intersection(live.order.counts_on))
        }
        self._settled = {uid: order_id for uid, order_id in self._settled.items() if self._staying(uid)}
        found = dict(self._settled)
        for order_id in sorted(victims):
            for uid in victims[order_id]:
                found.setdefault(uid, order_id)
        return (
            found if pledged is None else self.pledges.victims(now, asking=asking, priority=pledged) | found
        )

    def places(self, now: datetime, *, asking: str = "") -> dict[str, Placement]:
        """Return where pledges and live orders place other pods, by UID: also before a nomination shows."""
        self._forget(now)
        places = [place for one in self.pledges.live(now, asking=asking) for place in one.places]
        places += [
            place for one in self._live.values() if one.preemptor != asking for place in one.order.placements
        ]
        return {one.uid: one for one in places}

    def left_out(
        self, uid: str, now: datetime, *, pledged: int | None = None, nominated: Mapping[str, str] = _NOWHERE
    ) -> PassedOver:
        """Return what the next plan for a pod or PodGroup leaves out: what its orders that failed teach.

        `pledged`: as of `in_flight`. Who asks again and again while its last plan is pledged could use none:
        the next counts on no pledge of which nothing is `nominated`, since each could wait for the other.
        An order of its own that is live here has ended, as of `in_flight`: its outcome was not read here yet,
        and may say what is wrong with its node. O(orders).
        """
        known = self.pauses.left_out(uid, now)
        if pledged is not None:
            unused = self.pledges.unused(now, asking=uid, priority=pledged, nominated=nominated)
            known = structs.replace(known, pledged=unused)
        unread = {
            live.order.node
            for order_id, live in self._live.items()
            if live.preemptor == uid and live.order.node and order_id not in self._reserved
        }
        if not unread:
            return known
        soon = now + OUTCOME_LAG
        until = soon if known.until is None else min(known.until, soon)
        return structs.replace(known, nodes=known.nodes | unread, until=until)

    def held(self, now: datetime, *, asking: str = "") -> list[HeldOrder]:
        """Return the orders without an outcome that count towards the limit; those of quotas do not.

        `asking`: as of `in_flight`.
        """
        self._forget(now)
        return [
            HeldOrder(about.namespace, about.priority, live.until)
            for live in self._live.values()
            if live.preemptor != asking and (about := live.order.room_for) is not None
        ]

    def limit(self, asking: Asker, plan: Plan | GangPlan, snapshot: Snapshot, now: datetime) -> NotNow | None:
        """Return why a plan may not be carried out now, and note that its preemptor waits; None where it may.

        It may probe whether orders are carried out. The limit is that of the policy in force; what is pledged
        counts.
        """
        if not plan.needs_order:
            return None
        reached = self.over_limit(asking, snapshot, now, pledged=True)
        return reached or self.breakers.held(asking, now)

    def over_limit(
        self, asking: Asker, snapshot: Snapshot, now: datetime, *, pledged: bool = False
    ) -> NotNow | None:
        """Return why a preemptor may not have an order now; as `limit`."""
        held = self.held(now, asking=asking.uid)
        if pledged:
            held += [
                HeldOrder(one.preemptor.namespace, one.preemptor.priority, one.until)
                for one in self.pledges.live(now, asking=asking.uid)
                if one.needs_order
            ]
        most = most_orders(snapshot.exemptions.policy.limits)
        others_wait = self._waiting.beside(asking.namespace, snapshot.pods, now)
        reached = limit_reached(asking, held, most, now, others_wait=others_wait)
        if reached is None:
            self._waiting.served(asking.uid)
            return None
        self._waiting.refused(asking, now)
        policy = snapshot.exemptions.source
        return reached if policy is None else replace(reached, depends_on=(*reached.depends_on, policy))

    def names(self, uid: str) -> bool:
        """Report whether an order names a pod as a victim, or has done so lately, however it ended. O(1)."""
        return uid in self._named

    def makes_room_for(self, uid: str) -> bool:
        """Report whether a live order makes room for a pod or a PodGroup. O(orders)."""
        return any(live.preemptor == uid for live in self._live.values())

    def quota_orders(self, now: datetime) -> list[EvictionOrder]:
        """Return the live orders of quotas, one a queue: the last."""
        self._forget(now)
        live = [one.order for _, one in sorted(self._live.items()) if one.order.kind == "quota"]
        return list({order.queue: order for order in live}.values())

    def leaving(self, now: datetime) -> frozenset[str]:
        """Return the UIDs that orders removed so lately that budgets may not show it."""
        self._forget(now)
        return frozenset().union(*(ended.removed for ended in self._lately if now - ended.at <= STATUS_LAG))

    def _name(self, uids: Iterable[str], at: datetime) -> None:
        for uid in uids:
            self._named[uid] = at

    def _forget(self, now: datetime) -> None:
        for order_id in [order_id for order_id, live in self._live.items() if live.until < now]:
            live = self._live.pop(order_id)
            if order_id not in self._reserved and now - live.until <= FRESH:
                self.breakers.unanswered(live.order, live.until)
            self._reserved.discard(order_id)
        while self._ended and now - next(iter(self._ended.values())).at > REMEMBERED:
            order_id = next(iter(self._ended))
            for uid in self._ended.pop(order_id).removed:
                if self._settled.get(uid) == order_id:
                    del self._settled[uid]
        while self._named and now - next(iter(self._named.values())) > REMEMBERED:
            self._named.popitem(last=False)
        while self._lately and now - self._lately[0].at > STATUS_LAG:
            self._lately.popleft()
