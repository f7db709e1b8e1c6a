"""kube-scheduler 1.37's own preemption for a gang is compared as one choice, with and without the plugin."""

from dataclasses import replace

import pytest

from integration.asking import run
from integration.cluster import RunningCluster
from integration.conftest import PrivateCluster
from integration.ganging import Gang, gang, small_and_large
from integration.pod_groups import apiserver_arguments
from integration.space import Space, open_space
from integration.waiting import until
from makeway.bus.comparison import Comparison
from makeway.dev.binaries import KUBERNETES
from makeway.dev.options import KWOK, NATS, PLANNER, SCHEDULER, ClusterOptions
from narrowing import there

STOCK = frozenset({NATS, SCHEDULER, KWOK, PLANNER})


async def observing(private_cluster: PrivateCluster, *, plugin: bool) -> RunningCluster:
    """Start a cluster in mode observe whose scheduler knows gangs; without the plugin no evictor runs."""
    if KUBERNETES.name != "1.37":
        pytest.skip("kube-scheduler preempts for a gang as one from 1.37 on")
    options = ClusterOptions(
        plugin=plugin,
        mode="observe",
        scheduler_feature_gates=(("GenericWorkload", True),),
        apiserver_arguments=apiserver_arguments(),
    )
    return await private_cluster(options if plugin else replace(options, components=STOCK))


async def compared(space: Space, train: Gang) -> Comparison:
    """Wait until the gang runs and its preemption is compared."""
    for name in train.members:
        await space.until_bound(name, seconds=60)

    async def told() -> Comparison | None:
        found = await space.bus.comparisons(train.uid)
        return next((one for one in found if one.default_preemption is not None), None)

    return await until("the comparison about the gang", told)


@pytest.mark.slow
@pytest.mark.parametrize("plugin", [False, True], ids=["stock", "plugin"])
async def test_a_preemption_by_kube_scheduler_for_a_gang_is_compared_as_one(
    private_cluster: PrivateCluster, plugin: bool
) -> None:
    cluster = await observing(private_cluster, plugin=plugin)
    async with open_space(cluster) as space:
        await small_and_large(space)
        before = await space.pods()

        found = await compared(space, await gang(space))

        gone = before.keys() - (await space.pods()).keys()
        assert found.asked is plugin
        assert (there(found.group).members, found.preemptor.name) == (3, "gang")
        assert {victim.name for victim in there(found.default_preemption).victims} == gone
        assert found.makeway is not None
        assert sorted(one.name for one in found.makeway.victims) == ["large-n0", "large-n1", "large-n2"]
        assert found.result in ("same", "equal", "better")
        exit_code, stdout, _ = await run(cluster, "history", "--compare", f"--namespace={space.namespace}")
        assert exit_code == 0
        assert f"group {space.namespace}/gang (3 members)" in stdout
        exit_code, stdout, _ = await run(cluster, "why", f"podgroup/{space.namespace}/gang")
        assert exit_code == 0
        assert f"made room for group {space.namespace}/gang (3 members)" in stdout
