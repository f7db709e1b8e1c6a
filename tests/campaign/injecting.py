"""Do to a cluster what a schedule says, and remember when the bounds in time cannot be kept."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import get_args

from campaign import schedule
from campaign.schedule import Injection
from integration.cluster import RunningCluster
from integration.faults import Faults
from makeway.dev.fault_rules import Action, FaultRule

RECOVERY = timedelta(seconds=15)
"""After an injection: a Lease of a dead leader, an order given out again."""
PODS_WATCH = r"/api/v1/pods\?.*watch="
WRITES = r"/pods/[a-z0-9-]+(/status|/binding|\?|$)"
_ACTIONS = {action: action for action in get_args(Action)}
SHARE = 0.3
"""Of the requests that are spoilt while a fault of the API server lasts."""


class Injector:
    """Plays a schedule. `counts`: what was injected; `outages`: when bounds in time did not count."""

    def __init__(self, cluster: RunningCluster, faults: Faults, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._faults = faults
        self._say = say
        self._starting = asyncio.Lock()
        self._spoiling = 0
        self.counts: Counter[str] = Counter()
        self.requests_spoilt = 0
        self.outages: list[tuple[datetime, datetime]] = []

    async def play(self, injections: Sequence[Injection]) -> None:
        """Inject everything, each in its time."""
        begin = time.monotonic()

        async def later(one: Injection) -> None:
            await asyncio.sleep(max(0.0, begin + one.at_seconds - time.monotonic()))
            self._say(str(one))
            self.counts[one.name] += 1
            started = datetime.now(UTC)
            try:
                await self._inject(one)
            finally:
                self.outages.append((started, datetime.now(UTC) + RECOVERY))

        async with asyncio.TaskGroup() as group:
            for one in injections:
                group.create_task(later(one))

    async def _inject(self, one: Injection) -> None:
        match one.kind:
            case schedule.KILL:
                await asyncio.to_thread(self._cluster.process(one.target).kill)
                await asyncio.sleep(one.seconds)
                await self._start(one.target)
            case schedule.STOP:
                process = self._cluster.process(one.target)
                process.pause()
                try:
                    await asyncio.sleep(one.seconds)
                finally:
                    process.resume()
            case schedule.API:
                await self._spoil(one)
            case kind:
                raise ValueError(f"no injection is called {kind!r}")

    async def _start(self, name: str) -> None:
        process = self._cluster.process(name)
        async with self._starting:
            await asyncio.to_thread(process.start)
        await asyncio.to_thread(process.wait_ready)

    async def _spoil(self, one: Injection) -> None:
        """Have the fault proxy spoil a share of a component's requests, for a while."""
        self._spoiling += 1
        await self._faults.add(rule_of(one))
        try:
            await asyncio.sleep(one.seconds)
        finally:
            self._spoiling -= 1
            # Rules are taken away all at once; one that another injection still needs ends a little early.
            if self._spoiling == 0:
                self.requests_spoilt += len(await self._faults.applied())
                await self._faults.clear()


def rule_of(one: Injection) -> FaultRule:
    """Translate a fault's name: `write 409`, `read cut`, `watch expire`."""
    what, how = one.detail.split()
    if what == "watch":
        return FaultRule(
            component=one.target,
            action=_ACTIONS[how],
            path=PODS_WATCH,
            seconds=4,
            count=2,
            probability=0.1,
        )
    return FaultRule(
        component=one.target,
        action=_ACTIONS.get(how, "answer"),
        method="GET" if what == "read" else "(POST|PATCH|DELETE|PUT)",
        path=WRITES if what == "write" else ".*",
        status=int(how) if how.isdigit() else 500,
        retry_after=1 if how == "429" else 0,
        seconds=2.0 if how == "delay" else 0.0,
        count=1000,
        probability=SHARE,
    )
