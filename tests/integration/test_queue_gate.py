"""Queues stay at or below max whoever races and whatever is killed; nobody waits for good.

Cases G-1 to G-3 of docs/conformance.md.
"""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from integration.builders import make_node, make_pod
from integration.cluster import RunningCluster
from integration.gating import (
    Control,
    bound,
    controlling,
    elsewhere,
    most_at_once,
    queued,
    until_bound_count,
    until_waiting,
)
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.bus.control import QueueLimit
from makeway.core.k8s.objects import Pod

ROOM = 50


@pytest.fixture
def space(queue_space: Space) -> Space:
    """Run in the cluster of the queue gate."""
    return queue_space


@pytest_asyncio.fixture
async def control(queue_cluster: RunningCluster, space: Space) -> AsyncIterator[Control]:
    """Says what is in force; at the end nothing is."""
    async with controlling(queue_cluster, space.api) as opened:
        yield opened


def queue(name: str, **maximum: int) -> tuple[QueueLimit, ...]:
    """A tree with one limited queue below the root."""
    return (QueueLimit(path="root"), QueueLimit(path=f"root.{name}", max=maximum))


async def test_pods_of_two_profiles_that_race_stay_within_max(space: Space, control: Control) -> None:
    """Case G-1."""
    await space.add_nodes(*(make_node(f"n{i}").cpu("4") for i in range(3)))
    await control.put(*queue("ml", cpu=ROOM * 10))
    pods = [
        queued(f"p{i}", "root.ml").spec(schedulerName=("default-scheduler", "second")[i % 2])
        for i in range(200)
    ]

    await asyncio.gather(*(space.create(*pods[i::8]) for i in range(8)))
    await until_bound_count(space, ROOM)
    for name in (await bound(space))[:20]:
        await space.delete(name, grace_seconds=0)
    await until_bound_count(space, ROOM)

    assert most_at_once(space) == ROOM
    waiting = next(name for name, pod in (await space.pods()).items() if not pod.spec.node_name)
    await until_waiting(space, waiting, "queue root.ml: cpu 500m of 500m used, 10m asked")


async def test_recreated_pods_wait_with_a_reason_for_a_higher_max(space: Space, control: Control) -> None:
    """Cases G-2 and G-3."""
    await space.add_nodes(make_node("n1"))
    await control.put(*queue("web", pods=4))
    await space.post(f"/apis/apps/v1/namespaces/{space.namespace}/deployments", deployment(space, replicas=4))
    await until_bound_count(space, 4)

    await control.put(*queue("web", pods=2))
    for name in (await bound(space))[:2]:
        await space.delete(name)  # as a quota order does
    await until_bound_count(space, 2)
    waiting = await until_replaced(space)
    # As of its last try, when those that went before it may still have been leaving.
    await until_waiting(space, waiting, "queue root.web: pods ", " of 2 used, 1 asked")
    await asyncio.sleep(1)
    assert len(await bound(space)) == 2

    await control.put(*queue("web", pods=4))
    await until_bound_count(space, 4, seconds=10)


async def test_pods_over_their_queues_max_are_no_lack_of_nodes(space: Space, control: Control) -> None:
    """Neither when they come one by one, nor in a burst, nor after the scheduler has begun anew."""
    await space.add_nodes(make_node("n1"))
    await control.put(*queue("ml", pods=2))
    await asyncio.gather(*(space.create(queued(f"p{i}", "root.ml")) for i in range(40)))
    await until_bound_count(space, 2)
    await until_held(space, 38)

    seen = await add_nodes_for(space, seconds=3)
    await space.delete((await bound(space))[0], grace_seconds=0)
    await until_bound_count(space, 2)
    await until_held(space, 37)
    seen |= await add_nodes_for(space, seconds=2)

    assert seen == set()
    await space.create(make_pod("large").cpu("100").label("queue", "root.default"))
    await until_waiting(space, "large", "Insufficient cpu")
    assert await add_nodes_for(space, seconds=1) == {"large"}


async def test_a_scheduler_that_is_killed_neither_forgets_the_limits_nor_shuts_the_gate(
    queue_cluster: RunningCluster, space: Space, control: Control
) -> None:
    await space.add_nodes(make_node("n1"))
    await control.put(*queue("ml", pods=3))
    await space.create(*(queued(f"p{i}", "root.ml") for i in range(6)))
    await until_bound_count(space, 3)

    await queue_cluster.kill("scheduler")
    await queue_cluster.start("scheduler")
    await space.create(queued("late", "root.ml"))
    await until_waiting(space, "late", "queue root.ml: pods 3 of 3 used")
    assert most_at_once(space) == 3
    await space.delete((await bound(space))[0], grace_seconds=0)

    await until_bound_count(space, 3)


async def test_without_nats_a_new_scheduler_waits_for_the_limits_with_all_but_what_a_cluster_needs_to_start(
    queue_cluster: RunningCluster, space: Space, control: Control
) -> None:
    await space.add_nodes(make_node("n1"))
    await space.post("/api/v1/namespaces/makeway-system/configmaps", {"metadata": {"name": "makeway-queues"}})
    try:
        await control.put(*queue("ml", pods=2))
        await space.create(*(queued(f"p{i}", "root.ml") for i in range(4)))
        await until_bound_count(space, 2)

        async with queue_cluster.without("nats"):
            await space.delete((await bound(space))[0], grace_seconds=0)
            await until_bound_count(space, 2)

            await queue_cluster.kill("scheduler")
            await queue_cluster.start("scheduler")
            await space.create(queued("late", "root.ml"))
            await until_waiting(
                space, "late", "makeway-system/makeway-queues", "see that NATS and a planner run"
            )
            assert len(await bound(space)) == 2
            async with elsewhere(
                space, queued("dns", "root.ml"), "kube-system", "system-cluster-critical"
            ) as dns:
                await dns.until_bound()
            async with elsewhere(space, queued("planner", "root.ml"), "makeway-system") as planner:
                await planner.until_bound()
            assert len(await bound(space)) == 2
        await until_waiting(space, "late", "queue root.ml: pods 2 of 2 used")
        await space.delete((await bound(space))[0], grace_seconds=0)
        await until_bound_count(space, 2)
        assert most_at_once(space) == 2
    finally:
        await space.api.request("DELETE", "/api/v1/namespaces/makeway-system/configmaps/makeway-queues")


def adds_nodes(pod: Pod) -> bool:
    """What both autoscalers look for, besides that the pod has no node and is not nominated to one.

    Karpenter: IsProvisionable (pkg/utils/pod/scheduling.go of kubernetes-sigs/karpenter). The cluster
    autoscaler: isUnschedulable (cluster-autoscaler/utils/kubernetes/listers.go of kubernetes/autoscaler).
    """
    conditions = [one for one in pod.status.conditions or () if one.type == "PodScheduled"]
    return not pod.spec.node_name and any(one.reason == "Unschedulable" for one in conditions)


async def add_nodes_for(space: Space, seconds: float) -> set[str]:
    """Look at all pods for a while as the autoscalers do, and give those that they would add nodes for."""
    found: set[str] = set()
    for _ in range(int(seconds * 10)):
        found |= {name for name, pod in (await space.pods()).items() if adds_nodes(pod)}
        await asyncio.sleep(0.1)
    return found


async def until_held(space: Space, count: int) -> None:
    """Wait until so many pods say that their queue is full."""

    async def asked() -> bool:
        conditions = [one for pod in (await space.pods()).values() for one in pod.status.conditions or ()]
        full = [one.message for one in conditions if one.reason == "QueueFull" and one.status == "False"]
        if len(full) != count:
            raise NotYet(f"{len(full)} do")
        assert all("queue root.ml: pods 2 of 2 used, 1 asked" in (one or "") for one in full)
        return True

    await until(f"{count} pods say that their queue is full", asked)


def deployment(space: Space, replicas: int) -> dict[str, object]:
    """A Deployment of pods in queue root.web."""
    pod = queued("web", "root.web").label("app", "web").build()
    labels = pod["metadata"]["labels"]
    template = {"metadata": {"labels": labels}, "spec": space.pod_spec(pod["spec"])}
    return {
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }


async def until_replaced(space: Space) -> str:
    """Wait until the Deployment has made its pods anew; gives one that is pending."""

    async def ask() -> str:
        pods = await space.pods()
        pending = [name for name, pod in pods.items() if not pod.spec.node_name]
        if len(pods) != 4 or len(pending) != 2:
            raise NotYet(json.dumps(sorted(pods)))
        return pending[0]

    return await until("there are four pods again", ask)
