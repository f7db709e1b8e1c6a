"""Whether orders are carried out: what their outcomes, and the lack of them, say of NATS and of the evictors.

An order that comes to nothing through no fault of its pods costs its preemptor a nomination. After two in a
row no plan is made that would need another one; then one probes now and then, less often each time that it
comes to nothing too. Evictors refuse orders of all namespaces or of one. Orders without an outcome in their
time hold back those of their own namespace while all of them have one in common, whose admission webhook may
hang: only others show that no evictor is there. Pure state, with the time passed in.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from makeway.bus.messages import EvictionOrder, Outcome
from makeway.core.recent import Recent
from makeway.planner.orders.not_now import Asker, NotNow

NOT_STORED: Final = "OrdersNotStored"
NO_EVICTOR: Final = "NoEvictor"
"""Reasons for which no plan can be carried out: a scheduler may help itself."""

BREAKER_OPEN: Final = "EvictorsBreakerOpen"
"""Reason of a refusal: evictors refuse what they would have to carry out."""

_MESSAGES: Final = {
    NOT_STORED: "eviction orders cannot be stored",
    NO_EVICTOR: "no evictor answers",
    BREAKER_OPEN: "the evictors' breaker is open",
}

_OF_NAMESPACE: Final = {**_MESSAGES, NO_EVICTOR: "eviction orders have no outcome in time"}

IN_A_ROW: Final = 2
FIRST: Final = timedelta(seconds=5)
LONGEST: Final = timedelta(minutes=1)
"""After how many orders it opens, and for how long at first and at the most."""

TURN: Final = timedelta(seconds=2)
"""How long a plan may take to become the order that probes."""

MOST_NAMESPACES: Final = 1000
"""Namespaces of which refused orders are counted; for one more the eldest is forgotten."""

_LONG_AGO: Final = datetime.fromtimestamp(0, UTC)


@dataclass(slots=True)
class _Breaker:
    """`why` it is open, empty where it is closed.

    `turn`: UID of the preemptor whose plan may become the order that probes. `probe`: that order.
    """

    failed: Counter[str] = field(default_factory=Counter)
    why: str = ""
    lasts: timedelta = FIRST
    until: datetime = _LONG_AGO
    turn: str = ""
    probe: str = ""

    def held(self, uid: str, now: datetime) -> tuple[str, datetime] | None:
        """Return why no order of a preemptor may begin, and when one may."""
        if not self.why or now >= self.until or uid == self.turn:
            return None
        return self.why, self.until if not self.probe else min(self.until, now + self.lasts)

    def take_turn(self, uid: str, now: datetime) -> None:
        """Have a preemptor's order begin, which probes where it is open. Asking again prolongs no turn."""
        if self.why and now >= self.until:
            self.until, self.turn, self.probe = now + TURN, uid, ""

    def begun(self, order: EvictionOrder) -> None:
        """Have an order that has begun probe, where it is open."""
        if self.why:
            self.turn, self.probe, self.until = "", order.order_id, order.not_after

    def futile(self, order_id: str, why: str, at: datetime, *, opens: bool = True) -> None:
        self.failed[why] += 1
        if not self.why and (self.failed[why] < IN_A_ROW or not opens):
            return
        if self.why and self.probe != order_id:
            return  # one from before it opened
        self.lasts = min(2 * self.lasts, LONGEST) if self.why else FIRST
        self.why, self.turn, self.probe, self.until = why, "", "", at + self.lasts

    def works(self, why: str) -> None:
        self.failed[why] = 0
        if self.why == why:
            self.why, self.probe = "", ""

    def undecided(self, order_id: str, at: datetime) -> None:
        """The order that probed has ended, and says nothing: another one may."""
        if self.probe == order_id:
            self.probe, self.until = "", at


class Breakers:
    """One for all orders, and one for each namespace whose orders evictors refuse, or do not end in time.

    O(1) a call, but for the first outcome after an order that had none.
    """

    def __init__(self) -> None:
        self._all = _Breaker()
        self._by_namespace = Recent[str, _Breaker](MOST_NAMESPACES)
        self._unanswered: frozenset[str] | None = None  # the namespaces that all of them have

    def held(self, asking: Asker, now: datetime) -> NotNow | None:
        """Return why no order may be begun for a preemptor; None where one may.

        The turn to probe is taken only where nothing holds the preemptor: what is refused for one namespace
        keeps no other from probing. Who has the turn may ask again, as where its answer was lost.
        """
        namespace = asking.namespace
        asked = self._of_both(namespace)
        for one in asked:
            if (found := one.held(asking.uid, now)) is not None:
                why, until = found
                told = (
                    _MESSAGES[why] if one is self._all else f"{_OF_NAMESPACE[why]} for namespace {namespace}"
                )
                return NotNow(why, f"{told}; an order is tried now and then", until)
        for one in asked:
            one.take_turn(asking.uid, now)
        return None

    def begun(self, order: EvictionOrder) -> None:
        """Take note of an order that is about to be stored: where a breaker is open, it probes.

        Breakers hold none that makes room for no pod or group, so such a one does not.
        """
        for one in () if order.room_for is None else self._of_both(order.room_for.namespace):
            one.begun(order)

    def withdrawn(self, order: EvictionOrder) -> None:
        """Take note of an order that is not stored after all: where it was to probe, another one may."""
        for one in () if order.room_for is None else self._of_both(order.room_for.namespace):
            one.undecided(order.order_id, _LONG_AGO)

    def stored(self) -> None:
        """Take note that the stream takes orders."""
        self._all.works(NOT_STORED)

    def unstored(self, order_id: str, at: datetime) -> None:
        """Take note that it did not take one."""
        self._all.futile(order_id, NOT_STORED, at)

    def unanswered(self, order: EvictionOrder, at: datetime) -> None:
        """Take note of an order that has had no outcome in its time."""
        about = order.room_for
        own = {victim.namespace for victim in order.victims} | ({about.namespace} if about else set())
        common = self._unanswered = frozenset(own if self._unanswered is None else own & self._unanswered)
        self._all.futile(order.order_id, NO_EVICTOR, at, opens=not common)
        if about is not None and common:
            breaker = self._by_namespace.setdefault(about.namespace, _Breaker())
            breaker.futile(order.order_id, NO_EVICTOR, at)

    def ended(self, outcome: Outcome, namespace: str) -> None:
        """Take note of an outcome, and the namespace of its order's preemptor.

        Only what evictors decide after they have looked at their breaker counts as carried out: a pod's
        author can have an order cancelled or fail at any time, and must not keep pods of others waiting.
        """
        id_, at = outcome.order_id, outcome.finished_at
        self._all.works(NO_EVICTOR)
        for one in () if self._unanswered is None else self._by_namespace.values():
            one.works(NO_EVICTOR)
        self._unanswered = None
        if outcome.reason == "breaker-open":
            self._all.futile(id_, BREAKER_OPEN, at)
        elif outcome.reason == "breaker-open-namespace":
            self._all.works(BREAKER_OPEN)
            self._by_namespace.setdefault(namespace, _Breaker()).futile(id_, BREAKER_OPEN, at)
        elif outcome.result == "succeeded":
            self._all.works(BREAKER_OPEN)
            self._by_namespace.pop(namespace, None)
        for one in self._of_both(namespace):
            one.undecided(id_, at)

    def _of_both(self, namespace: str) -> tuple[_Breaker, ...]:
        """Return the breaker for all orders, and that of a namespace where it has one."""
        own = self._by_namespace.get(namespace)
        return (self._all,) if own is None else (self._all, own)
