"""The orders in one evictor's hands: how many, how large, and how many of one namespace only wait.

An order that waits (to try again, for another order, for a cap) keeps its place. So that those of one
namespace do not take all places, a namespace has a share: what waits beyond it, the least important first, is
given back to the stream, comes again in a moment, to whichever evictor has room, and is tried again then.
Nothing is lost by that: an order is carried out from what the cluster shows, whoever begins it, and its time
ends as it would have.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Final

import structlog

from makeway.evictor.limits.slots import Turn
from makeway.evictor.metrics import EvictorMetrics

MAX_IN_HAND: Final = 500
"""Places. Among the orders in hand an important one passes the others; when this process is killed, they are
given to another after `ACK_WAIT_SECONDS`. As many as a scheduler has under way, over two evictors."""

PLACE_BYTES: Final = 128 * 1024
"""Of an order's message, for each place that it takes: all places together are some 64 MiB."""

SHARE: Final = MAX_IN_HAND // 5
"""Places of one namespace's orders that wait; and of those that have not begun, while so many wait."""

MOST_WAITING: Final = MAX_IN_HAND // 2
"""Places of all orders that wait."""

GIVE_BACK_SECONDS: Final = 5.0
"""How long an order that was given back stays away, unless its time is over sooner."""

MOST_DELIVERIES: Final = 40
"""An order that was delivered so often is kept: one that was delivered more often yet is put aside."""

_log = structlog.get_logger()


def places_of(size: int) -> int:
    """Return how many places a message of so many bytes takes."""
    return 1 + size // PLACE_BYTES


@dataclass(eq=False)
class Place:
    """One order's. `cancel`: its task.

    `keeps`: it is never given back. `waits`: all that is left of it waits, as was noted. `back`: it has been
    given back, and its task is being cancelled.
    """

    turn: Turn
    places: int
    cancel: Callable[[], object]
    keeps: bool = False
    waits: bool = False
    back: bool = False

    @property
    def only_waits(self) -> bool:
        """Whether the order is among those that wait, and nothing of it is at work now."""
        return self.waits and self.turn.only_waits

    def give_back(self) -> None:
        """End the order here; it comes again."""
        if not self.back and not self.keeps:
            self.back = True
            self.cancel()


class Hand:
    """One evictor's orders."""

    def __init__(self, metrics: EvictorMetrics) -> None:
        self._metrics = metrics
        self._orders: dict[str, asyncio.Lock] = {}
        self._askers: defaultdict[str, int] = defaultdict(int)
        self._places: defaultdict[str, list[Place]] = defaultdict(list)
        self._waiting: defaultdict[str, int] = defaultdict(int)
        self._all_waiting = 0

    @asynccontextmanager
    async def alone(self, order_id: str) -> AsyncIterator[None]:
        """Hold an order; a second delivery of it waits here until the first has ended."""
        lock = self._orders.setdefault(order_id, asyncio.Lock())
        self._askers[order_id] += 1
        try:
            async with lock:
                yield
        finally:
            self._askers[order_id] -= 1
            if not self._askers[order_id]:
                del self._askers[order_id], self._orders[order_id]

    def take(self, place: Place) -> bool:
        """Take an order in hand; False where its namespace has orders enough that have not begun."""
        full = [one for one in place.turn.namespaces if self._waiting.get(one, 0) >= SHARE]
        for namespace in full:
            while not place.keeps and self._not_begun(namespace) + place.places > SHARE:
                least = _least(place, (one for one in self._places[namespace] if not one.turn.has_begun))
                if least is place:
                    place.back = True
                    self._count()
                    return False
                self._give_back(least)
        for namespace in place.turn.namespaces:
            self._places[namespace].append(place)
        return True

    def waits(self, place: Place) -> None:
        """Note that all which is left of an order waits; what is beyond the shares is given back.

        That is the least important of those that wait: this one, or others in its place.
        """
        if place.waits or place.back:
            return
        while not place.keeps and (full := self._full(place)) is not None:
            least = _least(place, (one for one in full if one.only_waits))
            self._give_back(least)
            if least is place:
                return
        place.waits = True
        self._all_waiting += place.places
        for namespace in place.turn.namespaces:
            before = self._waiting[namespace]
            self._waiting[namespace] += place.places
            if before < SHARE <= self._waiting[namespace]:
                _log.warning("namespace_share_full", namespace=namespace, orders=len(self._places[namespace]))
                self._shed(namespace)

    def leave(self, place: Place) -> None:
        """Free an order's places."""
        for namespace in place.turn.namespaces:
            if place in self._places[namespace]:
                self._places[namespace].remove(place)
            if not self._places[namespace]:
                del self._places[namespace]
        self._wait_no_more(place)

    def _wait_no_more(self, place: Place) -> None:
        for namespace in place.turn.namespaces if place.waits else ():
            self._waiting[namespace] -= place.places
            if not self._waiting[namespace]:
                del self._waiting[namespace]
        if place.waits:
            self._all_waiting -= place.places
        place.waits = False

    def _full(self, place: Place) -> Iterable[Place] | None:
        """Return the orders of whose share too little is left for one more that waits; None: of none."""
        for namespace in place.turn.namespaces:
            if self._waiting.get(namespace, 0) + place.places > SHARE:
                return self._places[namespace]
        beyond = self._all_waiting + place.places > MOST_WAITING
        return chain.from_iterable(self._places.values()) if beyond else None

    def _give_back(self, place: Place) -> None:
        self._wait_no_more(place)
        place.give_back()
        self._count()

    def _not_begun(self, namespace: str) -> int:
        return sum(
            one.places for one in self._places.get(namespace, ()) if not one.turn.has_begun and not one.back
        )

    def _shed(self, namespace: str) -> None:
        """Give back what has not begun beyond the share, the least important first."""
        over = self._not_begun(namespace) - SHARE
        for one in sorted(self._places[namespace], key=lambda one: one.turn.rank, reverse=True):
            if over <= 0:
                return
            if not one.turn.has_begun and not one.back and not one.keeps:
                self._give_back(one)
                over -= one.places

    def _count(self) -> None:
        self._metrics.given_back.inc()


def _least(place: Place, others: Iterable[Place]) -> Place:
    """Return the least important of a place and those others that can be given back."""
    return max(
        (place, *(one for one in others if not one.back and not one.keeps)), key=lambda one: one.turn.rank
    )
