"""A burst of urgent pods of one namespace, without a policy: all are placed that kube-scheduler places."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

import pytest
import pytest_asyncio

from integration.builders import PodBuilder, make_node, make_pod
from integration.cluster import RunningCluster
from integration.configuring import NO_POLICY, put_policy
from integration.preempting import settle
from integration.space import Space, open_space
from integration.waiting import NotYet, until, until_seen

pytestmark = pytest.mark.wide

NO_RATES = "apiVersion: makeway.dev/v1\nkind: Policy\n"
"""A policy that says nothing, so that caps hold what they hold by default."""
PODS_OF_A_NODE = 4
AT_ONCE = 20
PATIENCE_SECONDS = 240
"""A few times what it takes, and less than the ten minutes for which the default caps hold what they hold."""

T = TypeVar("T")


@pytest_asyncio.fixture
async def makeway(drawn_cluster: RunningCluster) -> AsyncIterator[RunningCluster]:
    """The control plane with MakeWay, whose policy says nothing."""
    await put_policy(drawn_cluster, NO_RATES)
    yield drawn_cluster
    await put_policy(drawn_cluster, NO_POLICY)


def _batched(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[begin : begin + AT_ONCE] for begin in range(0, len(items), AT_ONCE))


async def _create(space: Space, pods: Sequence[PodBuilder]) -> None:
    for some in _batched(pods):
        await asyncio.gather(*(space.create(pod) for pod in some))


async def _fill(space: Space, nodes: int) -> None:
    """Fill nodes with pods of low priority, and wait until all run."""
    names = [f"n{number:03}" for number in range(nodes)]
    for some in _batched(names):
        await space.add_nodes(*(make_node(name).cpu(1) for name in some))
    await _create(
        space,
        [
            make_pod(f"low-{name}-{number}").priority("low").cpu("250m").on(name)
            for name in names
            for number in range(PODS_OF_A_NODE)
        ],
    )

    await until_seen(
        "every pod of low priority runs",
        space.pods,
        lambda pods: sum(pod.status.phase == "Running" for pod in pods.values()) >= nodes * PODS_OF_A_NODE,
        every=1,
    )
    await settle()


async def _burst(space: Space, preemptors: int) -> float:
    """Create urgent pods at once, and wait until all are bound. Return how many seconds that took."""
    began = time.monotonic()
    await _create(
        space, [make_pod(f"urgent-{number:03}").priority("high").cpu("250m") for number in range(preemptors)]
    )

    async def all_bound() -> bool:
        pods = (await space.pods()).items()
        bound = [name for name, pod in pods if name.startswith("urgent") and pod.spec.node_name]
        if len(bound) < preemptors:
            raise NotYet(f"{len(bound)} of {preemptors} are bound")
        return True

    await until("every urgent pod is bound", all_bound, seconds=PATIENCE_SECONDS, every=0.5)
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("preemptors", "nodes"),
    [
        pytest.param(115, 40, id="115", marks=pytest.mark.timeout(900)),
        pytest.param(500, 150, id="500", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
async def test_a_burst_of_one_namespace_is_placed_as_by_kube_scheduler(
    makeway: RunningCluster, drawn_plain_cluster: RunningCluster, preemptors: int, nodes: int
) -> None:
    """More victims than a namespace may have of the default caps, and none waits for their ten minutes."""
    async with AsyncExitStack() as stack:
        spaces = [
            await stack.enter_async_context(open_space(cluster)) for cluster in (makeway, drawn_plain_cluster)
        ]
        for space in spaces:
            await _fill(space, nodes)
        ours, theirs = spaces
        plain, made = await _burst(theirs, preemptors), await _burst(ours, preemptors)
        print(f"{preemptors} bound: by kube-scheduler in {plain:.1f} s, by makeway in {made:.1f} s")
