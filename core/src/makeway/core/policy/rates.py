"""How many pods a policy lets go in a while: its caps on evictions, in pods. Pure.

A cap that the policy sets holds every eviction. One that it does not set has a default, which holds those
that only makeway's own messages speak for: of quotas, and of orders that the API server does not bear out.
Evictors keep to them. The planner cuts orders of quotas to them, and what is told before a quota is lowered
says how long they make it take.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from makeway.core.policy.document import PolicyLimits
from makeway.core.text import counted

LEAST_SHARE: Final = 100
"""So many pods may always be evicted in ten minutes, however few there are: as many as an order may name."""

VICTIMS_PER_MINUTE: Final = 500
VICTIMS_PERCENT_PER_TEN_MINUTES: Final = 5
"""The caps that a policy does not set."""

NO_CAP: Final = 1_000_000
"""What lifts the cap of a minute: as many as a policy can write."""


@dataclass(frozen=True)
class Rates:
    """The caps in force. `ten_minutes`: in pods.

    A *party* is whom evictions are for: a preemptor's namespace, or a queue. The last fifth of both caps for
    the whole cluster is kept for parties that have used less than a fifth themselves.
    """

    minute: int
    ten_minutes: int
    namespace: int | None = None

    @property
    def at_once(self) -> int:
        """How many pods may go for one party, where none have gone lately; at least one."""
        return max(1, min(_for_one(self.minute), _for_one(self.ten_minutes)))

    @property
    def together(self) -> int:
        """How many pods of one namespace may ever go together, where none have gone lately."""
        caps = (self.minute, self.ten_minutes)
        return min(caps if self.namespace is None else (*caps, self.namespace))

    def seconds_for(self, pods: int) -> int:
        """Return how long so many pods of one party take at the least, where none go for others."""
        caps = ((60, self.minute), (600, self.ten_minutes))
        return max(0, *(span * ((pods - 1) // max(1, _for_one(cap))) for span, cap in caps))


def rates_of(limits: PolicyLimits, pods: int, *, only_set: bool = False) -> Rates:
    """Return the caps in a cluster of so many pods.

    For quotas and unverified orders those that the policy does not set have defaults; for all evictions they
    are lifted: `only_set`.
    """
    minute = limits.victims_per_minute or (NO_CAP if only_set else VICTIMS_PER_MINUTE)
    percent = limits.victims_percent_per_ten_minutes or (100 if only_set else VICTIMS_PERCENT_PER_TEN_MINUTES)
    share = max(LEAST_SHARE, limits.victims_per_order, pods * percent // 100)
    return Rates(
        minute=minute,
        ten_minutes=share if percent < 100 else 10 * minute,
        namespace=limits.victims_per_namespace_and_minute,
    )


def time_needed(rates: Rates, pods: int) -> str:
    """Say that the caps make it take a while until so many pods have gone for a queue; empty where not."""
    if not (seconds := rates.seconds_for(pods)):
        return ""
    minutes = timedelta(seconds=seconds) // timedelta(minutes=1)
    return (
        f"the caps on evictions (limits of the policy) let at most {rates.at_once} go for one queue at once, "
        f"so that {counted(pods, 'pod')} take at least {counted(minutes, 'minute')}"
    )


def pace_of_quotas(limits: PolicyLimits) -> str:
    """Say how fast a lowered quota comes down under limits, whatever the cluster, in a sentence."""
    rates = rates_of(limits, 0)
    percent = limits.victims_percent_per_ten_minutes or VICTIMS_PERCENT_PER_TEN_MINUTES
    share = f", or {percent * 4 / 5:g} % of all pods where that is more" if percent < 100 else ""
    return (
        f"for a lowered quota at most {counted(_for_one(rates.minute), 'pod')} of one queue go in a minute, "
        f"and {_for_one(rates.ten_minutes)} in ten{share}; the rest waits until the caps allow it"
    )


def _for_one(cap: int) -> int:
    """Return how much of a cap one party may use."""
    return cap - cap // 5
