"""The evictor's circuit breaker: deletes stop where what is ordered goes wrong again and again.

While it is open, orders are refused or stop where they are, as under the brake; rollbacks finish. What opens
it, and for whom, is chosen so that no author of pods can open it for others:

* `mismatches`: orders that no planner and no plugin writes, such as for a victim of a higher priority. It
  opens everywhere. What pods and their owners can bring about (a victim or a preemptor that is gone, a
  label that protects) is no mismatch.
* `signatures`: orders whose signature does not hold; everywhere.
* `wasted-victims`: victims whose preemptor did not get the place; for the preemptor's namespace alone, which
  its own pods can bring about. It closes by itself after ten minutes.
* `clock-skew`: this process's clock is not the API server's; for this process alone, until they agree. It
  takes no orders meanwhile, so that others carry them out.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from makeway.bus.messages import EvictionOrder, Outcome
from makeway.core.policy.breaker import Cause, Trip
from makeway.evictor.judge.verdicts import Refused
from makeway.evictor.limits.windows import TEN_MINUTES, Windows
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import Clock
from makeway.runtime.server_clock import SKEW, told

OPENS_AT: Final[dict[Cause, int]] = {"mismatches": 20, "signatures": 10, "wasted-victims": 20}
"""So many in ten minutes. Of victims, at least half must have been wasted as well."""

SKEWED_READINGS: Final = 3
"""So many in a row open the breaker: one may come from a server that was stopped for a while."""

MOST_NAMESPACES: Final = 1000
"""For which evidence is kept; more are not watched until some of it is old."""

NEVER_ORDERED: Final = frozenset({"invalid-name", "named-twice", "incomplete-order"})
"""Reasons to refuse an order that no writer of this project can have written, whatever clocks say."""

NEVER_VICTIMS: Final = frozenset(
    {"lower-priority", "higher-priority", "system-critical", "is-preemptor", "on-another-node"}
)
"""Reasons to spare a victim that do not change while it lives, so that no planner overlooks them.

Where an author may have changed what they rest on, `decide` names another: `pod-group` for the priority of a
group, `daemonset-not-proven` for a DaemonSet that lets equal priorities go.
"""

_log = structlog.get_logger()


class Breaker:
    """One evictor's. `set_anew`: called where its clock is off and nothing goes by it any more."""

    def __init__(
        self, clock: Clock, metrics: EvictorMetrics, set_anew: Callable[[], None] = lambda: None
    ) -> None:
        self._clock = clock
        self._set_anew = set_anew
        self._metrics = metrics
        self._listeners: list[Callable[[], None]] = []
        self._open: dict[str, Trip] = {}
        self._stored: set[str] = set()  # keys of `_open` that the ConfigMap has, or had
        self._counts = Windows(TEN_MINUTES)  # by cause
        self._evicted = Windows(TEN_MINUTES)  # victims, by the namespace that they were evicted for
        self._wasted = Windows(TEN_MINUTES)  # of these, those in vain
        self._skewed = 0
        self._reset_at: datetime | None = None  # the last reset that was taken
        self._show()

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Have a function called after it has opened or closed."""
        self._listeners.append(listener)

    # ------------------------------------------------------------------------------- evidence

    def report(self, cause: Cause, detail: str) -> None:
        """Count one of what no pod can bring about, and open everywhere where it is one too many."""
        now = self._clock.now()
        self._counts = self._counts.adding({cause: 1}, now, now)
        self._metrics.breaker_evidence.labels(cause).inc()
        if (total := self._counts.of(cause).total(now)) >= OPENS_AT[cause]:
            self._trip(cause, "", f"{total} in ten minutes, the last one: {detail}")

    def ended(self, outcome: Outcome) -> None:
        """Look at an order's end for what no right order comes to."""
        spared = [one.reason for one in outcome.victims if one.result == "spared"]
        if outcome.reason in NEVER_ORDERED or any(reason in NEVER_VICTIMS for reason in spared):
            self.report("mismatches", f"order {outcome.order_id}: {outcome.message}")

    def placed(self, namespace: str, victims: int, *, wasted: bool) -> None:
        """Count the victims of an order that succeeded: whether its preemptor got the place is known."""
        now = self._clock.now()
        known = self._evicted.counting(now).by_key
        if namespace not in known and len(known) >= MOST_NAMESPACES:
            return
        self._evicted = self._evicted.adding({namespace: victims}, now, now)
        if not wasted:
            return
        self._wasted = self._wasted.adding({namespace: victims}, now, now)
        self._metrics.breaker_evidence.labels("wasted-victims").inc(victims)
        lost, all_ = self._wasted.of(namespace).total(now), self._evicted.of(namespace).total(now)
        if lost >= OPENS_AT["wasted-victims"] and 2 * lost >= all_:
            self._trip("wasted-victims", namespace, f"{lost} of {all_} victims of ten minutes were wasted")

    def clock_read(self, ahead: timedelta) -> bool:
        """Take a reading of how far this clock is ahead of the API server's; report whether they agree.

        Negative: behind.
        """
        if abs(ahead) <= SKEW:
            self._skewed = 0
            self._close("clock-skew")
            return True
        self._skewed += 1
        self._metrics.breaker_evidence.labels("clock-skew").inc()
        if self._skewed >= SKEWED_READINGS:
            self._trip("clock-skew", "", f"this evictor's clock is {told(ahead)}")
            self._set_anew()
        return False

    # ------------------------------------------------------------------------------- what holds

    def open(self) -> tuple[Trip, ...]:
        """Return for what it is open now, what holds everywhere first."""
        now = self._clock.now()
        for key, trip in tuple(self._open.items()):
            if not trip.holds(now):
                self._close(key)
        return tuple(sorted(self._open.values(), key=lambda one: one.key))

    def refusal_of(self, order: EvictionOrder) -> Refused | None:
        """Return why no effect of an order may begin now; None where it may."""
        if not self._open:
            return None
        for trip in self.open():
            if not trip.namespace:
                return Refused("breaker-open", trip.describe())
            if order.room_for is not None and order.room_for.namespace == trip.namespace:
                return Refused("breaker-open-namespace", trip.describe())
        return None

    def describe(self) -> str:
        """Return for what it is open, for a person; empty where it is closed."""
        return "; ".join(trip.describe() for trip in self.open())

    def everywhere(self) -> str:
        """Return why nothing at all is deleted; empty where something may be."""
        return next((trip.describe() for trip in self.open() if not trip.namespace), "")

    # ------------------------------------------------------------------------------- the ConfigMap

    def unstored(self) -> tuple[Trip, ...]:
        """Return what the ConfigMap has to be told: of what other processes cannot see for themselves."""
        return tuple(
            trip for key, trip in self._open.items() if key not in self._stored and trip.cause != "clock-skew"
        )

    def now(self) -> datetime:
        """Return the time by which it opens and closes."""
        return self._clock.now()

    def take(self, found: dict[str, Trip], reset_at: datetime | None) -> None:
        """Go by what the ConfigMap says: what was there and is gone was reset, as is what is older.

        A new reset forgets the evidence as well, also where it had opened nothing yet.
        """
        now = self._clock.now()
        if reset_at is not None and reset_at != self._reset_at:
            self._reset_at = reset_at
            self._counts = self._evicted = self._wasted = Windows(TEN_MINUTES)
        for key, trip in tuple(self._open.items()):
            reset = key in self._stored and key not in found
            if trip.cause != "clock-skew" and (reset or trip.was_reset(reset_at)):
                self._close(key)
                self._clear(trip)
        for key, trip in found.items():
            if trip.holds(now) and trip.cause != "clock-skew":
                self._stored.add(key)
                if key not in self._open:
                    self._opened(trip)

    # ------------------------------------------------------------------------------- inner work

    def _trip(self, cause: Cause, namespace: str, detail: str) -> None:
        trip = Trip(cause, namespace, self._clock.now(), detail)
        if trip.key not in self._open:
            self._stored.discard(trip.key)
            self._opened(trip)

    def _opened(self, trip: Trip) -> None:
        self._open[trip.key] = trip
        _log.error("breaker_opened", cause=trip.cause, namespace=trip.namespace, detail=trip.detail)
        self._show()

    def _close(self, key: str) -> None:
        trip = self._open.pop(key, None)
        self._stored.discard(key)
        if trip is not None:
            _log.warning("breaker_closed", cause=trip.cause, namespace=trip.namespace)
            self._show()

    def _clear(self, trip: Trip) -> None:
        """Forget the evidence, so that a reset is not undone by the next order."""
        self._counts = self._counts.without(trip.cause)
        self._evicted = self._evicted.without(trip.namespace)
        self._wasted = self._wasted.without(trip.namespace)

    def _show(self) -> None:
        everywhere = sum(not trip.namespace for trip in self._open.values())
        self._metrics.breaker.labels("cluster").set(everywhere)
        self._metrics.breaker.labels("namespaces").set(len(self._open) - everywhere)
        for listener in self._listeners:
            listener()
