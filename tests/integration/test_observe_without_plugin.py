"""Stock kube-scheduler with nothing of makeway but planner and NATS: every preemption is compared."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from integration.asking import run
from integration.cluster import RunningCluster
from integration.preempting import full_nodes, taker
from integration.space import Space, open_space
from integration.waiting import until
from makeway.bus.comparison import Comparison
from makeway.core.k8s.objects import Pod

pytestmark = pytest.mark.wide

_WAVES, _A_WAVE = 10, 5
_PREEMPTIONS = _WAVES * _A_WAVE


@pytest_asyncio.fixture
async def stock(observed_cluster: RunningCluster) -> AsyncIterator[tuple[RunningCluster, Space]]:
    """A corner of a cluster with stock kube-scheduler, planner and NATS; no evictor, no plugin."""
    async with open_space(observed_cluster) as space:
        yield observed_cluster, space


async def compared(space: Space, preemptor: Pod) -> Comparison:
    async def ask() -> Comparison | None:
        found = await space.bus.comparisons(preemptor.metadata.uid)
        return found[0] if found else None

    return await until(f"the comparison about {preemptor.metadata.name}", ask)


async def test_every_preemption_of_stock_kube_scheduler_is_compared_and_told(
    stock: tuple[RunningCluster, Space],
) -> None:
    """50 preemptions: of one to five victims, of two priorities, under a budget that is soon used up.

    Each on a node of its own: else one takes the room that was made for another, and evicts no pod.
    """
    cluster, space = stock
    await full_nodes(space, _PREEMPTIONS, 5, ("app", "web"))
    await space.disruption_budget("web", {"app": "web"}, minAvailable=200)
    before = await space.pods()

    preemptors: list[Pod] = []
    for wave in range(_WAVES):
        these = [
            await taker(
                space,
                f"urgent-{wave}-{number}",
                number,
                priority=("mid", "high")[wave % 2],
                node=f"n{wave * _A_WAVE + number}",
            )
            for number in range(1, _A_WAVE + 1)
        ]
        for pod in these:
            await space.until_bound(pod.metadata.name, seconds=60)
        preemptors += these
    found = [await compared(space, pod) for pod in preemptors]

    gone = before.keys() - (await space.pods()).keys()
    told = {
        victim.name: one.preemptor.name
        for one in found
        if one.default_preemption is not None
        for victim in one.default_preemption.victims
    }
    assert not any(one.asked for one in found)
    assert told.keys() == gone
    assert sum(len(one.default_preemption.victims) for one in found if one.default_preemption) == len(gone)
    assert not {one.result for one in found} & {"makewayOnly", "undetermined"}
    assert await space.bus.orders() == []
    assert await space.bus.decisions() == []

    exit_code, stdout, _ = await run(cluster, "history", "--compare", f"--namespace={space.namespace}")
    assert exit_code == 0
    assert f"{_PREEMPTIONS} compared, {_PREEMPTIONS} with a choice on both sides" in stdout
    exit_code, stdout, _ = await run(cluster, "history", f"--namespace={space.namespace}")
    assert exit_code == 0
    assert len(re.findall(r" preempted +default-scheduler ", stdout)) == _PREEMPTIONS
    for victim, preemptor in list(told.items())[:: max(1, len(told) // 5)]:
        exit_code, stdout, _ = await run(cluster, "why", f"{space.namespace}/{victim}")
        assert exit_code == 0
        assert f"for:   {space.namespace}/{preemptor} " in stdout
        assert "by default-scheduler, not by makeway" in stdout
    served = preemptors[-1].metadata.name
    exit_code, stdout, _ = await run(cluster, "why", f"{space.namespace}/{served}")
    assert exit_code == 0
    assert f"{space.namespace}/{served} has a node; room was made for it, not by makeway" in stdout
    assert f"default-scheduler made room for {space.namespace}/{served} " in stdout
    assert stdout.count("(priority 0): lower-priority") == _A_WAVE
