"""Mode observe on the real control plane: the scheduler's own preemption acts, makeway compares."""

from collections.abc import AsyncIterator

import pytest_asyncio

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.configuring import policy
from integration.preempting import EVICTOR_USER, run_victims, sized
from integration.scraping import scrape
from integration.space import Space
from integration.waiting import until
from makeway.bus.comparison import Comparison
from makeway.core.k8s.objects import Pod
from narrowing import there


@pytest_asyncio.fixture
async def observed(cluster: RunningCluster, space: Space) -> AsyncIterator[Space]:
    """A space of the shared cluster, where DefaultPreemption follows MakeWay, in mode observe."""
    async with policy(cluster, mode="observe"):
        yield space


async def compared(space: Space, preemptor: Pod) -> Comparison:
    async def ask() -> Comparison | None:
        found = await space.bus.comparisons(preemptor.metadata.uid)
        return found[0] if found else None

    return await until(f"the comparison about {preemptor.metadata.name}", ask)


async def test_default_preemption_acts_and_every_choice_is_compared_with_makeways(observed: Space) -> None:
    space = observed
    await space.add_nodes(*[make_node(name).cpu("500m") for name in ("n1", "n2", "n3")])
    await run_victims(
        space,
        *[sized(f"{node}-{number}", "low", 250).on(node) for node in ("n1", "n2", "n3") for number in (1, 2)],
    )
    before = await scrape(space.cluster.info.planner_url)

    comparisons = []
    for preemptor in (sized("one", "high", 500), sized("two", "high", 250), sized("three", "mid", 250)):
        (pod,) = await space.create(preemptor)
        comparison = await compared(space, pod)
        assert comparison.result in ("same", "equal"), comparison
        assert comparison.makeway is not None
        theirs = there(comparison.default_preemption)
        # One after the other: of two that wait, kube-scheduler may bind one to the room made for the other.
        assert await space.until_bound(pod.metadata.name) == space.short(theirs.node)
        comparisons.append(comparison)
    # 0 where the nomination was seen before the plan was made: nothing waits for plans in mode observe.
    assert any(one.nominated_after_microseconds > 0 for one in comparisons)
    taken = {
        victim.name
        for one in comparisons
        if one.default_preemption
        for victim in one.default_preemption.victims
    }
    assert len(taken) == 4
    left = await space.pods()
    assert not taken & left.keys()
    assert len(left) == 6 - 4 + 3
    assert not list(space.audit.events(about=(space.namespace,), resource="pods", user=EVICTOR_USER))
    after = await scrape(space.cluster.info.planner_url)
    name = "makeway_planner_comparisons_total"
    assert after.total(name) - before.total(name) == 3
    for choice in ("makeway", "default"):
        victims = "makeway_planner_compared_victims_total"
        assert after.total(victims, choice=choice) - before.total(victims, choice=choice) == 4
