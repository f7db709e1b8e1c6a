"""A gang that takes whole racks, as JobSet's exclusive placement writes it, on the real control plane."""

from collections.abc import AsyncIterator

import pytest_asyncio

from integration.builders import PodBuilder, make_node
from integration.cluster import RunningCluster
from integration.configuring import policy
from integration.drawing import NEVER_EVICT
from integration.ganging import Gang, in_group, pod_group
from integration.invariants import assert_invariants
from integration.pod_groups import form
from integration.preempting import EVICTOR_USER, assert_stays_pending, deletes_of, run_victims, sized
from integration.space import Space, open_space
from integration.waiting import until
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import ClosedDomain, EvictionOrder

RACK = "example.com/rack"
JOB = "example.com/job"
NODES = 3
"""Nodes of each rack: one more than the gang has members."""


@pytest_asyncio.fixture
async def space(gang_planning_cluster: RunningCluster) -> AsyncIterator[Space]:
    """Give a corner of that cluster to one test."""
    async with open_space(gang_planning_cluster) as opened:
        yield opened
        await assert_invariants(opened, wait=False)


def old(rack: str, node: int, number: int) -> PodBuilder:
    """A pod of an older job on a node of a rack."""
    name = f"{rack}{node}"
    return sized(f"old-{name}-{number}", "low", 300).label(JOB, f"old-{rack}").on(name)


async def racks(space: Space) -> list[PodBuilder]:
    """Make three racks of three nodes; gives pods of old jobs: one a node in rack a, two in b and c."""
    nodes = [(rack, node) for rack in "abc" for node in range(NODES)]
    await space.add_nodes(*(make_node(f"{rack}{node}").cpu("2").label(RACK, rack) for rack, node in nodes))
    return [old(rack, node, one) for rack, node in nodes for one in range(1 if rack == "a" else 2)]


async def exclusive_gang(space: Space, members: int = 2) -> Gang:
    """Create a gang that shares no rack with pods of other jobs. Each member has room on each node."""
    uid = await pod_group(
        space,
        "gang",
        schedulingPolicy={"gang": {"minCount": members}},
        disruptionMode=form().single,
        priorityClassName="high",
    )
    others = {
        "topologyKey": RACK,
        "labelSelector": {
            "matchExpressions": [
                {"key": JOB, "operator": "Exists"},
                {"key": JOB, "operator": "NotIn", "values": ["gang"]},
            ]
        },
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [others]}}
    names = [f"gang-{number}" for number in range(members)]
    await space.create(
        *(
            sized(one, "high", 1200).label(JOB, "gang").spec(affinity=affinity, **in_group("gang"))
            for one in names
        )
    )
    return Gang(uid, names)


async def test_a_gang_gets_a_rack_that_other_jobs_keep_closed_on_nodes_without_members(space: Space) -> None:
    await run_victims(space, *await racks(space))

    train = await exclusive_gang(space)

    nodes = {space.short(await space.until_bound(name)) for name in train.members}
    assert {node[0] for node in nodes} == {"a"}
    (order,) = await space.bus.group_orders(train.uid)
    assert sorted(one.name for one in order.victims) == [f"old-a{node}-0" for node in range(NODES)]
    beside = [one for one in order.victims if space.short(one.node) not in nodes]
    assert beside, "every node of the rack got a member"
    for victim in beside:
        assert victim.closes == ClosedDomain(rule="podAntiAffinity", key=RACK, value="a")
    for victim in order.victims:
        assert [event.user for event in deletes_of(space, victim.name)] == [EVICTOR_USER]
    assert len([name for name in await space.pods() if name.startswith("old-")]) == 4 * NODES


async def test_a_gang_is_refused_for_now_where_each_rack_has_a_pod_that_the_policy_keeps(
    gang_planning_cluster: RunningCluster, space: Space
) -> None:
    async with policy(gang_planning_cluster, protection={"neverEvictNamespaces": ["*"]}):
        pods = await racks(space)
        kept = {pod.name: pod for pod in pods if pod.node.endswith("2")}
        for pod in kept.values():
            pod.annotation(NEVER_EVICT, "true")
        await run_victims(space, *pods)

        train = await exclusive_gang(space)

        async def decided() -> DecisionRecord | None:
            found = await space.bus.group_decisions(train.uid)
            return found[-1] if found else None

        record = await until("a decision about the gang", decided)
        assert record.diagnosis is not None
        assert f"anti-affinity by {RACK}" in record.diagnosis.message
        assert "at most 0 of the 2 pods" in record.diagnosis.message
        assert record.diagnosis.retry_at is not None
        await assert_stays_pending(space, "gang-0")
        assert await space.bus.group_orders(train.uid) == []
        assert {pod.name for pod in pods} <= set(await space.pods())


async def test_a_gang_waits_for_a_pod_that_is_leaving_its_rack_and_takes_no_other_rack(space: Space) -> None:
    pods = await racks(space)
    leaving = next(pod for pod in pods if pod.name == "old-a2-0")
    await run_victims(space, *(pod.finalizer("example.com/stays") if pod is leaving else pod for pod in pods))
    await space.cluster.kubectl("cordon", space.node_name("a2"))
    await space.delete(leaving.name)

    train = await exclusive_gang(space)

    async def ordered() -> EvictionOrder | None:
        found = await space.bus.group_orders(train.uid)
        return found[0] if found else None

    order = await until("an order for the gang", ordered)
    assert sorted(one.name for one in order.victims) == ["old-a0-0", "old-a1-0"]
    await assert_stays_pending(space, "gang-0")
    await space.patch(leaving.name, {"metadata": {"finalizers": None}})
    nodes = {space.short(await space.until_bound(name)) for name in train.members}
    assert nodes == {"a0", "a1"}
    assert await space.bus.group_orders(train.uid) == [order]
    assert len([name for name in await space.pods() if name.startswith("old-")]) == 4 * NODES
