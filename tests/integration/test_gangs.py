"""Gangs as preemptors, of which makeway plans none: kube-scheduler 1.36 evicts for them pod by pod."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from integration.asking import run
from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.configuring import policy
from integration.conftest import PrivateCluster
from integration.ganging import in_group, pod_group
from integration.pod_groups import apiserver_arguments
from integration.preempting import run_victims, sized
from integration.space import Space, open_space
from integration.waiting import NotYet, until, until_seen
from makeway.dev.binaries import KUBERNETES
from makeway.dev.options import ClusterOptions

LOW = [f"low-{number}" for number in range(8)]


@pytest_asyncio.fixture
async def space(gang_cluster: RunningCluster) -> AsyncIterator[Space]:
    """Give a corner of that cluster to one test; there kube-scheduler itself evicts."""
    async with open_space(gang_cluster) as opened:
        yield opened


async def gang_of_three_with_room_for_two(space: Space) -> None:
    """Fill two nodes, and make a gang of three pods of which each needs all of a node."""
    await space.add_nodes(make_node("n1").cpu("1"), make_node("n2").cpu("1"))
    await run_victims(
        space, *(sized(name, "low", 250).on(f"n{1 + place % 2}") for place, name in enumerate(LOW))
    )
    await pod_group(space, "gang", schedulingPolicy={"gang": {"minCount": 3}}, priorityClassName="high")
    await space.create(*(sized(f"gang-{n}", "high", 1000).spec(**in_group("gang")) for n in range(3)))


def told(space: Space, words: str) -> Callable[[], Awaitable[bool]]:
    """Look whether the condition of each pod of the gang says so."""

    async def look() -> bool:
        pods = await space.pods()
        for number in range(3):
            conditions = pods[f"gang-{number}"].status.conditions or ()
            if not any(words in (one.message or "") for one in conditions):
                raise NotYet(str(conditions))
        return True

    return look


async def test_nothing_is_evicted_for_a_gang_that_cannot_run_where_the_policy_says_hold(space: Space) -> None:
    async with policy(space.cluster, groups={"preemptors": "hold"}):
        await gang_of_three_with_room_for_two(space)

        await until("every pod of the gang is told that it is held", told(space, "groups.preemptors"))
        pods = await space.pods()
        _, text, error = await run(space.cluster, "why", f"{space.namespace}/gang-0")

    assert [name for name in LOW if name not in pods or pods[name].metadata.deletion_timestamp] == []
    assert f"a pod of PodGroup {space.namespace}/gang" in text, error


@pytest.mark.skipif(KUBERNETES.name != "1.36", reason="the gate is of Kubernetes 1.36")
async def test_none_goes_pod_by_pod_where_the_gate_has_groups_as_one(private_cluster: PrivateCluster) -> None:
    """As with DefaultPreemption; no plugin of another name is asked for the group as a whole."""
    gates = ("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption")
    options = ClusterOptions(
        scheduler_feature_gates=tuple((gate, True) for gate in gates),
        apiserver_arguments=apiserver_arguments(),
    )
    cluster = await private_cluster(options)
    async with open_space(cluster) as space:
        await gang_of_three_with_room_for_two(space)

        await until("every pod of the gang is told why", told(space, "WorkloadAwarePreemption"))
        pods = await space.pods()
        _, text, error = await run(cluster, "why", f"{space.namespace}/gang-0")

    assert "its scheduler had no plan: the gate WorkloadAwarePreemption" in text, error
    assert "left to kube-scheduler" not in text
    assert [name for name in LOW if name not in pods or pods[name].metadata.deletion_timestamp] == []


async def test_kube_schedulers_own_preemption_evicts_for_a_gang_that_cannot_run(space: Space) -> None:
    await gang_of_three_with_room_for_two(space)

    await until_seen("pods went for nothing", space.pods, lambda pods: not all(name in pods for name in LOW))
