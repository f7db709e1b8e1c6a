"""Put the cluster up, play the story on it, take it down again."""

from __future__ import annotations

import asyncio
import time

from makeway.bus.client import Bus
from makeway.dev import named
from makeway.dev.demo import scenario
from makeway.dev.demo.narrator import Narrator
from makeway.dev.demo.timeline import Timeline
from makeway.dev.info import ClusterInfo
from makeway.dev.options import ClusterOptions
from makeway.dev.progress import Progress
from makeway.runtime.kube import Api

CLUSTER = "demo"


def run(narrator: Narrator, progress: Progress, *, keep: bool) -> ClusterInfo:
    """Play the demo on a cluster of its own, named `demo`; it stays up only with `keep`.

    The claims are counted by the narrator. Where something that was waited for did not happen,
    that is a claim that failed.

    Raises:
        DevError: the cluster could not be started.
    """
    lifeline = None if keep else named.Lifeline()
    began = time.monotonic()
    try:
        info = named.up(CLUSTER, ClusterOptions(), progress=progress, lifeline=lifeline)
        asyncio.run(_play(info, narrator))
        narrator.finish(began)
        return info
    finally:
        if not keep:
            named.down(CLUSTER, keep_logs=bool(narrator.broken))


async def _play(info: ClusterInfo, narrator: Narrator) -> None:
    api = await Api.connect(kubeconfig=str(info.kubeconfig), user_agent="makeway-demo")
    bus = await Bus.connect(info.nats_url, name="demo/makeway-demo")
    timeline = Timeline()
    watches = [asyncio.create_task(timeline.watch_bus(bus))]
    stage = scenario.Stage(api, timeline, narrator, info.audit_log)
    try:
        await scenario.prepare(stage)
        watches.append(asyncio.create_task(timeline.watch_pods(api)))
        await scenario.fill(stage)
        await scenario.make_room(stage)
        await scenario.refuse(stage)
        await scenario.audit(stage)
    except TimeoutError as error:
        narrator.claim(str(error), holds=False)
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await bus.close()
        await api.close()
