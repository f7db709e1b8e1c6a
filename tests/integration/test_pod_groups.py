"""Pod groups on the real control plane: a group of mode all goes whole or not at all.

The API server serves PodGroups; kube-scheduler itself takes no notice of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.invariants import assert_invariants
from integration.preempting import ordered, outcome_of_order, run_victims, sized
from integration.space import Space, open_space
from integration.waiting import until


@pytest_asyncio.fixture
async def group_space(group_cluster: RunningCluster) -> AsyncIterator[Space]:
    """Give a corner of it to one test."""
    async with open_space(group_cluster) as opened:
        yield opened
        await assert_invariants(opened, wait=False)


async def group(space: Space, name: str, mode: str) -> None:
    path = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{space.namespace}/podgroups"
    manifest = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"basic": {}}, "disruptionMode": mode, "priorityClassName": "low"},
    }
    await space.post(path, manifest)


def of(name: str) -> dict[str, dict[str, str]]:
    return {"schedulingGroup": {"podGroupName": name}}


async def test_a_group_of_mode_all_is_evicted_with_its_pods_on_other_nodes(group_space: Space) -> None:
    space = group_space
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    await group(space, "train", "PodGroup")
    await run_victims(
        space,
        sized("a", "low", 500).on("n1").spec(**of("train")),
        sized("b", "low", 200).on("n2").spec(**of("train")),
        sized("h", "high", 300).on("n2"),
    )

    order = await ordered(space, sized("urgent", "high", 500))

    assert await space.until_bound("urgent", seconds=30) == "n1"
    _, outcome = await outcome_of_order(space, order)
    assert sorted((one.name, one.result) for one in outcome.victims) == [("a", "deleted"), ("b", "deleted")]


async def test_a_group_of_mode_single_loses_the_pod_that_has_to_go(group_space: Space) -> None:
    space = group_space
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    await group(space, "serve", "Pod")
    await run_victims(
        space,
        sized("a", "low", 500).on("n1").spec(**of("serve")),
        sized("b", "low", 200).on("n2").spec(**of("serve")),
        sized("h", "high", 300).on("n2"),
    )

    await ordered(space, sized("urgent", "high", 500))

    assert await space.until_bound("urgent", seconds=30) == "n1"
    await until("b runs on", lambda: _is_there(space, "b"))


async def _is_there(space: Space, name: str) -> bool:
    pod = await space.pod(name)
    return pod is not None and pod.metadata.deletion_timestamp is None
