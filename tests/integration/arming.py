"""Failpoints of a cluster's processes: armed by a test, and the process back after one has fired."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from integration.cluster import RunningCluster
from integration.waiting import NotYet, until
from makeway.bus.client import Bus
from makeway.dev.failpoints import FIRED
from makeway.dev.options import PLANNER

KILL, STOP, HOLD = "kill", "stop", "hold"

FROZEN_SECONDS = 3.0
"""How long a frozen process stays so; long enough for time-outs of requests, too short for a new leader."""

REACHED_SECONDS = 60.0
"""Within this time somebody reaches an armed point. A planner started again repairs nothing for 15 s."""

LED_SECONDS = 40.0
"""Within this time of a crash exactly one planner leads: a Lease lasts for fifteen."""

Act = Callable[[], Awaitable[object]]


async def until_one_leads(cluster: RunningCluster) -> None:
    """Wait until all planners say that exactly one of them leads."""
    bus = await Bus.connect(
        cluster.info.nats_url, name="tests/leading", prefix=cluster.owned.options.subject_prefix
    )

    async def one() -> bool:
        planners = [found for found in await bus.components.ask(0.5) if found.component == "planner"]
        leaders = [found.identity for found in planners if found.leading]
        if len(planners) != len(cluster.replicas(PLANNER)) or len(leaders) != 1:
            raise NotYet(f"{len(planners)} planners, {leaders} lead")
        return True

    try:
        await until("one planner leads", one, seconds=LED_SECONDS)
    finally:
        await bus.close()


class Failpoints:
    """Arms the failpoints of a cluster's processes."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._directory: Path = cluster.owned.directory / "failpoints"

    def arm(self, name: str, action: str, *, hit: int = 1) -> None:
        """Let the next process that reaches the point, for an order's `hit`th time, die, freeze or wait."""
        self.let_go(name)
        beside = self._directory / f".{name}"
        beside.write_text(f"{action} {hit}")
        beside.rename(self._directory / name)

    def let_go(self, name: str) -> None:
        """End a hold."""
        (self._directory / FIRED / name).unlink(missing_ok=True)

    def disarm(self) -> None:
        """Disarm every point and end every hold, so that a test that failed does not disturb the next."""
        for path in (*self._directory.iterdir(), *(self._directory / FIRED).iterdir()):
            if path.is_file():
                path.unlink(missing_ok=True)

    async def fired(self, name: str, *, seconds: float = REACHED_SECONDS) -> int:
        """Wait until the point has fired; gives the process id."""
        file = self._directory / FIRED / name

        async def ask() -> int:
            try:
                return int(file.read_text())
            except FileNotFoundError as error:
                raise NotYet("not reached") from error

        return await until(f"failpoint {name} fires", ask, seconds=seconds)


class Crashes:
    """Crashes one service again and again: as many processes at once as there are, or `at_once`.

    The next point is armed as soon as there is somebody to reach it, so that what the last crash interrupted
    is still going on.
    """

    def __init__(self, cluster: RunningCluster, service: str, *, at_once: int = 0) -> None:
        self._cluster = cluster
        self._service = service
        self._failpoints = Failpoints(cluster)
        self._present = asyncio.Semaphore(at_once or len(cluster.replicas(service)))
        self._arming = asyncio.Lock()
        self._killed: set[int] = set()
        self.hits: Counter[tuple[str, str, int]] = Counter()
        """How often which point did what at which hit."""

    @asynccontextmanager
    async def at(
        self, point: str, action: str, *, hit: int = 1, while_frozen: Act | None = None
    ) -> AsyncIterator[Act]:
        """A block that brings a process to the point; it ends when that was crashed there and is back.

        Gives what waits, within the block, for the crash. while_frozen: what a frozen process sleeps through,
        else FROZEN_SECONDS.
        """
        async with self._present:
            async with self._arming:
                self._failpoints.arm(point, action, hit=hit)
                fired = partial(self._failpoints.fired, point)
                yield fired
                pid = await fired()
                self.hits[point, action, hit] += 1
            if action == STOP:
                await (while_frozen() if while_frozen else asyncio.sleep(FROZEN_SECONDS))
                os.kill(pid, signal.SIGCONT)
            else:
                await self._start_again(pid)

    async def _start_again(self, pid: int) -> None:
        assert pid not in self._killed, f"process {pid} was killed twice"
        self._killed.add(pid)
        names = self._cluster.replicas(self._service)

        async def dead() -> bool:
            return all(self._cluster.process(name).pid != pid for name in names)

        await until(f"{self._service} {pid} is dead", dead)
        await self._cluster.end_lease(self._service)
        for name in names:
            if self._cluster.process(name).pid is None:
                await self._cluster.start(name)
