"""A gang that takes whole racks, as JobSet's exclusive placement writes it, on the real control plane."""

import pytest

from integration.builders import PodBuilder, make_node
from integration.cluster import RunningCluster
from integration.ganging import Gang, in_group, pod_group
from integration.pod_groups import form
from integration.preempting import EVICTOR_USER, deletes_of, run_victims, sized
from integration.space import Space
from makeway.bus.messages import ClosedDomain

RACK = "example.com/rack"
JOB = "example.com/job"
NODES = 3
"""Nodes of each rack: one more than the gang has members."""


@pytest.fixture
def cluster(gang_planning_cluster: RunningCluster) -> RunningCluster:
    """Run them where gangs are planned for."""
    return gang_planning_cluster


def old(rack: str, node: int, number: int) -> PodBuilder:
    """A pod of an older job on a node of a rack."""
    name = f"{rack}{node}"
    return sized(f"old-{name}-{number}", "low", 300).label(JOB, f"old-{rack}").on(name)


async def racks(space: Space) -> list[PodBuilder]:
    """Make three racks of three nodes; gives pods of old jobs: one a node in rack a, two in b and c."""
    nodes = [(rack, node) for rack in "abc" for node in range(NODES)]
    await space.add_nodes(*(make_node(f"{rack}{node}").cpu("2").label(RACK, rack) for rack, node in nodes))
    return [old(rack, node, one) for rack, node in nodes for one in range(1 if rack == "a" else 2)]


async def exclusive_gang(space: Space) -> Gang:
    """Create a gang of two that shares no rack with pods of other jobs. Each member has room on each node."""
    uid = await pod_group(
        space,
        "gang",
        schedulingPolicy={"gang": {"minCount": 2}},
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
    names = [f"gang-{number}" for number in range(2)]
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
