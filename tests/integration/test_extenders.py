"""An extender's filter rejects the only node: nothing is evicted for the pod, or little, and it says why."""

import asyncio
import json

import pytest

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.conftest import PrivateCluster
from integration.preempting import settle, sized
from integration.space import Space, open_space
from integration.test_preemption_loops import replica_set
from integration.waiting import until_seen
from makeway.dev.options import EXTENDED_RESOURCE, ClusterOptions
from served import served_in_threads

pytestmark = pytest.mark.wide

SECONDS = 40
"""Less than the first pause, so that makeway tries no fourth time."""


def rejects_urgent(path: str, body: bytes) -> tuple[int, bytes]:
    """Answer as an extender that rejects every node for the pod urgent, for now."""
    asked = json.loads(body)
    nodes = asked["Nodes"]["items"]
    rejects = asked["Pod"]["metadata"]["name"] == "urgent"
    names = [node["metadata"]["name"] for node in nodes if rejects]
    failed = dict.fromkeys(names, "no slice is free")
    answer = {"Nodes": {"items": [] if rejects else nodes}, "FailedNodes": failed}
    return 200, json.dumps(answer).encode()


async def evicted(space: Space) -> int:
    """Count the pods that Events say were preempted."""
    path = f"/api/v1/namespaces/{space.namespace}/events?fieldSelector=reason%3DPreempted&limit=5000"
    found = json.loads(await space.api.request("GET", path))["items"]
    return len({one["involvedObject"]["uid"] for one in found})


async def reject_the_only_node(cluster: RunningCluster, *, victims_have_some: bool) -> tuple[int, str]:
    """Have a pod ask for the one full node; give how many pods went for it, and what its condition says."""
    async with open_space(cluster) as space:
        await space.add_nodes(make_node("n1").cpu("500m").resource(EXTENDED_RESOURCE, 8))
        low = sized("web", "low", 500)
        await replica_set(space, "web", low.resource(EXTENDED_RESOURCE, 1) if victims_have_some else low)

        await until_seen(
            "a pod of web runs", space.pods, lambda seen: any(pod.spec.node_name for pod in seen.values())
        )
        await settle()
        await space.create(sized("urgent", "high", 500).resource(EXTENDED_RESOURCE, 1))
        for second in range(10, SECONDS + 1, 10):
            await asyncio.sleep(10)
            print(f"{second} s: {await evicted(space)} evicted, victims have some: {victims_have_some}")
        pod = await space.pod("urgent")
        told = " ".join(one.message or "" for one in pod.status.conditions or ()) if pod else ""
        await space.delete("urgent", grace_seconds=0)
        return await evicted(space), told


@pytest.mark.timeout(400)
async def test_a_pod_an_extender_rejects_costs_no_pods_without_end(private_cluster: PrivateCluster) -> None:
    """Where victims have some of what the extender manages, only the cycle after them tells."""
    with served_in_threads(rejects_urgent) as url:
        cluster = await private_cluster(ClusterOptions(extenders=(url,)))
        (afterwards, paused), (beforehand, refused) = await asyncio.gather(
            reject_the_only_node(cluster, victims_have_some=True),
            reject_the_only_node(cluster, victims_have_some=False),
        )

    assert 1 <= afterwards <= 3
    assert "room was made for this pod 3 times, the last time on node" in paused
    assert "the next try is at" in paused
    assert beforehand == 0
    assert "rejected by extender" in refused
    assert "no slice is free" in refused
