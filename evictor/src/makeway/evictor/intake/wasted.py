"""Whether victims went in vain: a minute after they should be gone, does their preemptor have the place?

A preemptor that is gone or ending is no waste: whoever made it took it away, and that is theirs to do. Only
what this process evicted is followed; the evidence of ten minutes is lost with it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NoReturn

from makeway.bus.messages import EvictionOrder, Outcome
from makeway.core.k8s.objects import ENDED_PHASES, Pod
from makeway.evictor.act.cluster import Cluster
from makeway.evictor.limits.breaker import Breaker
from makeway.evictor.retry import Clock, PermanentError, TemporaryError

PATIENCE: Final = timedelta(minutes=1)
"""After the last victim's grace period: as long as the plugin keeps the place for its preemptor."""

LONGEST_GRACE: Final = timedelta(minutes=10)
"""Victims with a longer one are not followed."""

MOST: Final = 2000
"""Orders that are followed; more are not."""

POLL_SECONDS: Final = 5.0


class WastedVictims:
    """The orders of one evictor whose preemptors have to be looked at."""

    def __init__(self, cluster: Cluster, clock: Clock, breaker: Breaker) -> None:
        self._cluster = cluster
        self._clock = clock
        self._breaker = breaker
        self._due: list[tuple[datetime, int, EvictionOrder, int]] = []
        self._numbers = itertools.count()

    def follow(self, order: EvictionOrder, outcome: Outcome) -> None:
        """Have the preemptor of an order, pod or group, looked at where that has evicted any pod."""
        evicted = [victim for victim in outcome.victims if victim.deleted_at is not None]
        grace = max((max(0, one.grace_period_seconds) for one in evicted), default=0)
        wanted = outcome.result == "succeeded" and order.room_for is not None and bool(evicted)
        if wanted and grace <= LONGEST_GRACE.total_seconds() and len(self._due) < MOST:
            due = outcome.finished_at + timedelta(seconds=grace) + PATIENCE
            heapq.heappush(self._due, (due, next(self._numbers), order, len(evicted)))

    async def look_forever(self) -> NoReturn:
        """Look until the process ends."""
        while True:
            await self.look()
            await asyncio.sleep(POLL_SECONDS)

    async def look(self) -> None:
        """Look at the preemptors that are due. What cannot be read says nothing."""
        while self._due and self._due[0][0] <= self._clock.now():
            _, _, order, victims = heapq.heappop(self._due)
            about = order.room_for
            assert about is not None  # noqa: S101 - `follow` takes no other
            try:
                pods = [await self._cluster.get_pod(one.namespace, one.name) for one in order.placements]
            except (TemporaryError, PermanentError):
                continue
            if (wasted := in_vain(order, pods)) is not None:
                self._breaker.placed(about.namespace, victims, wasted=wasted)


def in_vain(order: EvictionOrder, pods: Sequence[Pod | None]) -> bool | None:
    """Report whether too few pods that an order made room for got a place; None where it is not to be told.

    `pods`: under the names of its preemptor or of its group's members, in their order. The scheduler is free
    to exchange equal members, so any of the order's nodes will do. Pure.
    """
    nodes = {one.node for one in order.placements}
    must_place = order.group.must_place if order.group is not None else 1
    there = [
        pod
        for one, pod in zip(order.placements, pods, strict=True)
        if pod is not None
        and pod.metadata.uid == one.uid
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase not in ENDED_PHASES
    ]
    if len(there) < must_place:
        return None
    return sum(pod.spec.node_name in nodes for pod in there) < must_place
