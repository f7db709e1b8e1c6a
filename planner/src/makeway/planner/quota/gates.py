"""Whose pods are held where their queue is full: those of scheduler profiles that tell of a queue gate.

A pod that is evicted for its queue's quota is made anew by its owner. Where nothing holds what is made anew,
it runs at once, and the eviction was for nothing. So the planner asks all schedulers before it plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from makeway.bus.component_status import ComponentStatus

ANSWER_SECONDS: Final = 0.5
"""How long schedulers have to answer."""

FRESH: Final = timedelta(seconds=5)
"""How long schedulers are not asked again, whatever they answered: many queues may be due at once."""

REMEMBERED: Final = timedelta(minutes=10)
"""How long a profile counts that is told of no more. While its scheduler is away its pods are held as well:
none is bound."""


class ComponentsAsked(Protocol):
    """What is used of the bus."""

    async def ask(self, seconds: float) -> Sequence[ComponentStatus]:
        """Return the answers that come within so long; raises BusUnavailable."""


class QueueGates:
    """The profiles that have the gate in one cluster, by what its schedulers told lately."""

    def __init__(self, components: ComponentsAsked, cluster_uid: str) -> None:
        self._components = components
        self._cluster_uid = cluster_uid
        self._told: dict[str, datetime] = {}
        self._asked_at = datetime.min.replace(tzinfo=UTC)

    async def names(self, now: datetime) -> frozenset[str]:
        """Return the names of the profiles, pods' `schedulerName`. Raises BusUnavailable."""
        if not self._asked_at <= now <= self._asked_at + FRESH:
            answers = await self._components.ask(ANSWER_SECONDS)
            self._asked_at = now
            for one in answers:
                if one.component == "scheduler" and one.cluster_uid == self._cluster_uid:
                    self._told.update(dict.fromkeys(one.queue_gates, now))
        self._told = {name: at for name, at in self._told.items() if now - at <= REMEMBERED}
        return frozenset(self._told)
