"""How many orders may be without an outcome at once, and how many of those one namespace may have.

The limit is the policy's `limits.ordersInFlight`. A tenth of it is kept for preemptors of a priority above
those that hold the rest, so that no number of them stops a more important pod. One namespace has at most a
quarter while preemptors of others wait. An order counts until its outcome is read: how long its victims take
to leave is no matter. The rule is pure; `LimitedPreemptors` is state that is given the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from makeway.core.policy.document import PolicyLimits
from makeway.core.recent import Recent
from makeway.planner.orders.not_now import Asker, NotNow
from makeway.planner.snapshot.records import PodRecord

ORDERS_IN_FLIGHT: Final = "OrdersInFlight"
NAMESPACE_SHARE: Final = "NamespaceShare"
"""Reasons of refusals: of the limit, and of what one namespace may have of it."""

MOST_ORDERS: Final = 1000
"""Orders without an outcome, whatever the policy says: so many fit into the memory of each part."""

DEPENDS_ON_ORDERS: Final = ("orders", "limits.ordersInFlight")
"""Kind and name of what these refusals depend on: the scheduler's plugin tries again as orders end. The
namespace is that of the orders that have to end, empty where any will do."""

LATELY: Final = timedelta(minutes=2)
"""How long a refused preemptor counts as waiting: longer than the refusal has it wait."""

ASKED_AGAIN: Final = timedelta(seconds=15)
"""When a refused preemptor asks again at the latest: the last of the outcomes that made room may have reached
its scheduler before it reached the planner, and then no other order has to end."""

UNSTORED: Final = timedelta(seconds=5)
"""Within what time an order that no stream has yet is stored, or is over."""

MOST_WAITING: Final = 10_000
"""Preemptors that are remembered as waiting; for one more the eldest is forgotten."""

MOST_NAMESPACES: Final = 19
"""Namespaces that the metric names; all others are one."""


class HeldOrder(msgspec.Struct, frozen=True, gc=False):
    """An order without an outcome. `until`: when it is over at the latest; None where that is not known."""

    namespace: str
    priority: int
    until: datetime | None = None


def most_orders(limits: PolicyLimits) -> int:
    """Return how many orders may be without an outcome."""
    return min(limits.orders_in_flight or MOST_ORDERS, MOST_ORDERS)


def kept_for_higher(most: int) -> int:
    """Return how many of so many orders are kept for preemptors above those that hold the rest: a tenth."""
    return max(1, most // 10) if most > 1 else 0


def share_of(most: int) -> int:
    """Return how many of so many orders one namespace has while others wait: a quarter, at least one."""
    return max(1, most // 4)


def limit_reached(
    asking: Asker, held: Sequence[HeldOrder], most: int, now: datetime, *, others_wait: bool
) -> NotNow | None:
    """Return why a preemptor may have no order beside those `held`; None where it may. O(orders).

    Who is above the orders that hold all but the tenth may have one of it, whatever its namespace has.
    """
    kept, share = kept_for_higher(most), share_of(most)
    if len(held) < most and sum(one.priority < asking.priority for one in held) >= most - kept:
        return None
    own = [one for one in held if one.namespace == asking.namespace]
    if others_wait and len(own) >= share:
        return _reached(
            NAMESPACE_SHARE,
            f"{len(own)} eviction orders for namespace {asking.namespace} have no outcome yet; while "
            f"preemptors of other namespaces wait, one namespace has at most {share} of the {most} that "
            "limits.ordersInFlight of the policy allows",
            own,
            now,
            asking.namespace,
        )
    if len(held) < most - kept:
        return None
    of_these = f", of which {kept} are kept for higher priorities" if len(held) < most else ""
    return _reached(
        ORDERS_IN_FLIGHT,
        f"{len(held)} eviction orders have no outcome yet, and limits.ordersInFlight of the policy allows "
        f"{most}{of_these}",
        held,
        now,
    )


def _reached(reason: str, why: str, held: Sequence[HeldOrder], now: datetime, namespace: str = "") -> NotNow:
    until = min((one.until for one in held if one.until is not None), default=now)
    retry_at = min(max(until, now + UNSTORED), now + ASKED_AGAIN)
    kind, name = DEPENDS_ON_ORDERS
    message = f"{why}; the next try is when one of them ends"
    return NotNow(reason, message, retry_at, ((kind, namespace, name),))


class LimitedPreemptors:
    """Preemptors that were refused an order for the limit lately, the last refused last."""

    def __init__(self) -> None:
        self._refused = Recent[str, tuple[Asker, datetime]](MOST_WAITING)

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._refused)

    def refused(self, preemptor: Asker, now: datetime) -> None:
        """Take note of one."""
        self._refused[preemptor.uid] = preemptor, now

    def served(self, uid: str) -> None:
        """Forget one: it was given a plan."""
        self._refused.pop(uid, None)

    def beside(self, namespace: str, pods: Mapping[str, PodRecord], now: datetime) -> bool:
        """Report whether preemptors of other namespaces wait. O(waiting).

        `pods`: all there are, by UID; one that is bound or gone does not wait.
        """
        while self._refused and now - next(iter(self._refused.values()))[1] > LATELY:
            self._refused.popitem(last=False)
        return any(
            one.namespace != namespace and (not one.is_pod or (one.uid in pods and not pods[one.uid].node))
            for one, _ in self._refused.values()
        )


def by_namespace(held: Iterable[HeldOrder]) -> dict[str, int]:
    """Return how many orders are held by namespace: those with the most by name, the others as `other`."""
    counted = sorted(Counter(one.namespace for one in held).items(), key=lambda one: (-one[1], one[0]))
    named = dict(counted[:MOST_NAMESPACES])
    if rest := sum(count for _, count in counted[MOST_NAMESPACES:]):
        named["other"] = named.get("other", 0) + rest
    return named
