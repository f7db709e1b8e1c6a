"""Preemptors for which room is made again and again, and that are not bound: each waits, longer each time.

What keeps such a pod is nothing that a plan knows: an extender's filter, a volume, an admission webhook.
Every further order costs pods for nothing. All of it is read from orders and their outcomes, so a planner
that starts knows what the streams still tell. Pure state, with the time passed in.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from makeway.bus.messages import EvictionOrder, Placement
from makeway.core.k8s.importance import NOT_STARTED, microseconds
from makeway.core.k8s.times import api_time
from makeway.planner.orders.failures import Failures, OrderEnd
from makeway.planner.orders.not_now import Asker, NotNow
from makeway.planner.plan.left_out import NOTHING_PASSED_OVER, PassedOver
from makeway.planner.plan.result import Plan
from makeway.planner.snapshot.state import Snapshot

PREEMPTION_PAUSED: Final = "PreemptionPaused"
"""Reason of a refusal of a plan for a pod or a group that waits here."""

TRIES: Final = 3
"""How often room is made, or how many orders in a row come to nothing, before a preemptor waits."""

PAUSES: Final = tuple(timedelta(minutes=minutes) for minutes in (1, 2, 4, 8, 10))
"""After the third room that came to nothing, the fourth, and so on; the last is the longest."""

FIRST_FAILED: Final = timedelta(seconds=1)
LONGEST_FAILED: Final = timedelta(minutes=1)
"""After the third order in a row that made no room, doubled with each further one."""

REMEMBERED: Final = timedelta(minutes=30)
"""How long a preemptor is remembered after its last order."""

MOST_PREEMPTORS: Final = 10_000
MOST_IN_NAMESPACE: Final = 500
"""Preemptors that are remembered, in all and of one namespace; for one more the eldest is forgotten."""

_MOST_ROOMS: Final = 8
_MOST_NAMED: Final = 64
"""Rooms that are remembered of a preemptor, and victims and nodes of each: as many are looked for."""


@dataclass(frozen=True, slots=True)
class RoomMade:
    """What an order that succeeded made: on which nodes, when, by which victims, for which pods of a group.

    Pods by UID; `members` is empty where the preemptor is a pod.
    """

    nodes: tuple[str, ...]
    at: datetime
    victims: tuple[str, ...]
    members: tuple[str, ...] = ()


@dataclass(slots=True)
class _Tries:
    """What became of one preemptor's orders.

    `orders`: ids of the last ones, each of which counts once. `rooms`: the last that were made. `failed`:
    orders in a row that made none. `last`: when the last order ended. `held_for`: how many rooms had come to
    nothing, and when the last one was made, when `until` was set. `failures`: pods and nodes to leave out.
    """

    namespace: str
    last: datetime
    orders: deque[str] = field(default_factory=lambda: deque(maxlen=2 * _MOST_ROOMS))
    rooms: deque[RoomMade] = field(default_factory=lambda: deque(maxlen=_MOST_ROOMS))
    failed: int = 0
    held_for: tuple[int, datetime] | None = None
    until: datetime | None = None
    failures: Failures = field(default_factory=Failures)


class Pauses:
    """By the UID of the pod or PodGroup, by when their last orders ended. A call costs O(pods of a node)."""

    def __init__(self) -> None:
        self._tries: OrderedDict[str, _Tries] = OrderedDict()
        self._by_namespace: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many preemptors are remembered."""
        return len(self._tries)

    def ended(self, order: EvictionOrder, end: OrderEnd) -> None:
        """Take note of an order's end."""
        about = order.room_for
        if about is None or not end.counts:
            return
        known = self._tries.pop(about.uid, None)
        if known is None:
            known = _Tries(about.namespace, end.at)
            self._make_room(about.namespace)
            self._by_namespace[about.namespace] += 1
        self._tries[about.uid] = known
        if order.order_id in known.orders:
            return  # its stream was read again
        known.orders.append(order.order_id)
        known.last = max(known.last, end.at)
        if not end.succeeded:
            known.failed += 1
            known.failures.ended(end, order.node, about.namespace)
            return
        known.failed = 0
        if not end.removed:
            return  # the victims are another order's
        nodes = dict.fromkeys([order.node] if order.node else (one.node for one in order.members))
        members = tuple(one.uid for one in order.members[:_MOST_NAMED])
        known.rooms.append(RoomMade(tuple(nodes)[:_MOST_NAMED], end.at, end.removed[:_MOST_NAMED], members))

    def left_out(self, uid: str, now: datetime) -> PassedOver:
        """Return what the next plan for a pod or PodGroup leaves out. O(what is left out)."""
        known = self._tries.get(uid)
        return NOTHING_PASSED_OVER if known is None else known.failures.at(now)

    def of(self, asking: Asker, snapshot: Snapshot, now: datetime) -> NotNow | None:
        """Return why a preemptor waits; None where it need not.

        That a pod asks for a plan means that it is not bound; a group may ask for other pods than those of a
        room. A room counts once its victims have left, and not where a pod of at least its priority has
        started there since, nor where none of the group's pods that it was made for waits any more.
        """
        self._forget(now)
        known = self._tries.get(asking.uid)
        if known is None:
            return None
        unused = sum(_came_to_nothing(known.rooms, asking, snapshot))
        if unused >= TRIES:
            if known.held_for != (unused, known.rooms[-1].at):
                known.held_for = unused, known.rooms[-1].at
                known.until = now + PAUSES[min(unused - TRIES, len(PAUSES) - 1)]
            if known.until is not None and now < known.until:
                message = _unused(known.rooms[-1], _what(asking), unused, known.until)
                return NotNow(PREEMPTION_PAUSED, message, known.until)
        if known.failed >= TRIES:
            until = known.last + min(FIRST_FAILED * 2 ** min(known.failed - TRIES, 10), LONGEST_FAILED)
            if now < until:
                return NotNow(PREEMPTION_PAUSED, _failed(_what(asking), known.failed, until), until)
        return None

    def tried(self, asking: Asker, snapshot: Snapshot, nominations: Iterable[Placement]) -> frozenset[str]:
        """Return the nodes where room was made and came to nothing, for a preemptor that asks again.

        Not those to which other pods of at least its priority are nominated: they may be all that kept it
        from its room, and its place there comes when they are bound. O(nominations) after a room, else O(1).
        """
        known = self._tries.get(asking.uid)
        if known is None:
            return frozenset()
        unused = zip(known.rooms, _came_to_nothing(known.rooms, asking, snapshot), strict=True)
        nodes = frozenset(node for room, nothing in unused if nothing for node in room.nodes)
        return nodes - _contested(asking, snapshot, nominations) if nodes else nodes

    def paused(self, now: datetime) -> int:
        """Return how many preemptors wait after rooms that came to nothing. O(preemptors)."""
        return sum(one.until is not None and now < one.until for one in self._tries.values())

    def _make_room(self, namespace: str) -> None:
        if self._by_namespace[namespace] >= MOST_IN_NAMESPACE:
            self._drop(next(uid for uid, one in self._tries.items() if one.namespace == namespace))
        elif len(self._tries) >= MOST_PREEMPTORS:
            self._drop(next(iter(self._tries)))

    def _drop(self, uid: str) -> None:
        namespace = self._tries.pop(uid).namespace
        self._by_namespace[namespace] -= 1
        if not self._by_namespace[namespace]:
            del self._by_namespace[namespace]

    def _forget(self, now: datetime) -> None:
        while self._tries:
            uid, eldest = next(iter(self._tries.items()))
            if now - eldest.last <= REMEMBERED:
                return
            self._drop(uid)


def elsewhere(plan: Plan, tried: frozenset[str]) -> Plan:
    """Return a plan without the candidates on some nodes; as it is where there are no others."""
    kept = plan.keeping(lambda one: one.node not in tried)
    return plan if len(kept.candidates) in (0, len(plan.candidates)) else kept


def _contested(asking: Asker, snapshot: Snapshot, nominations: Iterable[Placement]) -> frozenset[str]:
    """Return the nodes to which other pods of at least a preemptor's priority are nominated."""
    pods = snapshot.pods
    return frozenset(
        one.node
        for one in nominations
        if one.uid != asking.uid and one.uid in pods and pods[one.uid].priority >= asking.priority
    )


def _left(room: RoomMade, snapshot: Snapshot) -> bool:
    return not any(uid in snapshot.pods for uid in room.victims)


def _came_to_nothing(rooms: Sequence[RoomMade], asking: Asker, snapshot: Snapshot) -> list[bool]:
    """Report of each room whether its victims have left, no pod took it that may, and its pods wait."""
    ends = [*(microseconds(room.at) for room in list(rooms)[1:]), NOT_STARTED]
    return [
        _left(room, snapshot) and _wanted(room, snapshot) and not _taken(room, until, asking, snapshot)
        for room, until in zip(rooms, ends, strict=False)
    ]


def _wanted(room: RoomMade, snapshot: Snapshot) -> bool:
    members = (snapshot.pods.get(uid) for uid in room.members)
    return not room.members or any(one is not None and not one.node for one in members)


def _taken(room: RoomMade, until: int, asking: Asker, snapshot: Snapshot) -> bool:
    since = microseconds(room.at.replace(microsecond=0))  # start times are in whole seconds
    return any(
        pod.priority >= asking.priority and since <= pod.start_micros <= until and pod.uid != asking.uid
        for node in room.nodes
        for pod in snapshot.pods_of(node)
    )


def _what(asking: Asker) -> str:
    return "pod" if asking.is_pod else "group"


def _unused(last: RoomMade, what: str, unused: int, until: datetime) -> str:
    where = f" on node {last.nodes[0]}" if len(last.nodes) == 1 else ""
    return (
        f"room was made for this {what} {unused} times, the last time{where} at {api_time(last.at)}, and it "
        f"was not bound: something keeps it that no plan knows; the next try is at {api_time(until)}"
    )


def _failed(what: str, orders: int, until: datetime) -> str:
    return (
        f"the last {orders} eviction orders for this {what} made no room; "
        f"the next try is at {api_time(until)}"
    )
