"""Do to a cluster what a schedule says, and remember when the bounds in time cannot be kept."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import get_args

import nats.errors
import nats.js.errors

from campaign import schedule
from campaign.counted import Deaths
from campaign.lines import Lines
from campaign.schedule import Injection
from campaign.settings import queues
from integration.arming import KILL, Failpoints
from integration.cluster import RunningCluster
from integration.configuring import NAMESPACE, QUEUES_CONFIGMAP, put
from integration.crashing import COMMITTING
from integration.faults import Faults
from makeway.bus.subjects import Subjects
from makeway.dev.errors import DevError
from makeway.dev.fault_rules import Action, FaultRule
from makeway.dev.options import PLANNER
from makeway.dev.site import nats_servers
from makeway.runtime.kube import ApiError, ApiUnavailable

LOWERED, USUAL = 3, 12
"""Cores that the queue with a maximum may have."""
ATTEMPTS = 60
FORGED_SECONDS = 0.5
"""Between two forged messages."""
BRAKE_CONFIGMAP = "makeway-brake"
RECOVERY = timedelta(seconds=15)
"""After an injection: a Lease of a dead leader, an order given out again."""
PODS_WATCH = r"/api/v1/pods\?.*watch="
WRITES = r"/pods/[a-z0-9-]+(/status|/binding|\?|$)"
_ACTIONS = {action: action for action in get_args(Action)}
LAST_SECONDS = 8.0
"""A planner that is killed so shortly before its storm ends is the last: its Lease ends by itself."""
SHARE = 0.3
"""Of the requests that are spoilt while a fault of the API server lasts."""


class Injector:
    """Plays a schedule. `counts`: what was injected; `outages`: when bounds in time did not count."""

    def __init__(
        self,
        cluster: RunningCluster,
        faults: Faults,
        lines: Lines,
        skew: Path | None,
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._faults = faults
        self._lines = lines
        self._skew = skew
        self._say = say
        self._braking = asyncio.Lock()
        self.brakes: list[tuple[datetime, datetime]] = []
        self.forge: Callable[[str], Awaitable[None]] | None = None
        self._starting = asyncio.Lock()
        self._spoiling = 0
        self.counts: Counter[str] = Counter()
        self.requests_spoilt = 0
        self.outages: list[tuple[datetime, datetime]] = []
        self.deaths: list[Deaths] = []
        self.done: list[tuple[datetime, datetime, str]] = []
        """When each injection began and ended, and what it was."""

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
                ended = datetime.now(UTC)
                self.outages.append((started, ended + RECOVERY))
                self.done.append((started, ended, str(one)))

        async with asyncio.TaskGroup() as group:
            for one in injections:
                group.create_task(later(one))

    async def _inject(self, one: Injection) -> None:
        match one.kind:
            case schedule.KILL:
                await self._killed([one.target], one.seconds)
            case schedule.STOP:
                await self._frozen(one.target, one.seconds)
            case schedule.API:
                await self._spoil(one)
            case schedule.LINE:
                what, how = one.detail.split()
                await self._lines.spoil(one.target, what, how)
                try:
                    await asyncio.sleep(one.seconds)
                finally:
                    await self._lines.mend(one.target, what)
            case schedule.CLOCK:
                await self._with_wrong_clock(one)
            case schedule.BRAKE:
                await self._brake(one.seconds)
            case schedule.QUOTA:
                await self._queues(LOWERED)
                try:
                    await asyncio.sleep(one.seconds)
                finally:
                    await self._queues(USUAL)
            case schedule.QUORUM:
                await self._without_quorum(one.seconds)
            case schedule.FREEZE:
                await self._freeze_leader(one.seconds)
            case schedule.COMMIT:
                await self._kill_committing(one.seconds)
            case schedule.FORGE:
                until = time.monotonic() + one.seconds
                while self.forge is not None and time.monotonic() < until:
                    await self.forge(one.detail)
                    await asyncio.sleep(FORGED_SECONDS)
            case kind:
                raise ValueError(f"no injection is called {kind!r}")

    async def _killed(self, names: Sequence[str], seconds: float) -> None:
        """Kill processes, and start them again after a while."""
        for name in names:
            await asyncio.to_thread(self._cluster.process(name).kill)
        await asyncio.sleep(seconds)
        for name in names:
            await self._start(name)

    async def _frozen(self, name: str, seconds: float) -> None:
        """Stop a process for a while."""
        process = self._cluster.process(name)
        process.pause()
        try:
            await asyncio.sleep(seconds)
        finally:
            process.resume()

    async def _with_wrong_clock(self, one: Injection) -> None:
        """Start a process again under a wall clock that is off, and after a while with the right one."""
        if self._skew is None:
            self.counts["clocks not skewed, for want of a C compiler"] += 1
            return
        process = self._cluster.process(one.target)
        usual = process.program
        skewed = {"LD_PRELOAD": str(self._skew), "MAKEWAY_CLOCK_OFFSET_MS": one.detail}
        await asyncio.to_thread(process.kill)
        process.program = replace(usual, environment={**usual.environment, **skewed})
        try:
            await self._start(one.target)
            await asyncio.sleep(one.seconds)
        finally:
            process.program = usual
            await asyncio.to_thread(process.kill)
            await self._start(one.target)

    async def _brake(self, seconds: float) -> None:
        """Set the brake as docs/observe.md says to do without the command, and release it."""
        async with self._braking:
            await _insist(
                lambda: self._cluster.kubectl(
                    "-n", NAMESPACE, "create", "configmap", BRAKE_CONFIGMAP, "--from-literal=mode=off"
                )
            )
            begin = datetime.now(UTC)
            await asyncio.sleep(seconds)
            self.brakes.append((begin, datetime.now(UTC)))
            await _insist(
                lambda: self._cluster.kubectl("-n", NAMESPACE, "delete", "configmap", BRAKE_CONFIGMAP)
            )

    async def _queues(self, most: int) -> None:
        await _insist(lambda: put(self._cluster, {"queues.yaml": queues(most)}, QUEUES_CONFIGMAP))

    async def _without_quorum(self, seconds: float) -> None:
        """Kill all nats-servers but one; where there is one alone, that."""
        servers = nats_servers(self._cluster.owned.options)
        await self._killed(servers[1:] or servers, seconds)

    async def _freeze_leader(self, seconds: float) -> None:
        """Stop the nats-server that leads the stream of orders; where none leads, the first."""
        servers = nats_servers(self._cluster.owned.options)
        leader = ""
        with contextlib.suppress(nats.errors.Error, nats.js.errors.Error):
            async with self._cluster.jetstream() as jetstream:
                info = await jetstream.stream_info(Subjects().orders_stream)
                leader = (info.cluster and info.cluster.leader) or ""
        frozen = next((name for name in servers if f"makeway-dev-{name}" == leader), servers[0])
        await self._frozen(frozen, seconds)

    async def _kill_committing(self, seconds: float) -> None:
        """Kill the planner that leads, each time after it has read a commit or stored an order, unanswered.

        Its Lease is given back, so that the next leads soon; but for the last one's.
        """
        failpoints, begin = Failpoints(self._cluster), datetime.now(UTC)
        end = begin + timedelta(seconds=seconds)
        killed: list[datetime] = []
        for point in cycle(COMMITTING):
            if (left := (end - datetime.now(UTC)).total_seconds()) <= 0:
                break
            failpoints.arm(point, KILL)
            try:
                pid = await failpoints.fired(point, seconds=left)
            except AssertionError:
                failpoints.disarm()
                break
            killed.append(datetime.now(UTC))
            self._say(f"the leading planner is killed at {point}")
            await self._start_again(pid)
            if (end - datetime.now(UTC)).total_seconds() < LAST_SECONDS:
                break
            with contextlib.suppress(ApiError, ApiUnavailable):
                await self._cluster.end_lease(PLANNER)
        self.deaths.append(Deaths(begin, datetime.now(UTC), tuple(killed)))

    async def _start_again(self, pid: int) -> None:
        """Start the planner that had the process id, once it is dead."""
        names = self._cluster.replicas(PLANNER)
        while any(self._cluster.process(name).pid == pid for name in names):  # noqa: ASYNC110 - it is killed
            await asyncio.sleep(0.02)
        for name in names:
            if self._cluster.process(name).pid is None:
                await self._start(name)

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
            component=one.target, action=_ACTIONS[how], path=PODS_WATCH, seconds=4, count=2, probability=0.1
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


async def _insist(act: Callable[[], Awaitable[object]]) -> None:
    """Do it, again and again while the API server is away."""
    for _ in range(ATTEMPTS):
        try:
            await act()
        except DevError as error:
            if "already exists" in str(error) or "not found" in str(error):
                return
            await asyncio.sleep(1)
        else:
            return
    raise AssertionError("the API server did not come back")
