"""How fast pods that need no preemption are scheduled, with makeway in trouble and without makeway.

Two control planes run side by side: kube-scheduler alone, and with makeway at its default plan time-out.
Rounds alternate between them, so that whatever else the machine does meets both; the figure is the median of
the rounds' ratios. It asserts nothing.

A round: so many pods wait for a cordoned node; it is uncordoned, and the time runs until the API server has
accepted the last one's binding. Meanwhile preemptors go on arriving in both clusters: some whose node has a
victim, and several a second that nothing can help. So the scheduler has work all the time, and a stall of its
cycle counts.

    PYTHONPATH=tests .venv/bin/python tests/bench/scheduling_throughput.py --rounds 6 --pods 600
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from integration.builders import PodBuilder, make_node, make_pod
from integration.cluster import RunningCluster
from integration.faults import faults_of
from integration.preempting import settle
from integration.scraping import scrape
from integration.space import Space, open_space
from integration.test_scheduling_cycle import nats_hung, planner_flapping, planner_hung, planner_slow
from integration.waiting import NotYet, until
from makeway.dev.cluster import DevCluster
from makeway.dev.fault_rules import FaultRule
from makeway.dev.options import EVICTOR, KWOK, LIFTED_RATES, NATS, PLANNER, SCHEDULER, ClusterOptions

PLAN_TIMEOUT_SECONDS = 0.1
"""The product's default."""
EVICTIONS = 10
"""Preemptors a round whose node has a victim."""
HOPELESS_EVERY_SECONDS = 0.2
"""How often a preemptor comes that nothing can help."""
POSTFILTER = "scheduler_framework_extension_point_duration_seconds_sum"
ASKED = "makeway_scheduler_plan_request_duration_seconds_count"
LATE = "makeway_scheduler_late_plans_total"


@asynccontextmanager
async def deletes_slow(cluster: RunningCluster) -> AsyncIterator[None]:
    """Every delete of the evictor takes two seconds more."""
    async with faults_of(cluster) as faults:
        await faults.add(
            FaultRule(component=EVICTOR, action="delay", method="DELETE", seconds=2.0, count=10**6)
        )
        yield


TROUBLES: dict[str, Callable[[RunningCluster], AbstractAsyncContextManager[None]]] = {
    "all well": lambda _: nullcontext(),
    "the planner hangs": planner_hung,
    "the planner takes a second": planner_slow,
    "the planner flaps": planner_flapping,
    "NATS hangs": nats_hung,
    "deletes take two seconds": deletes_slow,
}


@dataclass(frozen=True)
class Measured:
    """One round: pods a second, the share of the time that PostFilter took, and of plans that came late."""

    rate: float
    post_filter: float
    late: float


def on(space: Space, pod: PodBuilder, node: str) -> PodBuilder:
    """Keep a pod to one node."""
    return pod.spec(nodeSelector={"kubernetes.io/hostname": space.node_name(node)})


def full_nodes() -> list[str]:
    """Nodes with one victim each."""
    return [f"full-{n}" for n in range(EVICTIONS)]


async def create(space: Space, pods: list[PodBuilder], at_once: int = 16) -> None:
    """Create pods as fast as the API server takes them."""
    await asyncio.gather(*(space.create(*pods[first::at_once]) for first in range(at_once)))


async def cordon(space: Space, cordoned: bool) -> None:
    """Close or open the node that has room."""
    await space.api.request(
        "PATCH",
        f"/api/v1/nodes/{space.node_name('room')}",
        body=json.dumps({"spec": {"unschedulable": cordoned}}).encode(),
        content_type="application/merge-patch+json",
    )


async def prepare(space: Space, pods: int) -> None:
    """Full nodes with a victim each, and pods that wait for the cordoned node."""
    await cordon(space, True)
    fill = [make_pod(f"v-{node}").priority("low").cpu("500m").on(node) for node in full_nodes()]
    fill += [make_pod(name).priority(name).cpu("250m").on("hopeless") for name in ("low", "high")]
    wait = [on(space, make_pod(f"small-{n}").priority("low").cpu("10m"), "room") for n in range(pods)]
    await create(space, fill + wait)
    await settle()


async def preemptors(space: Space) -> None:
    """Let preemptors arrive for as long as this runs."""
    for node in full_nodes():
        await space.create(on(space, make_pod(f"p-{node}").priority("high").cpu("500m"), node))
    n = 0
    while True:
        # More than there would be without the pod that may be removed.
        await space.create(on(space, make_pod(f"q-{n}").priority("high").cpu("500m"), "hopeless"))
        n += 1
        await asyncio.sleep(HOPELESS_EVERY_SECONDS)


async def measure(
    space: Space, pods: int, trouble: Callable[[RunningCluster], AbstractAsyncContextManager[None]]
) -> Measured:
    """One round in one cluster."""
    await prepare(space, pods)
    url = space.cluster.info.scheduler_url
    before = await scrape(url)
    audit = space.cluster.audit()
    async with trouble(space.cluster):
        arriving = asyncio.create_task(preemptors(space))
        began = datetime.now(UTC)
        await cordon(space, False)

        def bound() -> list[datetime]:
            return [
                event.answered_at
                for event in audit.events(
                    about=("small-",), verb="create", subresource="binding", namespace=space.namespace
                )
                if event.accepted and event.name.startswith("small-")
            ]

        async def all_bound() -> list[datetime]:
            if len(done := bound()) < pods:
                raise NotYet(f"{len(done)} of {pods}")
            return done

        last = max(await until(f"{pods} pods are bound", all_bound, seconds=300, every=0.5))
        after = await scrape(url)
        arriving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await arriving
    await recovered(space.cluster)
    await space.delete_pods()
    seconds = (last - began).total_seconds()

    def grown(metric: str, **labels: str) -> float:
        return after.total(metric, **labels) - before.total(metric, **labels)

    post_filter = grown(POSTFILTER, extension_point="PostFilter") / seconds
    return Measured(pods / seconds, post_filter, grown(LATE) / max(grown(ASKED), 1))


async def recovered(cluster: RunningCluster) -> None:
    """Wait until all is as it was: services ready, the breaker closed."""
    if PLANNER not in cluster.owned.options.components:
        return
    for component in (PLANNER, EVICTOR):
        await asyncio.to_thread(cluster.process(component).wait_ready)

    async def closed() -> bool:
        if state := (await scrape(cluster.info.scheduler_url)).total("makeway_scheduler_breaker_state"):
            raise NotYet(f"state {state}")
        return True

    await until("the breaker is closed", closed, seconds=60, every=0.2)


async def compare(
    makeway: RunningCluster, plain: RunningCluster, rounds: int, pods: int, troubles: list[str]
) -> None:
    """Print a line for each trouble: pods a second of both, and the median ratio."""
    async with open_space(makeway) as left, open_space(plain) as right:
        left.judged = right.judged = False
        for space in (left, right):
            await space.add_nodes(
                make_node("room").cpu("64").memory("256Gi").pods(5000),
                *(make_node(name).cpu("500m") for name in ("hopeless", *full_nodes())),
            )
            await measure(space, pods, TROUBLES["all well"])  # warms up
        for name in troubles:
            trouble = TROUBLES[name]
            with_makeway, without = [], []
            for number in range(rounds):
                first = bool(number % 2)
                if first:
                    without.append(await measure(right, pods, TROUBLES["all well"]))
                with_makeway.append(await measure(left, pods, trouble))
                if not first:
                    without.append(await measure(right, pods, TROUBLES["all well"]))
                print(f"  {name}: {with_makeway[-1]} with, {without[-1]} without", flush=True)
            report(name, with_makeway, without)


def report(name: str, with_makeway: list[Measured], without: list[Measured]) -> None:
    """One line of the table."""
    ratios = [a.rate / b.rate for a, b in zip(with_makeway, without, strict=True)]

    def median(measured: list[Measured]) -> str:
        rate = statistics.median(one.rate for one in measured)
        post_filter = statistics.median(one.post_filter for one in measured)
        late = statistics.median(one.late for one in measured)
        return f"{rate:6.1f} pods/s (PostFilter {post_filter:5.1%}, late plans {late:4.0%})"

    print(
        f"{name:<28} {median(with_makeway)} with makeway, {median(without)} without; "
        f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        flush=True,
    )


def main() -> None:
    """Start both control planes and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--pods", type=int, default=600)
    parser.add_argument("--troubles", default=",".join(TROUBLES), help="separated by commas")
    given = parser.parse_args()
    troubles = given.troubles.split(",")
    if unknown := [name for name in troubles if name not in TROUBLES]:
        parser.error(f"unknown troubles {', '.join(unknown)}; there are {', '.join(TROUBLES)}")
    with tempfile.TemporaryDirectory() as directory:
        options = ClusterOptions(
            faulty=(EVICTOR,), plan_timeout_seconds=PLAN_TIMEOUT_SECONDS, limits=LIFTED_RATES
        )
        alone = ClusterOptions(components=frozenset({NATS, SCHEDULER, KWOK}), plugin=False)
        with (
            DevCluster(Path(directory) / "makeway", options).start() as first,
            DevCluster(Path(directory) / "plain", alone).start() as second,
        ):
            print(f"{given.rounds} rounds of {given.pods} pods", flush=True)
            asyncio.run(
                compare(RunningCluster(first), RunningCluster(second), given.rounds, given.pods, troubles)
            )


if __name__ == "__main__":
    main()
