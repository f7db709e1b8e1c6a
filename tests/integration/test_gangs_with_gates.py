"""Gangs where the scheduler's API calls come after its cycle, and groups are placed by topology.

Both gates are off by default in Kubernetes 1.37; the other tests of gangs run without them.
"""

from collections.abc import Iterator

import pytest

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.ganging import (
    gang,
    is_refused_where_a_victim_may_not_be_deleted,
    takes_the_room_with_the_fewest_pods,
)
from integration.pod_groups import apiserver_arguments
from integration.preempting import run_victims, sized
from integration.space import Space
from makeway.dev.binaries import KUBERNETES
from makeway.dev.cluster import DevCluster
from makeway.dev.options import ClusterOptions

TOPOLOGY = "TopologyAwareWorkloadScheduling"
ZONE = "topology.kubernetes.io/zone"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Give a control plane with both gates on."""
    if KUBERNETES.name != "1.37":
        pytest.skip("kube-scheduler asks for room for a gang as one from 1.37 on")
    gates = ("GenericWorkload", "SchedulerAsyncAPICalls", TOPOLOGY)
    options = ClusterOptions(
        scheduler_feature_gates=tuple((gate, True) for gate in gates),
        apiserver_arguments=apiserver_arguments(TOPOLOGY),
    )
    running = RunningCluster(DevCluster(tmp_path_factory.mktemp("gates") / "cluster", options).start())
    yield running
    running.owned.stop()


async def test_a_gang_takes_the_room_with_the_fewest_pods(space: Space) -> None:
    await takes_the_room_with_the_fewest_pods(space)


async def test_a_gang_is_refused_where_a_victim_may_not_be_deleted(space: Space) -> None:
    await is_refused_where_a_victim_may_not_be_deleted(space)


async def test_a_gang_that_stays_in_one_zone_takes_the_one_with_the_fewest_pods(space: Space) -> None:
    """The nodes with the fewest pods of all are in two zones, of which neither has enough of them."""
    zones = {"a": (1, 1, 4), "b": (1, 2, 2), "c": (4, 4, 4)}
    nodes = {f"{zone}{place}": pods for zone, of in zones.items() for place, pods in enumerate(of)}
    await space.add_nodes(*(make_node(name).cpu("1").label(ZONE, name[0]) for name in nodes))
    low = [
        sized(f"low-{name}-{one}", "low", 1000 // pods).on(name)
        for name, pods in nodes.items()
        for one in range(pods)
    ]
    await run_victims(space, *low)

    train = await gang(space, schedulingConstraints={"topology": [{"key": ZONE}]})

    for name in train.members:
        await space.until_bound(name)
    (order,) = await space.bus.group_orders(train.uid)
    assert {victim.name.split("-")[1][0] for victim in order.victims} == {"b"}
    assert len(order.victims) == 5
