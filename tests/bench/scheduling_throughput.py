"""How fast pods that need no preemption are scheduled, with makeway in trouble and without makeway.

Two control planes run side by side: kube-scheduler alone, and with makeway. Rounds alternate between them, so
that whatever else the machine does meets both; the figure is the median of the rounds' ratios. It asserts
nothing.

    PYTHONPATH=tests .venv/bin/python tests/bench/scheduling_throughput.py --rounds 6 --pods 150
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path

from integration.builders import make_node, make_pod
from integration.cluster import RunningCluster
from integration.faults import faults_of
from integration.preempting import settle
from integration.space import Space, open_space
from integration.test_scheduling_cycle import (
    bound_in,
    nats_hung,
    planner_flapping,
    planner_hung,
    planner_slow,
)
from makeway.dev.cluster import Cluster
from makeway.dev.fault_rules import Rule
from makeway.dev.options import EVICTOR, KWOK, NATS, SCHEDULER, ClusterOptions

PREEMPTORS = 5


@asynccontextmanager
async def deletes_slow(cluster: RunningCluster):  # type: ignore[no-untyped-def] # a context manager as the others
    """Every delete of the evictor takes two seconds more."""
    async with faults_of(cluster) as faults:
        await faults.add(Rule(component=EVICTOR, action="delay", method="DELETE", seconds=2.0, count=10**6))
        yield


TROUBLES: dict[str, Callable[[RunningCluster], AbstractAsyncContextManager[None]]] = {
    "all well": lambda _: nullcontext(),
    "the planner hangs": planner_hung,
    "the planner takes a second": planner_slow,
    "the planner flaps": planner_flapping,
    "NATS hangs": nats_hung,
    "deletes take two seconds": deletes_slow,
}


async def measure(space: Space, number: int, pods: int) -> float:
    """Pods a second in one round, with preemptors that cannot be placed yet beside them."""
    names = [f"x{number}-{n}" for n in range(PREEMPTORS)]
    await space.add_nodes(*(make_node(name).cpu("500m") for name in names))
    await space.run(*(make_pod(f"v-{name}").priority("low").cpu("500m").on(name) for name in names))
    await settle()
    await space.create(
        *(
            make_pod(f"p-{name}")
            .priority("high")
            .cpu("500m")
            .spec(nodeSelector={"kubernetes.io/hostname": space.node_name(name)})
            for name in names
        )
    )
    seconds = await bound_in(space, number * 10_000, pods, seconds=300)
    for name in await space.pods():
        await space.delete(name, grace_seconds=0)
    return pods / seconds


async def compare(makeway: RunningCluster, plain: RunningCluster, rounds: int, pods: int) -> None:
    """Print a line for each trouble: pods a second of both, and the median ratio."""
    for trouble, manager in TROUBLES.items():
        with_makeway, without = [], []
        async with open_space(makeway) as left, open_space(plain) as right:
            left.judged = right.judged = False
            for space in (left, right):
                await space.add_nodes(make_node("room").cpu("64").memory("256Gi").pods(5000))
            for number in range(1, rounds + 1):
                async with manager(makeway):
                    with_makeway.append(await measure(left, number, pods))
                without.append(await measure(right, number, pods))
        ratios = [a / b for a, b in zip(with_makeway, without, strict=True)]
        print(
            f"{trouble:<28} {statistics.median(with_makeway):7.1f} pods/s with makeway "
            f"{statistics.median(without):7.1f} without   ratio {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}, {rounds} rounds of {pods})",
            flush=True,
        )


def main() -> None:
    """Start both control planes and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--pods", type=int, default=150)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        options = ClusterOptions(faulty=(EVICTOR,))
        alone = ClusterOptions(components=frozenset({NATS, SCHEDULER, KWOK}), plugin=False)
        with (
            Cluster(Path(directory) / "makeway", options).start() as first,
            Cluster(Path(directory) / "plain", alone).start() as second,
        ):
            asyncio.run(compare(RunningCluster(first), RunningCluster(second), given.rounds, given.pods))


if __name__ == "__main__":
    main()
