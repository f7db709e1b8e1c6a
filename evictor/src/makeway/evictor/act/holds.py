"""What holds orders, and telling it: by an Event and a condition on who waits, which `makeway why` reads.

An order takes note in memory of what it waits for. A task of its own tells what lasts; no order waits for
that, and what cannot be told holds none up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

import structlog

from makeway.bus.messages import EvictionOrder
from makeway.core.k8s.disruption import PREEMPTION_HELD
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.times import api_time
from makeway.evictor.act.cluster import Cluster
from makeway.evictor.act.events import Events
from makeway.evictor.retry import Clock, PermanentError, TemporaryError

TELL_AFTER: Final = timedelta(seconds=5)
"""How long an order is held before that is shown: most waits are shorter."""

MOST_A_LOOK: Final = 10
"""Orders that one look tells of, the longest held first, so that a burst is not slowed by telling of it."""

MOST_MEMBERS: Final = 32
"""Members of a pod group that get the condition; the Event is on the PodGroup."""

LOOK_SECONDS: Final = 1.0

NAMESPACE_SHARE: Final = "namespace-share"
"""The reason of an order that was given back to the stream, since others have its places."""

AWAY: Final = timedelta(seconds=20)
"""An order that has not come again so long after it was to: another evictor has it, and shows it."""

_WORDS: Final = {
    "victims-per-minute": "the caps on evictions allow no more pods this minute",
    "victims-per-namespace": "the caps on evictions let no more pods of a namespace go this minute",
    "victims-share": "the caps on evictions allow no more pods in these ten minutes",
    "awaited-orders": "orders for other pods that make part of the room have not ended",
    "line": "other orders are carried out first",
    "budget": "a disruption budget allows no eviction now",
    NAMESPACE_SHARE: "other orders of its namespace, or of all, have the places of those that wait; "
    "it is tried again every few seconds",
}

_log = structlog.get_logger()


@dataclass
class Held:
    """An order that waits. `until`: when that ends at the latest. `told`: the reason that was told last."""

    order: EvictionOrder
    reason: str
    since: datetime
    until: datetime
    told: str = ""

    @property
    def message(self) -> str:
        """Say what holds it, and till when; without names, since tenants read it."""
        words = _WORDS.get(self.reason, f"an eviction is tried again ({self.reason})")
        return f"{words}; until {api_time(self.until, 'seconds')} at the latest"


class Holds:
    """What holds the orders of one evictor. Nothing of it awaits."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._over: dict[str, EvictionOrder] = {}
        self._given_back: dict[str, tuple[Held, datetime]] = {}

    def put(self, order: EvictionOrder, reason: str, now: datetime, until: datetime | None = None) -> None:
        """Take note of what holds an order from now on, its `not_after` at the latest."""
        known, ends = self._held.get(order.order_id), min(until or order.not_after, order.not_after)
        if known is None or known.reason != reason:
            told = known.told if known is not None else ""
            known = self._held[order.order_id] = Held(order, reason, now, ends, told)
        known.until = ends

    def end(self, order: EvictionOrder, *, again: bool = False) -> None:
        """Take note that nothing holds an order. `again`: an evictor that has ended may have told of it."""
        known = self._held.pop(order.order_id, None)
        if again or (known is not None and known.told):
            self._over[order.order_id] = order

    def give_back(self, order: EvictionOrder, now: datetime, again: datetime) -> None:
        """Take note that an order is given back, and comes again at a time.

        That holds it, whatever it waits for in between, until `keep`.
        """
        known, _ = self._given_back.get(order.order_id, (None, None))
        held = known or Held(order, NAMESPACE_SHARE, now, order.not_after)
        self._given_back[order.order_id] = held, again

    def keep(self, order: EvictionOrder) -> None:
        """Take note that an order is not given back any more: it has a place, or its end."""
        held, _ = self._given_back.pop(order.order_id, (None, None))
        if held is not None and held.told:
            self._over[order.order_id] = order

    def due(self, now: datetime) -> list[Held]:
        """Return what is to be told of now, the longest held first.

        Of an order that was given back only until it comes again: another evictor may have ended it since.
        """
        for name in [name for name, (_, again) in self._given_back.items() if now >= again + AWAY]:
            del self._given_back[name]
        held = [one for name, one in self._held.items() if name not in self._given_back]
        held += [one for one, again in self._given_back.values() if now < again]
        found = [one for one in held if one.told != one.reason and now - one.since >= TELL_AFTER]
        return sorted(found, key=lambda one: one.since)[:MOST_A_LOOK]

    def take_over(self) -> list[EvictionOrder]:
        """Return orders that were told of and are held no more, each once."""
        held = self._held.keys() | self._given_back.keys()
        found = [order for name, order in self._over.items() if name not in held][:MOST_A_LOOK]
        for order in found:
            del self._over[order.order_id]
        return found


class TellingOfHolds:
    """Tells of what holds orders; best effort."""

    def __init__(self, holds: Holds, cluster: Cluster, events: Events, clock: Clock) -> None:
        self._holds = holds
        self._cluster = cluster
        self._events = events
        self._clock = clock

    async def tell_forever(self) -> NoReturn:
        """Look every second."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Tell of what has been held for long, and take back what is over: of all orders side by side."""
        writes = [self._tell(held) for held in self._holds.due(self._clock.now())]
        removed = {"type": PREEMPTION_HELD, "$patch": "delete"}
        await asyncio.gather(*writes, *(self._write(order, removed) for order in self._holds.take_over()))

    async def _tell(self, held: Held) -> None:
        held.told = held.reason
        _log.info("order_held", order_id=held.order.order_id, reason=held.reason, message=held.message)
        self._events.held(held.order, held.message)
        condition = {
            "type": PREEMPTION_HELD,
            "status": "True",
            "reason": camel(held.reason),
            "message": held.message,
            "lastTransitionTime": api_time(self._clock.now(), "seconds"),
        }
        await self._write(held.order, condition)

    async def _write(self, order: EvictionOrder, condition: dict[str, Any]) -> None:
        """Write a condition to who waits; where no answer comes, as of a webhook that hangs, to no more."""
        for ref in order.placements[:MOST_MEMBERS]:
            for _ in range(3):
                try:
                    pod = await self._cluster.get_pod(ref.namespace, ref.name)
                    if pod is None or not _takes(pod, ref.uid, removes="$patch" in condition):
                        break
                    await self._cluster.set_condition(pod, condition)
                    break
                except (TemporaryError, PermanentError) as error:
                    if error.reason == "conflict":
                        continue
                    _log.warning("hold_not_told", pod=f"{ref.namespace}/{ref.name}", reason=str(error))
                    if error.reason == "unavailable":
                        return
                    break


def camel(reason: str) -> str:
    """Return a reason as conditions have it: `victims-share` is `VictimsShare`."""
    return "".join(part.capitalize() for part in reason.split("-"))


def _takes(pod: Pod, uid: str, *, removes: bool) -> bool:
    """Report whether a pod is the one meant, and its condition is to be changed; none that leaves is."""
    if pod.metadata.uid != uid or pod.metadata.deletion_timestamp is not None:
        return False
    if removes:
        return _has(pod.status.conditions or ())
    return not pod.spec.node_name


def _has(conditions: Iterable[Any]) -> bool:
    return any(one.type == PREEMPTION_HELD for one in conditions)
