"""Put a cluster up, play a scenario on it, take it down again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from makeway.bus.client import Bus
from makeway.dev import named
from makeway.dev.demo import manifests
from makeway.dev.demo.narrator import Narrator
from makeway.dev.demo.scenarios import Scenario
from makeway.dev.demo.stage import Stage
from makeway.dev.demo.timeline import Timeline
from makeway.dev.info import ClusterInfo
from makeway.dev.progress import Progress
from makeway.runtime.kube import Api

CLUSTER = "demo"


def run(
    scenario: Scenario, narrator: Narrator, progress: Progress, *, keep: bool, at_end: Callable[[], None]
) -> None:
    """Play a scenario on a cluster of its own, named `demo`; it stays up only with `keep`.

    `at_end` is called after the last row, while the cluster is up. The claims are counted by the narrator.
    Where something that was waited for did not happen, that is a claim that failed.

    Raises:
        DevError: the cluster could not be started.
    """
    lifeline = None if keep else named.Lifeline()
    began = time.monotonic()
    try:
        info = named.up(CLUSTER, scenario.options, progress=progress, lifeline=lifeline)
        up = time.monotonic()
        asyncio.run(_play(scenario, info, narrator))
        narrator.finish(time.monotonic() - up, up - began)
        at_end()
    finally:
        if not keep:
            named.down(CLUSTER, keep_logs=bool(narrator.broken))


async def _play(scenario: Scenario, info: ClusterInfo, narrator: Narrator) -> None:
    async with staged(info, narrator) as stage:
        try:
            await scenario.play(stage)
        except TimeoutError as error:
            narrator.claim(str(error), holds=False)


@asynccontextmanager
async def staged(info: ClusterInfo, narrator: Narrator) -> AsyncIterator[Stage]:
    """Make the demo's namespace on a cluster, and watch what happens there."""
    api = await Api.connect(kubeconfig=str(info.kubeconfig), user_agent="makeway-demo")
    bus = await Bus.connect(info.nats_url, name="demo/makeway-demo")
    timeline = Timeline()
    watches = [asyncio.create_task(timeline.watch_bus(bus))]
    stage = Stage(api, timeline, narrator, info.audit_log)
    try:
        await stage.create([manifests.namespace()])
        watches.append(asyncio.create_task(timeline.watch_pods(api)))
        yield stage
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await bus.close()
        await api.close()
