"""The scheduling cycle is protected: whatever planner and NATS do, PostFilter ends in time and others go on.

Case A-14 of docs/conformance.md.

PostFilter's time is the promise: two plan time-outs and a second of verification. The throughput of pods that
need no preemption is measured in `tests/bench/scheduling_throughput.py`; here it has a generous bound only.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from background import background
from integration.builders import PodBuilder, make_node, make_pod
from integration.cluster import RunningCluster
from integration.faults import Faults
from integration.preempting import run_victims
from integration.scraping import Samples, scrape
from integration.space import Space, open_space
from integration.waiting import NotYet, until
from makeway.bus.client import Bus
from makeway.dev.fault_rules import FaultRule
from makeway.dev.options import EVICTOR, SCHEDULER

POSTFILTER = "makeway_scheduler_postfilter_duration_seconds"
FRAMEWORK = "scheduler_framework_extension_point_duration_seconds"
REPEAT = int(os.environ.get("MAKEWAY_REPEAT", "20"))
PLAN_TIMEOUT_SECONDS = 0.5
# The first buckets at or above 2 x 0.5 s + 1 s; the scheduler's own histogram has coarser ones at its end.
DEADLINE_BUCKET_SECONDS = 2.048
UNRELATED = 60


def unrelated(number: int) -> PodBuilder:
    return make_pod(f"small-{number}").priority("low").cpu("10m")


async def bound_in(space: Space, first: int) -> float:
    """Create pods that need no preemption; the seconds until the last is bound."""
    began = time.monotonic()
    pods = await space.create(*(unrelated(n) for n in range(first, first + UNRELATED)))

    async def all_bound() -> bool:
        found = await space.pods()
        waiting = [pod.metadata.name for pod in pods if not found[pod.metadata.name].spec.node_name]
        if waiting:
            raise NotYet(f"{len(waiting)} wait")
        return True

    await until(f"{UNRELATED} pods are bound", all_bound, seconds=60.0)
    return time.monotonic() - began


@asynccontextmanager
async def planner_hung(cluster: RunningCluster) -> AsyncIterator[None]:
    async with cluster.frozen("planner"):
        yield


@asynccontextmanager
async def nats_hung(cluster: RunningCluster) -> AsyncIterator[None]:
    async with cluster.frozen("nats"):
        yield


@asynccontextmanager
async def planner_slow(cluster: RunningCluster) -> AsyncIterator[None]:
    """A planner that takes a second for every answer."""

    async def answer(_: bytes, _sender: str) -> bytes:
        await asyncio.sleep(1)
        return b"{}"

    async with cluster.without("planner"):
        bus = await Bus.connect(cluster.info.nats_url, name="planner/slow")
        try:
            await bus.serve_plan(answer)
            yield
        finally:
            await bus.close()


@asynccontextmanager
async def planner_flapping(cluster: RunningCluster) -> AsyncIterator[None]:
    """A planner that is frozen for 0.3 s of every 0.6."""

    async def flap() -> None:
        while True:
            async with cluster.frozen("planner"):
                await asyncio.sleep(0.3)
            await asyncio.sleep(0.3)

    async with background(flap()):
        yield


TROUBLES: dict[str, Callable[[RunningCluster], AbstractAsyncContextManager[None]]] = {
    "the planner hangs": planner_hung,
    "the planner takes a second": planner_slow,
    "the planner flaps": planner_flapping,
    "NATS hangs": nats_hung,
}


def calls(samples: Samples) -> float:
    return samples.total(f"{POSTFILTER}_count")


@pytest.mark.wide
@pytest.mark.parametrize(
    "rounds", [1, pytest.param(REPEAT, marks=(pytest.mark.slow, pytest.mark.timeout(100 * REPEAT + 200)))]
)
async def test_postfilter_ends_in_time_and_others_go_on(crash_cluster: RunningCluster, rounds: int) -> None:
    # Without a fallback the preemptors go on asking for as long as the trouble lasts.
    cluster = crash_cluster
    assert not cluster.owned.options.fallback
    assert cluster.owned.options.plan_timeout_seconds == PLAN_TIMEOUT_SECONDS
    async with cluster.without(SCHEDULER):
        pass  # its metrics begin anew
    for _ in range(rounds):
        async with open_space(cluster) as space:
            await every_trouble(cluster, space)
    framework = await scrape(cluster.info.scheduler_url)
    slowest = framework.total(f"{FRAMEWORK}_sum", extension_point="PostFilter")
    assert slowest <= DEADLINE_BUCKET_SECONDS * calls(framework)
    assert framework.total("makeway_scheduler_panics_total") == 0


async def every_trouble(cluster: RunningCluster, space: Space) -> None:
    """One trouble after the other, each with preemptors and with pods that need no preemption."""
    await space.add_nodes(make_node("full").cpu("4"), make_node("room").cpu("8").pods(1000))
    await run_victims(space, *(make_pod(f"v{n}").priority("low").cpu("1").on("full") for n in range(4)))
    usual = await bound_in(space, 0)
    for number, (name, trouble) in enumerate(TROUBLES.items(), start=1):
        before = await scrape(cluster.info.scheduler_url)
        async with trouble(cluster):
            await space.create(
                *(make_pod(f"p-{number}-{n}").priority("never" if n else "high").cpu("9") for n in range(2)),
                *(
                    make_pod(f"q-{number}-{n}")
                    .priority("high")
                    .cpu("1")
                    .spec(nodeSelector={"kubernetes.io/hostname": space.node_name("full")})
                    for n in range(4)
                ),
            )
            took = await bound_in(space, number * 1000)
            await asyncio.sleep(2)
            # Gone before it is over, so that the next trouble finds victims too.
            for pod in ("p", "q"):
                for n in range(4):
                    await space.delete(f"{pod}-{number}-{n}", grace_seconds=0)
        after = await scrape(cluster.info.scheduler_url)
        assert calls(after) > calls(before), name
        assert after.above(POSTFILTER, DEADLINE_BUCKET_SECONDS) == 0, name
        assert took < 3 * usual + 5, name
        for component in ("planner", "evictor"):
            await asyncio.to_thread(cluster.process(component).wait_ready)


@pytest.mark.timeout(240)
async def test_a_14_deletes_that_take_two_seconds_do_not_slow_other_pods(
    fault_space: Space, faults: Faults
) -> None:
    space = fault_space
    full = [f"full-{n}" for n in range(4)]
    await space.add_nodes(*(make_node(n).cpu("500m") for n in full), make_node("room").cpu("8").pods(1000))
    await run_victims(space, *(make_pod(f"v-{n}").priority("low").cpu("500m").on(n) for n in full))
    usual = await bound_in(space, 0)

    await faults.add(
        FaultRule(component=EVICTOR, action="delay", method="DELETE", path="/pods/", seconds=2.0, count=1000)
    )
    await space.create(
        *(
            make_pod(f"p-{n}")
            .priority("high")
            .cpu("500m")
            .spec(nodeSelector={"kubernetes.io/hostname": space.node_name(n)})
            for n in full
        )
    )
    took = await bound_in(space, 1000)
    for n in full:
        assert await space.until_bound(f"p-{n}", seconds=60) == n

    assert len([one for one in await faults.applied() if one.action == "delay"]) >= len(full)
    assert took < 2 * usual + 2
